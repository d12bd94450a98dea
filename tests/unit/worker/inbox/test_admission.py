"""Commands are taken up while others are on their way to the log: each once, and in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict, cast

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.errors import FencedError, RecordTooLargeError
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.worker import Worker
from tests.support.holding import HoldingLog
from tests.support.reading import PATIENCE_S, eventually, stored

TURNS = 200
"""Of the event loop, in which a record of the inbox reaches its owner on a log in this process."""


class State(TypedDict, total=False):
    value: Any


class Stage:
    """A worker whose first commit with `run.started` does not get to the log until `go` says so."""

    def __init__(self, log: HoldingLog, worker: Worker, client: Client) -> None:
        self.log = log
        self.client = client
        self.worker = worker

    @property
    def owner(self) -> Any:
        [owner] = self.worker.tenures()
        return owner

    async def asks(self, fair: str, count: int = 1) -> list[Run]:
        return [await self.client.start("sample", {"value": n}, fairness_key=fair) for n in range(count)]

    async def play(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def journal(self) -> list[Record]:
        return await stored(self.client.log, self.client.log.topology.journal("sample"))

    async def each_began_once(self, runs: list[Run]) -> None:
        began = Counter(record.key for record in await self.journal() if record.event_type == "run.started")
        assert began == Counter(run.id for run in runs)


async def echo(state: State) -> dict[str, Any]:
    return {"value": state["value"]}


async def ask(state: State) -> dict[str, Any]:
    return {"value": await current_step().signal("go")}


@asynccontextmanager
async def staged(
    home: Path, error: Exception | None, node: Any = echo, **options: Any
) -> AsyncIterator[Stage]:
    graph = StateGraph(State).add_node("node", node).add_edge(START, "node")
    inner = await open_log("memory://?partitions=1")
    log = HoldingLog(inner, error, "run.started")
    worker = Worker(cast(EventLog, log), [agent_from_graph(graph)], home=home, **options)
    async with asyncio.timeout(PATIENCE_S), worker, Client(inner) as client:
        yield Stage(log, worker, client)
    await inner.close()


@pytest.mark.parametrize("error", [None, FencedError("told to")], ids=["reaches the log", "is lost"])
async def test_a_command_is_taken_up_while_another_one_is_on_its_way_to_the_log(
    tmp_path: Path, error: Exception | None
) -> None:
    async with staged(tmp_path, error) as stage:
        runs = await stage.asks("one")
        await stage.log.held.wait()
        runs += await stage.asks("one", 2)
        await eventually(lambda: stage.owner.open_runs == 3)
        runs += await stage.asks("two", 2)
        await eventually(lambda: stage.owner.open_runs == 5)
        stage.log.go.set()
        for run in runs:
            await run.result(timeout=PATIENCE_S)
        await stage.each_began_once(runs)


async def test_while_commands_are_on_their_way_the_next_ones_go_on_with_the_turns(tmp_path: Path) -> None:
    async with staged(tmp_path, None, concurrency=3) as stage:
        runs = await stage.asks("a")
        await stage.log.held.wait()
        runs += await stage.asks("b") + await stage.asks("a", 2)
        await eventually(lambda: stage.owner.open_runs == 3)
        runs += await stage.asks("b")
        await stage.play()
        assert stage.owner.open_runs == 3, "there are three slots, and this key has one"
        stage.log.go.set()
        for run in runs:
            await run.result(timeout=PATIENCE_S)
        await stage.each_began_once(runs)
        copies = [record for record in await stage.journal() if record.event_type in COMMANDS]
        assert "".join(record.envelope.metadata["fairness_key"] for record in copies) == "ababa"


@pytest.mark.parametrize("error", [None, FencedError("told to")], ids=["reaches the log", "is lost"])
async def test_what_is_sent_to_a_run_that_is_on_its_way_to_the_log_lies_behind_it(
    tmp_path: Path, error: Exception | None
) -> None:
    async with staged(tmp_path, error, ask) as stage:
        runs = await stage.asks("one")
        await stage.log.held.wait()
        runs += await stage.asks("one")
        await runs[0].signal("go", 7)
        runs += await stage.asks("one")
        await stage.play()
        assert stage.owner.open_runs == 2, "what comes behind the signal waits with it"
        stage.log.go.set()
        assert (await runs[0].result(timeout=PATIENCE_S))["value"] == 7
        for run in runs[1:]:
            await run.signal("go", 8)
            assert (await run.result(timeout=PATIENCE_S))["value"] == 8
        await stage.each_began_once(runs)
        first = [record.event_type for record in await stage.journal() if record.key == runs[0].id]
        assert first.index("run.signalled") > first.index("run.started")


async def test_nothing_is_accepted_for_a_run_whose_command_the_log_may_refuse(tmp_path: Path) -> None:
    async with staged(tmp_path, RecordTooLargeError("told to")) as stage:
        [run] = await stage.asks("one")
        await stage.log.held.wait()
        await run.signal("go", 7)
        await stage.play()
        stage.log.go.set()
        with pytest.raises(RecordTooLargeError):
            await stage.worker.wait()
        await stage.play()
        assert [record.event_type for record in await stage.journal() if record.key == run.id] == []


async def test_the_same_command_again_changes_nothing_while_it_is_on_its_way(tmp_path: Path) -> None:
    async with staged(tmp_path, None) as stage:
        run = await stage.client.start("sample", {"value": 1}, idempotency_key="once")
        await stage.log.held.wait()
        again = await stage.client.start("sample", {"value": 1}, idempotency_key="once")
        other = await stage.asks("other")
        await stage.play()
        stage.log.go.set()
        for one in (run, again, *other):
            await one.result(timeout=PATIENCE_S)
        assert again.id == run.id
        await stage.each_began_once([run, *other])
