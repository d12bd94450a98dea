"""A worker of one agent whose clock is moved by hand, and which evicts runs when it is told to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Run
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker.runs import eviction
from noesium_stream.worker.runs.eviction import IDLE_S
from noesium_stream.worker.runs.run_session import RunSession
from noesium_stream.worker.tenure import RunTenure
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S, eventually

Node = Callable[..., Any]


class State(TypedDict, total=False):
    value: Any
    other: Any


class Host:
    """A worker whose agent has the given nodes side by side."""

    def __init__(self, log: EventLog, home: Path) -> None:
        self.log = log
        self.home = home
        self.clock = HandClock()
        self.bodies: Counter[str] = Counter()

    def worker(self, *nodes: Any) -> Worker:
        graph = StateGraph(State)
        for number, node in enumerate(nodes):
            graph.add_node(f"node{number}", node)
            graph.add_edge(START, f"node{number}")
            graph.add_edge(f"node{number}", END)
        self.current = Worker(self.log, [agent_from_graph(graph)], home=self.home, clock=self.clock)
        return self.current

    @property
    def owners(self) -> list[RunTenure]:
        return self.current.tenures()

    @property
    def loaded(self) -> list[RunSession]:
        return [session for owner in self.owners for session in owner.runs.loaded.values()]

    @property
    def evicted(self) -> int:
        return sum(owner.evicted_runs for owner in self.owners)

    def sweep(self) -> None:
        for owner in self.owners:
            owner.evict_idle()

    async def idle_for(self, seconds: float = IDLE_S) -> None:
        """Let everything come to rest, and then so much time pass."""
        for _ in range(50):
            await asyncio.sleep(0)
        self.sweep()
        self.clock.advance(seconds)
        self.sweep()

    async def evicts(self, count: int = 1) -> None:
        """Wait until so many runs are evicted, while time passes."""

        async def rested() -> bool:
            await self.idle_for()
            return self.evicted == count

        await eventually(rested)


async def reached(run: Run, event_type: str, count: int = 1) -> None:
    """Wait until an event of this type is on the log of the run, for the `count`th time."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.events():
            count -= event.event_type == event_type
            if not count:
                return


async def types(run: Run) -> list[str]:
    """The types of the events of a run, so far."""
    return [event.event_type async for event in run.events(follow=False)]


def evict_at_once(patch: pytest.MonkeyPatch, crowd: int = 0) -> None:
    """Let more waiting runs than these of a partition be evicted in the next turn of the event loop."""
    patch.setattr(eviction, "CROWD", crowd)
    patch.setattr(eviction, "CROWDED_IDLE_S", 0.0)
    patch.setattr(eviction, "SOON_IDLE_S", 0.0)
