"""Runs of every shape are as recorded: open ones, failed ones, with retries, gathers, subgraphs and waits."""

from __future__ import annotations

import asyncio
import operator
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy, Send, interrupt

from noesium_stream.capabilities.version import in_range
from noesium_stream.errors import CapabilityNotFoundError, RunCancelledError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.kernel.recording.recorded_run import RecordedRun, canonical_history
from noesium_stream.kernel.verify.verifier import ReplayTarget, verify_run
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S, eventually
from tests.support.replays import REF, Graph, journal_of, recorded, verify

IDEMPOTENT = SideEffectClass.IDEMPOTENT
RETRY = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=Exception)


class State(TypedDict, total=False):
    n: int
    items: Annotated[list[Any], operator.add]
    value: Any


def chain(retry: RetryPolicy | None = None, **nodes: Any) -> Graph:
    graph = StateGraph(State)
    previous = START
    for name, node in nodes.items():
        graph.add_node(name, node, retry_policy=retry)
        graph.add_edge(previous, name)
        previous = name
    graph.add_edge(previous, END)
    return graph


async def same(graph: Graph, run: RecordedRun) -> bool:
    difference = (await verify(graph, run)).difference
    assert difference is None, str(difference)
    return True


def double(n: int) -> int:
    return n * 2


async def test_gathered_calls_have_no_order(tmp_path: Path) -> None:
    async def both(n: int) -> int:
        for _ in range(random.randrange(6)):
            await asyncio.sleep(0)
        step = current_step()
        once = await step.effect("double", double, n)
        return int(await step.effect("again", double, once))

    async def sorted_node(state: State) -> dict[str, Any]:
        return {"value": sorted(await asyncio.gather(*(both(n) for n in random.sample(range(6), 6))))}

    run = await recorded(chain(a=sorted_node), tmp_path, items=[])
    for _ in range(5):
        assert await same(chain(a=sorted_node), run)


async def test_a_changed_call_among_gathered_ones_is_found(tmp_path: Path) -> None:
    def graph(last: int) -> Graph:
        async def node(state: State) -> dict[str, Any]:
            step = current_step()
            await asyncio.gather(*(step.effect("double", double, n) for n in (0, 1, last)))
            return {}

        return chain(a=node)

    run = await recorded(graph(2), tmp_path, n=1)
    difference = (await verify(graph(3), run)).difference
    assert difference is not None
    assert (difference.recorded, difference.now) == ("double(2)", "double(3)")


async def test_a_subgraph_and_sends_are_replayed(tmp_path: Path) -> None:
    def graph(factor: int) -> Graph:
        inner = StateGraph(State)
        inner.add_node("first", lambda state: {"items": [state["n"]]})
        inner.add_node("second", lambda state: {"items": [state["n"] * factor]})
        inner.add_edge(START, "first")
        inner.add_edge("first", "second")
        outer = StateGraph(State)
        outer.add_node("plan", lambda state: {})
        outer.add_node("sub", inner.compile())
        outer.add_edge(START, "plan")
        sends = [Send("sub", {"n": n, "items": []}) for n in range(3)]
        outer.add_conditional_edges("plan", lambda state: sends, ["sub"])
        return outer

    run = await recorded(graph(2), tmp_path, n=1, items=[])
    assert await same(graph(2), run)
    difference = (await verify(graph(3), run)).difference
    assert difference is not None
    assert (difference.step, difference.node) == (2, "second")


async def test_a_failed_attempt_is_a_fact_and_the_next_one_is_made_again(tmp_path: Path) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return "at last"

    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        first = await step.effect("steady", double, 2)
        return {"value": [first, await step.effect("flaky", flaky)]}

    run = await recorded(chain(RETRY, a=node, b=lambda state: {"n": 1}), tmp_path, n=0)
    assert await same(chain(RETRY, a=node, b=lambda state: {"n": 1}), run)
    assert len(tries) == 3


@pytest.mark.parametrize("error", [ValueError("told to fail"), ConnectionError("away")])
async def test_a_failed_run_fails_again_in_the_same_way(tmp_path: Path, error: Exception) -> None:
    def graph(raised: Exception | None) -> Graph:
        async def node(state: State) -> dict[str, Any]:
            await current_step().effect("double", double, 1)
            if raised is not None:
                raise raised
            return {}

        return chain(RETRY, a=lambda state: {}, b=node)

    run = await recorded(graph(error), tmp_path, n=0)
    assert run.terminal is not None
    assert run.terminal.event_type == "run.failed"
    assert await same(graph(error), run)
    for other in (None, ValueError("another")):
        difference = (await verify(graph(other), run)).difference
        assert difference is not None
        assert difference.node == "b"


