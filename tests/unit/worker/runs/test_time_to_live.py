"""A command's time to live: from when the log took it, whatever the clock of its sender says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import RunFailedError
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.standard import GraphRef, RunRequested, RunStarted
from noesium_stream.event.standard.catalogue import standard_catalogue
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.time_to_live import expiry, logged_ms
from tests.support.reading import PATIENCE_S
from tests.support.set_clock import SetClock

DAY_S = 86_400.0


class World(NamedTuple):
    """A log, and the clock of the machines that have it and its workers."""

    log: EventLog
    clock: SetClock
    home: Path

    def worker(self) -> Worker:
        def node(state: dict[str, Any]) -> dict[str, Any]:
            return {"done": True}

        graph = StateGraph(dict)
        graph.add_node("node", node)
        graph.add_edge(START, "node")
        graph.add_edge("node", END)
        return Worker(self.log, [agent_from_graph(graph)], home=self.home, clock=self.clock)

    async def sent(self, ahead_s: float = 0.0) -> Run:
        """A run that a client whose clock is ahead has asked for, with a minute to live."""
        sender = VirtualClock(self.clock.now_ms() + round(ahead_s * 1000))
        async with Client(self.log, clock=sender) as client:
            return await client.start("sample", {}, ttl=60)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    clock = SetClock()
    log = await open_log("memory://?partitions=1", clock=clock)
    yield World(log, clock, tmp_path)
    await log.close()


@pytest.mark.parametrize("ahead_s", [-DAY_S, 0.0, DAY_S])
async def test_a_command_is_executed_in_time_whatever_the_clock_of_its_sender(
    world: World, ahead_s: float
) -> None:
    run = await world.sent(ahead_s)
    world.clock.advance(59)
    async with world.worker():
        assert (await run.result(timeout=PATIENCE_S))["done"]


@pytest.mark.parametrize("ahead_s", [-DAY_S, 0.0, DAY_S])
async def test_a_command_expires_in_time_whatever_the_clock_of_its_sender(
    world: World, ahead_s: float
) -> None:
    run = await world.sent(ahead_s)
    world.clock.advance(61)
    async with world.worker():
        with pytest.raises(RunFailedError, match="command was 61000 ms old, its ttl 60000 ms"):
            await run.result(timeout=PATIENCE_S)
    [started] = [e async for e in run.events(follow=False) if e.event_type == "run.started"]
    assert started.payload["waited_ms"] == 61_000


async def test_a_command_that_waited_before_its_agent_grew_is_as_old_in_the_next_generation(
    world: World,
) -> None:
    run = await world.sent()
    async with Client(world.log, clock=world.clock) as client:
        await client.grow("sample", 2)
        world.clock.advance(61)
        async with world.worker():
            with pytest.raises(RunFailedError, match="was not executed"):
                await run.result(timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"900", 900),
        (b"1100", 1_000),
        (b"", 1_000),
        (b"-5", 1_000),
        ("²".encode(), 1_000),
        (b"9" * 5_000, 1_000),
    ],
)
def test_the_header_of_a_forwarded_command_makes_it_older_at_most(header: bytes, expected: int) -> None:
    record = Record(
        "inbox", 0, 0, 1_000, "k", [("noesium_logged", header)], b"", EnvelopeCodec(standard_catalogue())
    )
    assert logged_ms(record) == expected


def test_a_journal_of_an_earlier_release_is_judged_by_its_own_times() -> None:
    agent, trace = AgentRef("a", "a"), TraceContext("1" * 32, "2" * 16)
    graph = GraphRef(graph_id="g", version="1.0.0", fingerprint="f")
    started = RunStarted(run_id="r", agent_type="a", agent_version="1.0.0", graph=graph)
    assert "waited_ms" not in started.payload()
    asked = RunRequested(run_id="r", agent_type="a", input={})
    clock = VirtualClock()
    command = asked.to_envelope(agent, trace, clock=clock, ttl_ms=1_000)
    for wait_s, expired in ((1, False), (0.001, True)):
        clock.advance(wait_s)
        assert (expiry(command, started.to_envelope(agent, trace, clock=clock)) is not None) == expired
