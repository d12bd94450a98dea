"""A worker keeps nothing in memory of runs that have ended."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from pathlib import Path
from typing import Any, TypedDict
from weakref import ref

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.shared import tail
from noesium_stream.clock import _TOKENS
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker.commit.committer import Committer
from noesium_stream.worker.runs.run_session import RunSession
from tests.support.reading import PATIENCE_S, eventually

RUNS = 240
_PAIR_OF_NODES = ("first", "second")


@pytest.fixture(autouse=True)
def recent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's reader keeps this many records for who begins late: as many before as afterwards."""
    monkeypatch.setattr(tail, "RECENT", 100)


class State(TypedDict, total=False):
    n: int


async def _plus_one(state: dict[str, Any]) -> dict[str, Any]:
    return {"n": state["n"] + 1}


def pair() -> Any:
    graph = StateGraph(State)
    for name in _PAIR_OF_NODES:
        graph.add_node(name, _plus_one)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    return agent_from_graph(graph)


async def run_all(client: Client, worker: Worker, count: int) -> None:
    runs = [await client.start("sample", {"n": number}) for number in range(count)]
    for run in runs:
        await run.result(timeout=PATIENCE_S)
    del runs
    owners: Any = worker.tenures()
    await eventually(lambda: not any(owner.open_runs for owner in owners))
    await eventually(lambda: not any(owner.keeper._unwritten for owner in owners))
    await asyncio.sleep(0)
    gc.collect()


def sizes() -> dict[int, tuple[Any, int]]:
    """Every container that there is, and how much is in it."""
    found = [one for one in gc.get_objects() if isinstance(one, (dict, set, list, deque))]
    ready = {id(tokens) for tokens in _TOKENS.values()}  # to be given out
    return {id(one): (one, held(one)) for one in found if not _of_sqlite(one) and id(one) not in ready}


def held(one: Any) -> int:
    """How much is in a container. An event loop forgets cancelled timers late."""
    if isinstance(one, list) and one and isinstance(one[0], asyncio.TimerHandle):
        return sum(not timer.cancelled() for timer in one)
    return len(one)


def _of_sqlite(one: Any) -> bool:
    """A connection's list of its cursors, which it looks through after each 200."""
    return isinstance(one, list) and bool(one) and isinstance(one[0], ref)


def grown(before: dict[int, tuple[Any, int]], by: int) -> list[str]:
    """Containers that have so much more in them than they had."""
    return [str(one)[:500] for one, size in before.values() if held(one) - size >= by]


async def worked(log: EventLog, home: Path) -> list[str]:
    """What has grown with the runs."""
    gc.collect()
    others = {id(one) for one in gc.get_objects() if isinstance(one, RunSession)}  # of tests before
    async with Client(log) as client, Worker(log, [pair()], home=home) as worker:
        await run_all(client, worker, RUNS // 2)
        before = sizes()
        before.pop(id(before), None)
        await run_all(client, worker, RUNS)
        alive = [one for one in gc.get_objects() if isinstance(one, RunSession)]
        sessions = sum(id(one) not in others for one in alive)
        del alive
        assert sessions < RUNS  # of all of them, those that began last
        return grown(before, RUNS // 2)


async def test_nothing_grows_with_the_runs_that_have_ended(tmp_path: Path) -> None:
    log = await open_log(f"sqlite:///{tmp_path / 'log.db'}?partitions=1")
    try:
        assert await worked(log, tmp_path) == []
    finally:
        await log.close()


async def test_what_is_kept_of_every_run_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Keeping(dict[str, int]):
        """Forgets nothing."""

        def pop(self, *given: Any) -> Any:
            return self.get(*given)

    made = Committer.__init__

    def make(committer: Committer, *given: Any) -> None:
        made(committer, *given)
        committer.sequences = Keeping()

    monkeypatch.setattr(Committer, "__init__", make)
    log = await open_log(f"sqlite:///{tmp_path / 'log.db'}?partitions=1")
    try:
        assert len(await worked(log, tmp_path)) == 1
    finally:
        await log.close()
