"""A node that waits for its next attempt leaves its slot to others, and its run may be evicted meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.effects import reached
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S, eventually

HOUR_S = 3600


class Fragile:
    """An agent whose first attempt fails where its input says so; the next one is an hour later."""

    def __init__(self) -> None:
        self.tries: list[str] = []

    async def body(self, state: dict[str, Any]) -> dict[str, Any]:
        self.tries.append(state["name"])
        if state["name"] == "fails" and self.tries.count("fails") == 1:
            raise OSError("not today")
        return {"said": state["name"]}

    def agent(self) -> Any:
        policy = RetryPolicy(
            max_attempts=2, initial_interval=HOUR_S, max_interval=HOUR_S, jitter=False, retry_on=OSError
        )
        graph = StateGraph(dict)
        graph.add_node("try", self.body, retry_policy=policy)
        graph.add_edge(START, "try")
        return agent_from_graph(graph)


async def test_a_run_that_pauses_before_a_retry_holds_no_slot(tmp_path: Path) -> None:
    clock, fragile = HandClock(), Fragile()
    log = await open_log("memory://?partitions=1")
    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(log, [fragile.agent()], home=tmp_path, clock=clock, concurrency=1) as worker,
        Client(log, clock=clock) as client,
    ):
        failing = await client.start("sample", {"name": "fails"})
        await reached(failing, "kernel.node.failed")
        other = await client.start("sample", {"name": "other"})
        assert (await other.result())["said"] == "other"
        assert fragile.tries == ["fails", "other"]
        [owner] = worker.tenures()
        clock.advance(120)
        owner.evict_idle()  # seen to wait
        clock.advance(120)
        owner.evict_idle()
        assert owner.evicted_runs == 1
        clock.advance(HOUR_S)
        assert (await failing.result())["said"] == "fails"
        assert fragile.tries == ["fails", "other", "fails"]
    await log.close()


async def test_who_takes_a_run_over_waits_for_what_is_left_of_the_pause(tmp_path: Path) -> None:
    clock, fragile = HandClock(), Fragile()
    log = await open_log("memory://?partitions=1")
    async with asyncio.timeout(PATIENCE_S), Client(log, clock=SystemClock()) as client:
        made = {"home": tmp_path, "clock": clock}
        async with Worker(log, [fragile.agent()], **made):
            run = await client.start("sample", {"name": "fails"})
            await reached(run, "kernel.node.failed")
        clock.advance(HOUR_S - 60)
        async with Worker(log, [fragile.agent()], **made) as worker:
            await eventually(lambda: worker.health().partitions["sample"] == [0])
            assert fragile.tries == ["fails"]
            clock.advance(61)
            assert (await run.result())["said"] == "fails"
    await log.close()
