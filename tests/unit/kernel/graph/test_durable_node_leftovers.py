"""What a node leaves running when it ends, and what waits in threads: nothing twice, and nothing hangs."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, Send

from noesium_stream.client import Run
from noesium_stream.errors import KernelError, RunCancelledError, RunFailedError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, kernel_compensation, kernel_node
from noesium_stream.worker.thread_pool import make_room_for_threads
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S

PURE, IDEMPOTENT = SideEffectClass.PURE, SideEffectClass.IDEMPOTENT
MANY = 80
"""More than the threads that asyncio has by itself, on any machine."""


class State(TypedDict, total=False):
    n: int
    items: Annotated[list[Any], operator.add]


def fan(node: Callable[[State], Any]) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State)
    graph.add_node("first", lambda state: {})
    graph.add_node("each", node)
    graph.add_edge(START, "first")
    graph.add_conditional_edges("first", lambda s: [Send("each", {"n": n}) for n in range(MANY)], ["each"])
    return graph


async def test_any_number_of_sync_nodes_may_wait_for_sync_effects_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(MANY)

    def node(state: State) -> dict[str, Any]:
        step = current_step()
        together.wait(PATIENCE_S)
        return {
            "items": [step.run_sync(step.effect("double", lambda n: n * 2, state["n"], effect_class=PURE))]
        }

    make_room_for_threads()  # as the command line does
    async with running(fan(node), tmp_path) as client:
        result = await (await client.start("sample", {"items": []})).result(timeout=PATIENCE_S)
    assert result["items"] == [n * 2 for n in range(MANY)]


async def test_any_number_of_sync_nodes_may_call_a_graph_with_sync_nodes_at_once(tmp_path: Path) -> None:
    inner = StateGraph(State)
    inner.add_node("double", lambda state: {"items": [state["n"] * 2]})
    inner.add_edge(START, "double")
    called = inner.compile()
    together = threading.Barrier(MANY)

    def node(state: State) -> dict[str, Any]:
        together.wait(PATIENCE_S)
        return {"items": called.invoke({"n": state["n"], "items": []})["items"]}

    make_room_for_threads()  # as the command line does
    async with running(fan(node), tmp_path) as client:
        result = await (await client.start("sample", {"items": []})).result(timeout=PATIENCE_S)
    assert result["items"] == [n * 2 for n in range(MANY)]


@pytest.mark.parametrize("ends", ["closes", "is cancelled"])
async def test_a_thread_that_waits_for_a_person_ends_with_its_run(tmp_path: Path, ends: str) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def node(state: State) -> dict[str, Any]:
        step = current_step()
        try:
            return {"items": [step.run_sync(step.interrupt("Go on?")).value]}
        finally:
            loop.call_soon_threadsafe(ended.set)

    graph = StateGraph(State)
    graph.add_node("ask", node)
    graph.add_edge(START, "ask")
    async with running(graph, tmp_path) as client:
        run = await client.start("sample", {"items": []})
        await reached(run, "approval.requested")
        if ends == "is cancelled":
            await run.cancel()
            with pytest.raises(RunCancelledError):
                await run.result(timeout=PATIENCE_S)
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
    await asyncio.wait_for(ended.wait(), PATIENCE_S)


async def reached(run: Run, event_type: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.events():
            if event.event_type == event_type:
                return
    raise AssertionError(f"the run ended without {event_type}")


class Held:
    """A compensation that waits in the middle of the run's end."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()


held: dict[str, Held] = {}


@kernel_compensation()
async def unbook(result: str, key: str) -> None:
    held[key].begun.set()
    await held[key].go_on.wait()


