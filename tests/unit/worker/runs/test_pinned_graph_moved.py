"""Workers take up runs of older versions of a graph: moved where that can be, left where it cannot."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.executor import KernelExecutor
from noesium_stream.errors import (
    CommitUnknownError,
    FencedError,
    RecordTooLargeError,
    RunCancelledError,
    RunFailedError,
)
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import Migration, current_step
from noesium_stream.kernel.decorators import kernel_compensation
from noesium_stream.log import EventLog, open_log
from noesium_stream.worker import Worker
from tests.support.failing import FailingLog
from tests.support.reading import PATIENCE_S, eventually

CALLED: Counter[str] = Counter()


class Old(TypedDict, total=False):
    n: int
    items: Annotated[list[Any], operator.add]


class New(TypedDict, total=False):
    count: int
    items: Annotated[list[Any], operator.add]


@pytest.fixture(autouse=True)
def _clean() -> None:
    CALLED.clear()


def outside(name: str) -> str:
    CALLED[name] += 1
    return name


@kernel_compensation()
def undo(result: str, *_: Any) -> None:
    CALLED[f"undo {result}"] += 1


async def first(state: Any) -> Any:
    kind = SideEffectClass.EXTERNAL
    done = await current_step().effect("first", outside, "first", effect_class=kind, compensate=undo)
    return {"items": [done]}


async def ask(state: Any) -> Any:
    step = current_step()
    before = await step.effect("before", outside, "before")
    answer = await step.interrupt("go on?")
    return {"items": [before, answer.value]}


async def last(state: Any) -> Any:
    if state["items"][-1] == "fail":
        raise ValueError("told to")
    return {"items": ["last", state.get("count")]}


def counted(state: dict[str, Any]) -> dict[str, Any]:
    return {"count": state.pop("n") * 10, **state}


def chain(schema: type, **nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    builder = StateGraph(schema)
    before = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder


OLD = chain(Old, first=first, ask=ask)
NEW = chain(New, first=first, ask=ask, last=last)
RENAMED = chain(New, first=first, question=ask, last=last)
V1 = agent_from_graph(OLD)
MOVE = Migration(OLD, state=counted)
V2 = agent_from_graph(NEW, version="2.0.0", migrations=[MOVE])
FINAL = {"count": 10, "items": ["first", "before", "yes", "last", 10]}


@asynccontextmanager
async def asked(url: str, home: Path) -> AsyncIterator[tuple[EventLog, Client, Any]]:
    """A run of the old version that has asked its question, and whose worker has ended."""
    log = await open_log(url)
    try:
        async with Client(log) as client:
            async with Worker(log, [V1], home=home):
                run = await client.start("sample", {"n": 1, "items": []})
                await eventually(run.approvals)
            yield log, client, run
    finally:
        await log.close()


async def types(run: Any) -> list[str]:
    return [event.event_type async for event in run.events(follow=False)]


async def test_a_run_is_moved_by_the_worker_that_takes_it_up_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    async with asked(url, tmp_path) as (_, _, run):
        run_id = run.id
    log = await open_log(url)
    try:
        async with Client(log) as client, Worker(log, [V2], home=tmp_path):
            run = await client.get_run(run_id)
            await run.approve(value="yes")
            assert await run.result(timeout=PATIENCE_S) == FINAL
            found = await types(run)
            assert found.count("run.migrated") == found.count("approval.requested") == 1
            assert found.index("approval.requested") < found.index("run.migrated")
    finally:
        await log.close()
    assert CALLED == {"first": 1, "before": 1}


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize(
    ("error", "reaches_log"),
    [
        (CommitUnknownError("told to"), True),
        (CommitUnknownError("told to"), False),
        (FencedError("no"), False),
    ],
)
async def test_a_move_survives_a_commit_that_fails(
    tmp_path: Path, at: int, error: Exception, reaches_log: bool
) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        failing: Any = FailingLog(log, lambda count, _: count == at, error, reaches_log=reaches_log)
        async with Worker(failing, [V2], home=tmp_path):
            await run.approve(value="yes")
            assert await run.result(timeout=PATIENCE_S) == FINAL
        assert (await types(run)).count("run.migrated") == 1
    assert CALLED == {"first": 1, "before": 1}


async def test_an_answer_that_came_before_the_move_counts(tmp_path: Path) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        await run.approve(value="yes")
        async with Worker(log, [V2], home=tmp_path):
            assert await run.result(timeout=PATIENCE_S) == FINAL


async def test_a_moved_run_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        async with Worker(log, [V2], home=tmp_path):
            await eventually(lambda: has(run, "run.migrated"))
        async with Worker(log, [V2], home=tmp_path):
            await run.approve(value="yes")
            assert await run.result(timeout=PATIENCE_S) == FINAL
        assert (await types(run)).count("run.migrated") == 1
    assert CALLED == {"first": 1, "before": 1}


async def has(run: Any, event_type: str) -> bool:
    return event_type in await types(run)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (agent_from_graph(NEW, version="2.0.0"), "and no migration from it"),
        (
            agent_from_graph(
                RENAMED,
                version="2.0.0",
                migrations=[Migration(OLD, state=counted, nodes={"ask": "question"})],
            ),
            "cannot move it: The node ask is under way in step 2",
        ),
        (
            agent_from_graph(NEW, version="2.0.0", migrations=[Migration(OLD, state=lambda s: 1 / 0)]),
            "ZeroDivisionError",
        ),
    ],
)
async def test_a_run_that_cannot_be_moved_is_left_and_can_be_cancelled(
    tmp_path: Path, kind: Any, why: str
) -> None:
    said: list[str] = []
    async with asked("memory://", tmp_path) as (log, _, run):
        before = await types(run)
        async with Worker(log, [kind], home=tmp_path, progress=said.append):
            await eventually(lambda: any("waits for sample 1.0.0" in line for line in said))
            assert any(why in line for line in said)
            assert [kind for kind in await types(run) if kind != "run.parked"] == before
            await run.cancel()
            with pytest.raises(RunCancelledError):
                await run.result(timeout=PATIENCE_S)
            assert CALLED["undo first"] == 1


async def test_a_run_whose_move_the_log_refuses_says_that_it_waits(tmp_path: Path) -> None:
    def moves(_: int, outgoing: Any) -> bool:
        return any(record.envelope.event_type == "run.migrated" for record in outgoing)

    async with asked("memory://", tmp_path) as (log, _, run):
        before = await types(run)
        failing: Any = FailingLog(log, moves, RecordTooLargeError("too large"), reaches_log=False)
        async with Worker(failing, [V2], home=tmp_path):
            await eventually(lambda: stranded(run))
            reason = (await run.info()).reason
            assert reason is not None
            assert reason.startswith("it waits for sample 1.0.0 (")
            assert "too large" in reason
        assert await types(run) == [*before, "run.parked"]
        async with Worker(log, [V2], home=tmp_path):
            await run.approve(value="yes")
            assert await run.result(timeout=PATIENCE_S) == FINAL


async def stranded(run: Any) -> bool:
    return (await run.info()).status == "stranded"


async def test_a_run_that_was_left_is_moved_when_its_version_has_finished_the_step(tmp_path: Path) -> None:
    between = chain(Old, first=first, ask=ask, wait=wait)
    renamed = chain(New, first=first, question=ask, wait=wait, last=last)
    kind = agent_from_graph(
        renamed, version="2.0.0", migrations=[Migration(between, state=counted, nodes={"ask": "question"})]
    )
    log = await open_log("memory://")
    try:
        async with Client(log) as client:
            async with Worker(log, [agent_from_graph(between)], home=tmp_path):
                run = await client.start("sample", {"n": 1, "items": []})
                await eventually(run.approvals)
                await run.approve(value="yes")
                await eventually(lambda: waits(run))
            async with Worker(log, [kind], home=tmp_path):
                await run.signal("go", "gone")
                final = await run.result(timeout=PATIENCE_S)
            assert final == {"count": 10, "items": ["first", "before", "yes", "gone", "last", 10]}
    finally:
        await log.close()
    assert CALLED == {"first": 1, "before": 1}


async def wait(state: Any) -> Any:
    return {"items": [await current_step().signal("go")]}


async def waits(run: Any) -> bool:
    entered = [event async for event in run.events(follow=False) if event.event_type == "kernel.node.entered"]
    return "wait" in [event.payload["node"] for event in entered]


async def test_what_was_done_before_the_move_is_undone_after_it(tmp_path: Path) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        async with Worker(log, [V2], home=tmp_path):
            await run.approve(value="fail")
            with pytest.raises(RunFailedError, match="told to"):
                await run.result(timeout=PATIENCE_S)
        assert (await types(run)).count("run.migrated") == 1
    assert CALLED == {"first": 1, "before": 1, "undo first": 1}


async def test_an_executor_takes_migrations(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    async with KernelExecutor(OLD, url, "sample", home=tmp_path) as executor:
        run = await executor.start({"n": 1, "items": []})
        await eventually(run.approvals)
    newer = KernelExecutor(NEW, url, "sample", version="2.0.0", migrations=[MOVE], home=tmp_path)
    async with newer as executor:
        await (await executor.client.get_run(run.id)).approve(value="yes")
        assert await executor.resume(run.id, timeout=PATIENCE_S) == FINAL