async def test_a_failure_of_an_effect_that_the_node_catches_is_served_to_it(tmp_path: Path) -> None:
    def refuse() -> str:
        raise ConnectionRefusedError("no")

    async def node(state: State) -> dict[str, Any]:
        try:
            return {"value": await current_step().effect("refuse", refuse)}
        except ConnectionRefusedError as error:
            return {"value": f"without: {error}"}

    run = await recorded(chain(a=node), tmp_path, n=0)
    assert run.terminal is not None
    assert run.terminal.payload["result"]["value"] == "without: no"
    assert await same(chain(a=node), run)


def asking(*questions: str, argument: int = 1) -> Graph:
    async def ask(state: State) -> dict[str, Any]:
        step = current_step()
        await step.effect("double", double, argument)
        return {"items": [(await step.interrupt(question)).value for question in questions]}

    def beside(state: State) -> dict[str, Any]:
        return {"n": argument}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("beside", beside)
    graph.add_node("after", lambda state: {})
    graph.add_edge(START, "ask")
    graph.add_edge(START, "beside")
    graph.add_edge(["ask", "beside"], "after")
    return graph


async def test_an_open_run_is_as_recorded_as_far_as_it_goes(tmp_path: Path) -> None:
    run = await recorded(asking("May I?"), tmp_path, until="approval.requested", items=[])
    verdict = await verify(asking("May I?"), run)
    assert (verdict.is_same, verdict.status, verdict.steps) == (True, "open", 1)
    assert (await verify(asking("May I?", "And this?"), run)).is_same, "what comes later is no difference"


@pytest.mark.parametrize(
    ("graph", "node"),
    [
        (asking("Is it safe?", "May I?"), "ask"),
        (asking(), "ask"),
        (asking("May I?", argument=2), "beside"),
    ],
)
async def test_what_differs_before_the_end_of_an_open_run_is_found(
    tmp_path: Path, graph: Graph, node: str
) -> None:
    run = await recorded(asking("May I?"), tmp_path, until="approval.requested", items=[])
    difference = (await verify(graph, run)).difference
    assert difference is not None
    assert difference.node in (node, "ask")


