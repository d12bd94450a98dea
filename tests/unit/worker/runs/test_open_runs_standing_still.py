"""A process that stood still between an intent and its call makes sure first that the run is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.clock import VirtualClock
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import Worker
from noesium_stream.worker.commit.partition_writer import PartitionWriter
from tests.support.reading import PATIENCE_S

STOOD_STILL_S = 10.0


@pytest.fixture(autouse=True)
def proof() -> None:
    """It lasts as long as in earnest here."""


class Pausing(HookedLog):
    """The process stands still when its first intent is on the log; somebody may take its partition then."""

    def __init__(self, inner: EventLog, clock: VirtualClock, *, taken: bool) -> None:
        super().__init__(inner, self._commit)
        self._clock = clock
        self._taken = taken
        self._paused = False

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        positions = await commit(outgoing)
        if not self._paused and any(o.envelope.event_type == "effect.requested" for o in outgoing):
            self._paused = True
            self._clock.advance(STOOD_STILL_S)
            if self._taken:
                await self.inner.writer(f"{outgoing[-1].topic}/{outgoing[-1].partition}")
        return positions


@pytest.mark.parametrize("taken", [True, False], ids=["taken by another", "still its own"])
@pytest.mark.parametrize("effect_class", SideEffectClass)
async def test_a_paused_owner_calls_nothing_that_it_does_not_own(
    tmp_path: Path, taken: bool, effect_class: SideEffectClass
) -> None:
    calls: list[str] = []

    async def pay(idempotency_key: str) -> str:
        calls.append(idempotency_key)
        return "paid"

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"paid": await current_step().effect("pay", pay, effect_class=effect_class)}

    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    clock = VirtualClock()
    async with asyncio.timeout(PATIENCE_S):
        inner = await open_log("memory://?partitions=1", clock=clock)
        log = cast(EventLog, Pausing(inner, clock, taken=taken))
        worker = Worker(log, [agent_from_graph(graph)], home=tmp_path, clock=clock)
        async with worker, Client(inner, clock=clock) as client:
            run = await client.start("sample", {})
            assert (await run.result())["paid"] == "paid"
            assert len(calls) == 1
            topic = inner.topology.journal("sample")
            types = [r.event_type async for r in inner.read(topic, {}, until=await inner.end(topic))]
        told = taken and effect_class is SideEffectClass.EXTERNAL
        assert types.count("effect.outcome.unknown") == 0
        assert types.count("effect.failed") == (1 if told else 0), (
            "the paused owner says that it called nothing"
        )
        assert types.count("partition.confirmed") == (0 if taken else 1)
        await inner.close()


async def test_nothing_gives_way_between_the_proof_and_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gave_way: list[str] = []
    seen: list[list[str]] = []
    assure = PartitionWriter.assure

    async def assured(owner: PartitionWriter) -> None:
        await assure(owner)
        asyncio.get_running_loop().call_soon(gave_way.append, "somebody's turn, which may take long")

    async def pay(idempotency_key: str) -> str:
        seen.append(list(gave_way))
        return "paid"

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"paid": await current_step().effect("pay", pay)}

    monkeypatch.setattr(PartitionWriter, "assure", assured)
    graph = StateGraph(dict).add_node("node", node).add_edge(START, "node")
    async with asyncio.timeout(PATIENCE_S):
        log = await open_log("memory://?partitions=1")
        async with Worker(log, [agent_from_graph(graph)], home=tmp_path), Client(log) as client:
            run = await client.start("sample", {})
            assert (await run.result())["paid"] == "paid"
        await log.close()
    assert gave_way
    assert seen == [[]]
