"""Code that ends its process, or cancels itself, fails its own run and nothing else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.errors import RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.kernel.decorators import kernel_compensation
from noesium_stream.kernel.failure_of_code import failure_of_code
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually


class Bare(BaseException):
    pass


def leave() -> NoReturn:
    sys.exit(3)


def raising(error: BaseException | type[BaseException]) -> Callable[[], NoReturn]:
    def function() -> NoReturn:
        raise error

    return function


def in_async(function: Callable[[], NoReturn]) -> Any:
    async def node(state: Any) -> Any:
        function()

    return node


def in_thread(function: Callable[[], NoReturn]) -> Any:
    def node(state: Any) -> Any:
        function()

    return node


def in_effect(function: Callable[[], NoReturn]) -> Any:
    async def call() -> Any:
        function()

    async def node(state: Any) -> Any:
        return {"done": await current_step().effect("call", call)}

    return node


def in_sync_effect(function: Callable[[], NoReturn]) -> Any:
    async def node(state: Any) -> Any:
        return {"done": await current_step().effect("call", function)}

    return node


def in_gathered_effects(function: Callable[[], NoReturn]) -> Any:
    async def node(state: Any) -> Any:
        step = current_step()
        done = await asyncio.gather(step.effect("one", function), step.effect("two", str))
        return {"done": list(done)}

    return node


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


def agent(node: Any) -> Any:
    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return agent_from_graph(graph)


async def end_of(log: EventLog, home: Path, node: Any) -> tuple[str, str]:
    """How a run of this node fails, which the worker survives."""
    async with Worker(log, [agent(node)], home=home) as worker, Client(log) as client:
        living = asyncio.create_task(worker.wait())
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError):
            await run.result(timeout=PATIENCE_S)
        assert not living.done()
        living.cancel()
        payload = await failure(run)
        return payload["error_type"], payload["message"]


async def failure(run: Run) -> dict[str, Any]:
    events = [event async for event in run.events(follow=False)]
    assert events[-1].event_type == "run.failed"
    return events[-1].payload


@pytest.mark.parametrize("place", [in_async, in_thread])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (leave, ("SystemExit", "sys.exit(3)")),
        (raising(SystemExit("no more")), ("SystemExit", "sys.exit('no more')")),
        (raising(Bare("told to")), ("Bare", "told to")),
        (raising(asyncio.CancelledError("mine")), ("CancelledError", "mine")),
    ],
)
async def test_a_node_that_ends_its_process_fails_its_run(
    log: EventLog, tmp_path: Path, place: Any, function: Any, expected: tuple[str, str]
) -> None:
    assert await end_of(log, tmp_path, place(function)) == expected


@pytest.mark.parametrize("place", [in_effect, in_sync_effect, in_gathered_effects])
@pytest.mark.parametrize(
    "function", [leave, raising(asyncio.CancelledError("mine")), raising(Bare("told to"))]
)
async def test_an_effect_that_ends_its_process_has_failed(
    log: EventLog, tmp_path: Path, place: Any, function: Any
) -> None:
    ends = {("SystemExit", "sys.exit(3)"), ("CancelledError", "mine"), ("Bare", "told to")}
    assert await end_of(log, tmp_path, place(function)) in ends


async def test_ctrl_c_that_a_node_raises_in_a_thread_fails_its_run(log: EventLog, tmp_path: Path) -> None:
    expected = ("KeyboardInterrupt", "KeyboardInterrupt")
    assert await end_of(log, tmp_path, in_thread(raising(KeyboardInterrupt))) == expected


async def test_ctrl_c_in_the_main_thread_is_the_terminals() -> None:
    assert failure_of_code(KeyboardInterrupt(), asyncio.current_task()) is None


async def test_a_cancellation_that_was_asked_for_is_the_runtimes() -> None:
    found: list[Any] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            found.append(failure_of_code(error, asyncio.current_task()))
            raise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert found == [None]


@pytest.mark.parametrize("place", [in_async, in_thread])
async def test_a_node_that_raises_what_ends_generators_fails_its_run(
    log: EventLog, tmp_path: Path, place: Any
) -> None:
    assert "GeneratorExit" in (await end_of(log, tmp_path, place(raising(GeneratorExit))))[1]


async def test_a_coroutine_that_is_closed_from_outside_its_task_closes() -> None:
    found: list[Any] = []
    its_own = asyncio.create_task(asyncio.sleep(0))
    await its_own

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            found.append(failure_of_code(error, its_own))
            raise

    coroutine = wait()
    coroutine.send(None)
    coroutine.close()
    assert found == [None]


async def test_what_undoes_a_cancelled_run_and_cancels_itself_does_not_leave_it_open(
    log: EventLog, tmp_path: Path
) -> None:
    async def node(state: Any) -> Any:
        await current_step().effect("book", str, compensate=cancels_itself)
        await current_step().interrupt("go on?")

    async with Worker(log, [agent(node)], home=tmp_path), Client(log) as client:
        run = await client.start("sample", {})
        await eventually(run.approvals)
        await run.cancel()
        await eventually(lambda: has_failed_effect(run))


async def has_failed_effect(run: Run) -> bool:
    return any([event.event_type == "effect.failed" async for event in run.events(follow=False)])


@kernel_compensation()
async def cancels_itself(*_: Any) -> None:
    raise asyncio.CancelledError("mine")
