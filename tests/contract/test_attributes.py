"""Runs are found by what they are about, on every log and by every reader."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import ConfigError, RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.backends import Backend
from tests.support.effects import reached
from tests.support.reading import PATIENCE_S

DUE = datetime(2026, 3, 1, 12, tzinfo=UTC)


class State(TypedDict, total=False):
    customer: int
    fails: bool
    tries: int


async def receive(state: State) -> dict[str, Any]:
    step = current_step()
    step.set_attributes(customer=state["customer"], phase="received", urgent=True)
    step.set_attributes({"due": DUE, "urgent": None})
    if state.get("fails"):
        raise ValueError("no stock")
    await step.signal("go")
    return {}


async def send(state: State) -> dict[str, Any]:
    current_step().set_attributes(phase="sent")
    return {}


BUILDER = (
    StateGraph(State).add_node(receive).add_node(send).add_edge(START, "receive").add_edge("receive", "send")
)
DESK = agent_from_graph(BUILDER, agent_type="desk")


async def listed(client: Client, where: str) -> list[str]:
    return [info.run_id for info in await client.list_runs(where=where)]


async def test_runs_are_found_by_attributes_that_commands_and_steps_have_set(
    backend: Backend, tmp_path: Path
) -> None:
    log = await backend.open()
    async with Client(log) as client:
        async with Worker(log, [DESK], home=tmp_path / "1"):
            first = await client.start(
                "desk", {"customer": 7}, attributes={"region": "north", "phase": "new"}
            )
            other = await client.start("desk", {"customer": 8}, attributes={"region": "north"})
            failed = await client.start("desk", {"customer": 9, "fails": True}, attributes={"phase": "new"})
            with pytest.raises(RunFailedError):
                await failed.result(timeout=PATIENCE_S)
            for run in (first, other):
                await reached(run, "kernel.signal.awaited")
            # The step has not ended: what it sets is not true yet.
            assert await listed(client, "phase = received") == []
            assert await listed(client, "phase = new") == [failed.id, first.id]
            await first.signal("go")
            await first.result(timeout=PATIENCE_S)
            assert await listed(client, "customer = 7 and phase = sent and due = 2026-03-01T12:00Z") == [
                first.id
            ]
            assert await listed(client, "urgent is not null") == []
            assert await listed(client, "region = north and status = open") == [other.id]
        # Another worker, from the journal alone: a step that is executed again sets its attributes once.
        async with Worker(log, [DESK], home=tmp_path / "2"):
            await other.signal("go")
            await other.result(timeout=PATIENCE_S)
        assert await listed(client, "region = north and phase = sent") == [other.id, first.id]
        events = [event.event_type async for event in other.events(follow=False)]
        assert events.count("attributes.set") == 3
        if backend.several_processes:
            async with Client(await backend.open()) as elsewhere:
                theirs = await elsewhere.list_runs(where={"region": "north"})
                assert [(run.run_id, run.attributes) for run in theirs] == [
                    (run.run_id, run.attributes) for run in await client.list_runs(where={"region": "north"})
                ]
                assert theirs[0].attributes == {
                    **{"region": "north", "customer": 8, "phase": "sent"},
                    "due": {"time_ms": round(DUE.timestamp() * 1000)},
                }


async def test_no_run_has_too_many_attributes(log: EventLog, tmp_path: Path) -> None:
    async def fill(state: State) -> dict[str, Any]:
        current_step().set_attributes({f"a{n}": n for n in range(40)})
        current_step().set_attributes({f"b{n}": n for n in range(11)})
        return {}

    greedy = agent_from_graph(StateGraph(State).add_node(fill).add_edge(START, "fill"), agent_type="greedy")
    async with Worker(log, [greedy], home=tmp_path), Client(log) as client:
        with pytest.raises(ConfigError, match="cannot name an attribute"):
            await client.start("greedy", {}, attributes={"no name": 1})
        run = await client.start("greedy", {})
        with pytest.raises(RunFailedError, match="would have 51 attributes"):
            await run.result(timeout=PATIENCE_S)
        assert (await run.info()).attributes == {}
