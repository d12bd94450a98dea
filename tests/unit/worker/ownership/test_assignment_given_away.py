"""An owner that has lost its writer takes the partition again only while the group leaves it here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.worker import Worker
from tests.support.effects import reached
from tests.support.reading import PATIENCE_S, eventually
from tests.support.stores import memory_of


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


class Slow:
    """An agent whose effect ends when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def act(self) -> str:
        await self.go.wait()
        return "done"

    async def body(self, state: dict[str, Any]) -> dict[str, Any]:
        kind = SideEffectClass.IDEMPOTENT
        return {"said": await current_step().effect("act", self.act, effect_class=kind)}

    def agent(self) -> Any:
        graph = StateGraph(dict)
        graph.add_node("act", self.body)
        graph.add_edge(START, "act")
        return agent_from_graph(graph)


async def test_a_partition_that_the_group_has_given_to_another_is_dropped_and_nobody_is_fenced(
    log: EventLog, tmp_path: Path
) -> None:
    slow, lines = Slow(), list[str]()
    inbox = TopicPartition(log.topology.inbox("sample"), 0)
    writer_id = f"{log.topology.journal('sample')}/0"
    worker = Worker(log, [slow.agent()], home=tmp_path, progress=lines.append)
    async with worker, Client(log) as client:
        run = await client.start("sample", {})
        await reached(run, "effect.requested")
        # Somebody else has the partition, and its member has not heard of that yet.
        [table] = memory_of(log).groups.values()
        table.owners[inbox], table.epochs[inbox] = "somebody else", table.epochs[inbox] + 1
        other = await log.writer(writer_id)
        slow.go.set()
        await eventually(lambda: any("given it to another" in line for line in lines))
        assert memory_of(log).epochs[writer_id] == other.epoch, "the other one is not fenced"
        assert not any("taking it again" in line for line in lines)
        types = [event.event_type async for event in run.events(follow=False)]
        assert "effect.completed" not in types

        del table.owners[inbox]
        table.generation += 1
        memory_of(log).changes.notify()
        assert (await run.result(timeout=PATIENCE_S))["said"] == "done", "assigned again it is taken again"


async def test_a_partition_that_the_group_leaves_here_is_taken_again(log: EventLog, tmp_path: Path) -> None:
    slow, lines = Slow(), list[str]()
    writer_id = f"{log.topology.journal('sample')}/0"
    worker = Worker(log, [slow.agent()], home=tmp_path, progress=lines.append)
    async with worker, Client(log) as client:
        run = await client.start("sample", {})
        await reached(run, "effect.requested")
        stale = await log.writer(writer_id)
        slow.go.set()
        assert (await run.result(timeout=PATIENCE_S))["said"] == "done"
        assert memory_of(log).epochs[writer_id] > stale.epoch
        assert any("taking it again" in line for line in lines)