async def test_a_run_that_waits_for_a_signal_is_open(tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        await step.effect("double", double, 4)
        return {"value": await step.signal("go")}

    run = await recorded(chain(a=node), tmp_path, until="effect.completed", n=0)
    assert (await verify(chain(a=node), run)).is_same


def first_of(*names: str) -> Any:
    """A node that takes the first of these signals, or goes on after a moment."""

    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        waits = [asyncio.ensure_future(step.signal(name)) for name in names]
        pause = asyncio.ensure_future(step.sleep(timedelta(milliseconds=30)))
        done, others = await asyncio.wait({*waits, pause}, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        return {"value": "late" if pause in done else "signalled"}

    return node


async def test_the_note_of_a_wait_for_a_signal_is_not_compared(tmp_path: Path) -> None:
    run = await recorded(chain(a=first_of("go", "stop")), tmp_path, n=0)
    types = [item.event.event_type for item in run.events]
    assert types.count("kernel.signal.awaited") == 2
    assert (await verify(chain(a=first_of("go", "stop")), run)).is_same
    assert (await verify(chain(a=first_of("go")), run)).is_same
    # A log of an earlier release has no such note.
    others = tuple(item for item in run.events if item.event.event_type != "kernel.signal.awaited")
    assert (await verify(chain(a=first_of("go", "stop")), replace(run, events=others))).is_same


async def test_an_effect_without_a_recorded_result_is_not_called(tmp_path: Path) -> None:
    called: Counter[str] = Counter()
    hang = asyncio.Event()

    async def outside() -> str:
        called["outside"] += 1
        await hang.wait()
        return "never"

    async def node(state: State) -> dict[str, Any]:
        return {"value": await current_step().effect("outside", outside, effect_class=IDEMPOTENT)}

    run = await recorded(chain(a=node), tmp_path, until="effect.requested", n=0)
    before = called["outside"]
    assert (await verify(chain(a=node), run)).is_same
    assert called["outside"] == before


async def test_timers_are_not_waited_for(tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        await current_step().sleep(timedelta(milliseconds=30))
        return {"value": current_step().now().isoformat()}

    run = await recorded(chain(a=node), tmp_path, n=0)
    async with asyncio.timeout(PATIENCE_S):
        assert await same(chain(a=node), run)


async def test_an_open_timer_is_no_difference(tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        await current_step().sleep(timedelta(days=30))
        return {}

    run = await recorded(chain(a=node), tmp_path, until="timer.started", n=0)
    assert (await verify(chain(a=node), run)).is_same


async def test_an_interrupt_of_langgraph_is_replayed_to_where_it_waits(tmp_path: Path) -> None:
    def node(state: State) -> dict[str, Any]:
        return {"value": interrupt({"question": "sure?"})}

    run = await recorded(chain(a=node), tmp_path, until="approval.requested", n=0)
    assert (await verify(chain(a=node), run)).is_same
    assert not (await verify(chain(a=lambda state: {"value": 1}), run)).is_same


async def test_the_canonical_history_is_the_same_for_two_runs_that_did_the_same(tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        calls = [step.effect("double", double, n) for n in range(4)]
        random.shuffle(calls)
        return {"value": sorted(await asyncio.gather(*calls))}

    first = canonical_history(await recorded(chain(a=node), tmp_path / "1", n=1))
    again = canonical_history(await recorded(chain(a=node), tmp_path / "2", n=1))
    other = canonical_history(await recorded(chain(a=node), tmp_path / "3", n=2))
    assert first == again
    assert first != other
    assert first.steps[0].calls[3]["outcomes"] == [{"type": "effect.completed", "result": 6}]


async def test_a_renamed_node_that_an_open_run_waits_in_is_found(tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        return {"value": await current_step().signal("go")}

    run = await recorded(chain(a=lambda state: {}, b=node), tmp_path, until="kernel.checkpoint.created", n=0)
    difference = (await verify(chain(a=lambda state: {}, c=node), run)).difference
    assert difference is not None
    assert (difference.step, difference.node, difference.now) == (2, "b", "c")


def endless() -> Graph:
    graph = chain(a=lambda state: {"items": [1]})
    graph.add_conditional_edges("a", lambda state: "a", ["a"])
    return graph


async def test_a_run_that_met_its_recursion_limit_meets_it_again(tmp_path: Path) -> None:
    run = await recorded(endless(), tmp_path, items=[])
    assert run.terminal is not None
    assert "supersteps" in run.terminal.payload["message"]
    target = ReplayTarget(endless().compile(), REF)
    assert (await verify_run(target, run, in_range)).is_same
    difference = (await verify_run(replace(target, recursion_limit=1_010), run, in_range)).difference
    assert difference is not None
    assert (difference.node, difference.what) == ("a", "the run goes on now")


async def test_a_cancelled_run_is_replayed_to_where_it_was_cancelled(tmp_path: Path) -> None:
    def graph(argument: int) -> Graph:
        async def node(state: State) -> dict[str, Any]:
            await current_step().effect("double", double, argument)
            return {"value": await current_step().signal("never")}

        return chain(a=lambda state: {}, b=node)

    async with running(graph(1), tmp_path) as client:
        cancelled = await client.start("sample", {"n": 1})
        await eventually(lambda: _done(cancelled, "effect.completed"))
        await cancelled.cancel()
        with pytest.raises(RunCancelledError):
            await cancelled.result(timeout=PATIENCE_S)
        run = await journal_of(cancelled)
    assert (await verify(graph(1), run)).is_same
    difference = (await verify(graph(2), run)).difference
    assert difference is not None
    assert (difference.node, difference.now) == ("b", "double(2)")


async def _done(run: Any, event_type: str) -> bool:
    return event_type in [event.event_type async for event in run.events(follow=False)]


async def test_a_retry_policy_that_would_go_on_is_a_difference(tmp_path: Path) -> None:
    def node(state: State) -> dict[str, Any]:
        raise ValueError("always")

    run = await recorded(chain(RETRY, a=node), tmp_path, n=0)
    more = RetryPolicy(max_attempts=5, initial_interval=0.001, jitter=False, retry_on=Exception)
    difference = (await verify(chain(more, a=node), run)).difference
    assert difference is not None
    assert (difference.node, difference.what) == ("a", "it is tried again now")


async def test_graphs_that_nodes_call_are_replayed_too(tmp_path: Path) -> None:
    def graph(by: int) -> Graph:
        inner = chain(add=lambda state: {"n": state["n"] + by}).compile()

        async def twice(state: State) -> dict[str, Any]:
            return {"items": [(await inner.ainvoke({"n": n}))["n"] for n in range(2)]}

        def in_a_thread(state: State) -> dict[str, Any]:
            return {"value": inner.invoke({"n": 5})["n"]}

        return chain(twice=twice, in_a_thread=in_a_thread)

    run = await recorded(graph(1), tmp_path, items=[])
    assert (await verify(graph(1), run)).is_same
    difference = (await verify(graph(2), run)).difference
    assert difference is not None
    assert (difference.step, difference.node) == (1, "add")


async def test_a_node_that_nobody_offers_a_capability_to_is_replayed(tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        try:
            return {"value": await current_step().invoke("no.such", {}, on_unresolved="fail")}
        except CapabilityNotFoundError:
            return {"value": "without"}

    run = await recorded(chain(a=node), tmp_path, n=0)
    assert run.terminal is not None
    assert run.terminal.payload["result"]["value"] == "without"
    assert (await verify(chain(a=node), run)).is_same
