"""Memory in nodes: writes commit with the step, reads are repeated as they were, other runs see the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import BaseGraphicAgent
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.clock import SystemClock
from noesium_stream.errors import RunFailedError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.memory import MemoryFilter, MemoryManager, memory_of
from noesium_stream.testing import Rehearsal


class Said(TypedDict, total=False):
    name: str
    do: str
    found: Any


class Clerk(BaseGraphicAgent):
    """Remembers names."""

    agent_type = "clerk"

    def get_state_class(self) -> type[Said]:
        return Said

    def _build_graph(self) -> StateGraph[Any]:
        graph = StateGraph(Said)
        graph.add_node("learn", self.learn)
        graph.add_node("tell", self.tell)
        graph.add_edge(START, "learn")
        graph.add_edge("learn", "tell")
        return graph

    async def learn(self, said: Said) -> dict[str, Any]:
        memory = self.memory
        before = await memory.recall("name")
        self.memory.ephemeral.set("before", before)
        if said.get("do") == "fail":
            raise ValueError("no")
        if said.get("do") == "other":
            memory.at("agent:boss")
        if "name" in said:
            await memory.write("name", said["name"], {"lang": "en"}, source="mail:7", said_by="ada")
            await memory.at("user:ada").write("seen", True)
        return {"found": [before, await memory.recall("name")]}

    async def tell(self, said: Said) -> dict[str, Any]:
        items = await self.memory.query(MemoryFilter(scopes=["agent:clerk", "user:ada"]))
        found = [result.item.value for result in await self.memory.search("name")]
        before = self.memory.ephemeral.get("before")
        return {"found": [*said["found"], [item.key for item in items], found, before]}


def outside(rehearsal: Rehearsal, home: Path, scope: str = "agent:clerk") -> MemoryManager:
    return memory_of(rehearsal.log, home, rehearsal.client._producer, scope, clock=rehearsal.clock)


async def test_a_run_reads_what_it_and_the_runs_before_it_have_written(tmp_path: Path) -> None:
    async with Rehearsal(Clerk) as rehearsal:
        first = await rehearsal.start({"name": "Bo"})
        assert (await first.result())["found"] == [None, "Bo", ["name", "seen"], ["Bo"], None]
        second = await rehearsal.start({"name": "Bea"})
        assert (await second.result())["found"] == ["Bo", "Bea", ["name", "seen"], ["Bea"], "Bo"]
        third = await rehearsal.start({})
        assert (await third.result())["found"] == ["Bea", "Bea", ["name", "seen"], ["Bea"], "Bea"]
        for run in (first, second, third):
            handle = await rehearsal.client.get_run(run.id)
            verdict = await verify(handle, agent_target(Clerk, rehearsal.log))
            assert verdict.difference is None
        item = await outside(rehearsal, tmp_path).durable.recall("name")
        assert item is not None
        assert (item.value, item.run_id, item.said_by) == ("Bea", second.id, "ada")
        assert "mail:7" in item.sources


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("crash", ["effect.requested", "effect.completed", "memory.written", "run.completed"])
async def test_a_crash_changes_nothing_that_is_remembered(crash: str, nth: int, tmp_path: Path) -> None:
    async with Rehearsal(Clerk) as rehearsal:
        rehearsal.crash_after(crash, nth)
        run = await rehearsal.start({"name": "Bo"})
        again = await rehearsal.start({"name": "Bo"}) if (crash, nth) == ("run.completed", 2) else run
        assert (await again.result())["found"][1:] == [
            "Bo",
            ["name", "seen"],
            ["Bo"],
            (await again.result())["found"][0],
        ]
        events = await run.history()
        assert [event.event_type for event in events].count("memory.written") == 3
        handle = await rehearsal.client.get_run(run.id)
        assert (await verify(handle, agent_target(Clerk, rehearsal.log))).difference is None
        history = outside(rehearsal, tmp_path).durable.store
        await history.catch_up(rehearsal.log)
        assert len(history.facts("WHERE key = 'name'")) == (1 if again is run else 2)


async def test_a_node_that_fails_remembers_nothing(tmp_path: Path) -> None:
    async with Rehearsal(Clerk) as rehearsal:
        run = await rehearsal.start({"name": "Bo", "do": "fail"})
        with pytest.raises(RunFailedError):
            await run.result()
        assert await outside(rehearsal, tmp_path).durable.query() == []


async def test_the_memory_of_another_agent_is_refused() -> None:
    async with Rehearsal(Clerk) as rehearsal:
        run = await rehearsal.start({"do": "other"})
        with pytest.raises(RunFailedError, match="may not use the memory of agent:boss"):
            await run.result()


async def test_programs_write_and_correct_side_by_side(tmp_path: Path) -> None:
    async with Rehearsal(Clerk) as rehearsal:
        here, there = outside(rehearsal, tmp_path / "a"), outside(rehearsal, tmp_path / "b")
        first = await here.write("tier", "silver", said_by="ada")
        rehearsal.clock.advance(1)
        await asyncio.gather(
            here.write("tier", "gold", replaces=[first]), there.write("tier", "bronze", replaces=[first])
        )
        mine, other = await here.durable.recall("tier"), await there.durable.recall("tier")
        assert mine is not None
        assert mine == other
        assert sorted([mine.value, *(one.value for one in mine.contradictions)]) == ["bronze", "gold"]
        await here.retract("agent:client")
        assert await there.durable.recall("tier") is None
        rehearsal.clock.advance(1)
        await here.durable.restore("agent:client")
        assert await there.durable.recall("tier") == mine
        await here.durable.rebuild()
        assert await here.durable.recall("tier") == mine


async def test_of_several_writes_of_one_moment_the_last_counts(tmp_path: Path) -> None:
    log = await open_log("memory://")
    memory = memory_of(log, tmp_path, AgentRef("p", "client", "local", "i"), "user:ada", clock=SystemClock())
    for number in range(50):
        await memory.write("n", number)
    assert await memory.recall("n") == 49
    await log.close()
