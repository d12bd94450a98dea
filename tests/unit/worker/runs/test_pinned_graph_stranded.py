"""A run whose worker does not carry its graph is stranded, with the reason, and resumed by one that does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import BaseGraphicAgent, agent_from_graph
from noesium_stream.cli.drawing import draw
from noesium_stream.client import Client, Run
from noesium_stream.client.views.causal_tree import causal_tree
from noesium_stream.errors import RunCancelledError
from noesium_stream.event.standard import GraphRef, RunParked
from noesium_stream.kernel import RunHistory, current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.pinned_graph import leave
from tests.support.reading import PATIENCE_S

pytestmark = pytest.mark.usefixtures("calm")


class State(TypedDict, total=False):
    word: str


async def ask(state: State) -> dict[str, Any]:
    return {"word": (await current_step().interrupt("Which word?")).value}


def asker(version: str = "1.0.0", *, more: bool = False) -> type[BaseGraphicAgent]:
    """A graph that asks; with `more` another one."""
    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    if more:
        graph.add_node("again", ask)
        graph.add_edge("ask", "again")
    return agent_from_graph(graph, "asker", version=version)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


@pytest.fixture
async def asked(log: EventLog, tmp_path: Path) -> Run:
    """A run that waits for an answer; nobody has it."""
    async with Worker(log, [asker()], home=tmp_path), Client(log) as client:
        run = await client.start("asker", {})
        await seen(run, "approval.requested")
        return run


async def seen(run: Run, event_type: str) -> None:
    async for event in run.events():
        if event.event_type == event_type:
            return
    raise AssertionError(f"the run ended without {event_type}")


async def count(run: Run, event_type: str) -> int:
    return len([e async for e in run.events(follow=False) if e.event_type == event_type])


async def stranded_by(log: EventLog, run: Run, home: Path, agent: type[BaseGraphicAgent]) -> list[str]:
    """What a worker says that takes the run's partition over, when it has dealt with the run."""
    said: list[str] = []
    async with Worker(log, [agent], home=home, progress=said.append), Client(log) as client:
        other = await client.start("asker", {})  # of this worker's graph: what was open before is resumed
        await seen(other, "approval.requested")
        await other.cancel()
        with pytest.raises(RunCancelledError):
            await other.result(PATIENCE_S)
    return [line for line in said if "taken over from" not in line]


async def test_a_run_of_another_graph_is_stranded_and_says_why(
    log: EventLog, asked: Run, tmp_path: Path
) -> None:
    [said] = await stranded_by(log, asked, tmp_path, asker("1.1.0", more=True))
    info = await asked.info()
    assert info.status == "stranded"
    assert info.reason is not None
    assert "waits for asker 1.0.0 (" in info.reason
    assert "the worker has asker 1.1.0 (" in info.reason
    assert said == f"run {asked.id} is stranded: {info.reason}"
    events = [event async for event in asked.events(follow=False)]
    tree = causal_tree(asked.id, events)
    assert (tree.status, tree.reason, tree.takeovers) == ("stranded", info.reason, [])
    assert list(draw(tree))[1] == f"   {info.reason}"


async def test_a_run_is_stranded_once_however_often_workers_start(
    log: EventLog, asked: Run, tmp_path: Path
) -> None:
    newer = asker("1.1.0", more=True)
    for _ in range(3):
        await stranded_by(log, asked, tmp_path, newer)
    assert await count(asked, "run.parked") == 1
    await stranded_by(log, asked, tmp_path, asker("1.2.0", more=True))
    assert await count(asked, "run.parked") == 2, "another reason"


async def test_a_stranded_run_goes_on_with_a_worker_of_its_graph(
    log: EventLog, asked: Run, tmp_path: Path
) -> None:
    await stranded_by(log, asked, tmp_path, asker("1.1.0", more=True))
    async with Worker(log, [asker()], home=tmp_path):
        await seen(asked, "run.resumed")
        assert ((await asked.info()).status, (await asked.info()).reason) == ("waiting", None)
        await asked.approve(value="yes", by="anna")
        assert await asked.result(PATIENCE_S) == {"word": "yes"}
    info = await asked.info()
    assert (info.status, info.reason) == ("completed", None)
    assert await count(asked, "run.resumed") == 1


async def test_a_run_that_was_never_stranded_is_not_resumed(
    log: EventLog, asked: Run, tmp_path: Path
) -> None:
    async with Worker(log, [asker()], home=tmp_path):
        await asked.approve(value="yes", by="anna")
        await asked.result(PATIENCE_S)
    assert await count(asked, "run.resumed") == 0


async def test_a_stranded_run_can_be_cancelled_by_whoever_has_it(
    log: EventLog, asked: Run, tmp_path: Path
) -> None:
    newer = asker("1.1.0", more=True)
    await stranded_by(log, asked, tmp_path, newer)
    async with Worker(log, [newer], home=tmp_path):
        await asked.cancel("not needed")
        with pytest.raises(RunCancelledError):
            await asked.result(PATIENCE_S)
    info = await asked.info()
    assert (info.status, info.reason) == ("cancelled", None)


async def test_the_address_of_an_object_makes_no_other_reason() -> None:
    pinned = {"graph_id": "asker", "version": "1.0.0", "fingerprint": "0" * 64}
    newer = GraphRef(graph_id="asker", version="1.1.0", fingerprint="1" * 64)
    said: list[RunParked] = []
    history = RunHistory()
    history.pinned = pinned

    def stage(event: RunParked, **_: Any) -> None:
        said.append(event)
        history.status, history.reason = "stranded", event.reason

    identity = SimpleNamespace(trace=None, started_event_id="e")
    session: Any = SimpleNamespace(
        history=history, run_id="r", identity=identity, stage=stage, flush=lambda: None
    )
    for address in ("0x7f31c0de", "0x7f31beef"):
        line = leave(session, newer, f"cannot move it: <function f at {address}> failed")
        assert line.endswith("cannot move it: <function f> failed")
    assert len(said) == 1
    # Of an older release:
    history.reason = said[0].reason.replace("<function f>", "<function f at 0x1>")
    leave(session, newer, "cannot move it: <function f at 0x2> failed")
    assert len(said) == 1
    leave(session, newer, "cannot move it: <function g at 0x2> failed")
    assert len(said) == 2