@pytest.mark.parametrize("does", ["effect", "subgraph", "interrupt", "signal", "invoke", "sleep"])
async def test_a_sync_node_that_goes_on_after_its_sibling_failed_does_nothing_more(
    tmp_path: Path, does: str
) -> None:
    done: list[str] = []
    told: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    at_work, may_go_on = asyncio.Event(), threading.Event()
    held[does] = Held()
    inner = StateGraph(State)
    inner.add_node("late", lambda state: done.append("late"))
    inner.add_edge(START, "late")
    called = inner.compile()

    async def first(state: State) -> None:
        booked = {"effect_class": IDEMPOTENT, "compensate": unbook}
        await current_step().effect("book", lambda key: f"booked {key}", does, **booked)

    def goes_on(state: State) -> None:
        step = current_step()
        loop.call_soon_threadsafe(at_work.set)
        may_go_on.wait(PATIENCE_S)
        calls: dict[str, Callable[[], Any]] = {
            "effect": lambda: step.run_sync(
                step.effect("pay", lambda: done.append("paid"), effect_class=PURE)
            ),
            "subgraph": lambda: called.invoke({"n": 1}),
            "interrupt": lambda: step.run_sync(step.interrupt("Late?")),
            "signal": lambda: step.run_sync(step.signal("late")),
            "invoke": lambda: step.run_sync(step.invoke("text.echo", {})),
            "sleep": lambda: step.run_sync(step.sleep(timedelta(days=1))),
        }
        error = None
        try:
            calls[does]()
        except Exception as raised:
            error = raised
        finally:
            loop.call_soon_threadsafe(told.set_result, error)

    async def fails(state: State) -> None:
        await at_work.wait()
        raise ValueError("no room")

    graph = StateGraph(State)
    graph.add_node("first", first)
    graph.add_node("goes_on", goes_on)
    graph.add_node("fails", fails)
    graph.add_edge(START, "first")
    graph.add_edge("first", "goes_on")
    graph.add_edge("first", "fails")
    async with running(graph, tmp_path) as client:
        run = await client.start("sample", {"items": []})
        await asyncio.wait_for(held[does].begun.wait(), PATIENCE_S)
        before = [event.event_type async for event in run.events(follow=False)]
        may_go_on.set()
        error = await asyncio.wait_for(told, PATIENCE_S)
        held[does].go_on.set()
        with pytest.raises(RunFailedError, match="no room"):
            await run.result(timeout=PATIENCE_S)
        after = [event.event_type async for event in run.events(follow=False)]
    assert isinstance(error, KernelError)
    assert "goes_on has ended" in error.message
    assert done == []
    assert after == [*before, "effect.completed", "run.failed"], "the compensation's result, and the end"


async def test_a_sync_node_that_ran_out_of_time_is_tried_again_and_the_first_does_nothing_more(
    tmp_path: Path,
) -> None:
    called: list[int] = []
    entered: list[int] = []
    loop = asyncio.get_running_loop()
    told: asyncio.Future[Exception | None] = loop.create_future()
    second = threading.Event()

    @kernel_node(timeout=timedelta(milliseconds=50))
    def node(state: State) -> dict[str, Any]:
        step, attempt = current_step(), len(entered) + 1
        entered.append(attempt)
        if attempt == 1:
            second.wait(PATIENCE_S)
            error = None
            try:
                step.run_sync(step.effect("pay", lambda: called.append(1)))
            except Exception as raised:
                error = raised
            loop.call_soon_threadsafe(told.set_result, error)
            return {}
        step.run_sync(step.effect("pay", lambda: called.append(attempt)))
        second.set()
        return {"items": ["paid"]}

    graph = StateGraph(State)
    policy = RetryPolicy(max_attempts=1_000, initial_interval=0.001, jitter=False)
    graph.add_node("pay", node, retry_policy=policy)
    graph.add_edge(START, "pay")
    async with running(graph, tmp_path) as client:
        run = await client.start("sample", {"items": []})
        assert (await run.result(timeout=PATIENCE_S))["items"] == ["paid"]
        assert isinstance(await asyncio.wait_for(told, PATIENCE_S), KernelError)
    assert len(called) == 1, "once, by whichever attempt had the time for it"
    assert called != [1]


async def test_an_effect_that_outlived_its_attempt_tells_the_next_one_what_came_of_it(tmp_path: Path) -> None:
    """Else the next attempt would wait for a person who can no longer decide: the outcome is known."""
    may_end = threading.Event()
    called: list[str] = []

    def pay() -> str:
        called.append("pay")
        may_end.wait(PATIENCE_S)
        return "receipt"

    @kernel_node(timeout=timedelta(milliseconds=50))
    def node(state: State) -> dict[str, Any]:
        step = current_step()
        return {"items": [step.run_sync(step.effect("pay", pay))]}

    graph = StateGraph(State)
    policy = RetryPolicy(max_attempts=200, initial_interval=0.001, backoff_factor=1, jitter=False)
    graph.add_node("pay", node, retry_policy=policy)
    graph.add_edge(START, "pay")
    async with running(graph, tmp_path) as client:
        run = await client.start("sample", {"items": []})
        await reached(run, "effect.outcome.unknown")
        may_end.set()
        assert (await run.result(timeout=PATIENCE_S))["items"] == ["receipt"]
    assert called == ["pay"]
