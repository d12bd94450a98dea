"""A node's calls of graphs are told apart by their input: in another order, after an answer or a failure."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, interrupt

from noesium_stream.errors import ReplayDivergenceError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel import Durability, DurableGraph
from noesium_stream.testing import Rehearsal
from tests.support.journal import ListJournal

Graph = StateGraph[Any, Any, Any, Any]


class State(TypedDict, total=False):
    n: int
    value: Any
    items: Annotated[list[Any], operator.add]


def one(name: str, node: Callable[..., Any], **options: Any) -> Graph:
    graph = StateGraph(State)
    graph.add_node(name, node, **options)
    graph.add_edge(START, name)
    return graph


async def execute(graph: Graph, journal: ListJournal) -> Any:
    return await DurableGraph(graph.compile(), durability=Durability.SYNC).execute(journal, {"items": []})


class Squares:
    """A node that calls a graph for 2 and for 3 at once; `first` gets there first."""

    def __init__(self, first: int, numbers: tuple[int, ...] = (2, 3)) -> None:
        self.squared: list[int] = []

        async def square(state: State) -> dict[str, Any]:
            self.squared.append(state["n"])
            return {"value": state["n"] ** 2}

        called = one("square", square).compile()

        async def call(state: State) -> dict[str, Any]:
            begun = asyncio.Event()

            async def square_of(n: int) -> Any:
                if n != first:
                    await begun.wait()
                try:
                    return (await called.ainvoke({"n": n}))["value"]
                finally:
                    begun.set()

            return {"items": await asyncio.gather(*map(square_of, numbers))}

        self.graph = one("call", call)


def until(journal: ListJournal, wanted: Callable[[EventEnvelope], bool]) -> ListJournal:
    """What is on the log before the first event that is wanted."""
    index = next(index for index, event in enumerate(journal.log) if wanted(event))
    return ListJournal(journal.log[:index])


def is_done(node: str) -> Callable[[EventEnvelope], bool]:
    return lambda e: e.event_type == "kernel.node.completed" and e.payload["node"] == node


@pytest.mark.parametrize("before", [2, 3])
@pytest.mark.parametrize("after", [2, 3])
async def test_calls_that_come_in_another_order_on_replay_get_their_own_results(
    before: int, after: int
) -> None:
    journal = ListJournal()
    assert (await execute(Squares(before).graph, journal))["items"] == [4, 9]
    resumed = Squares(after)
    assert (await execute(resumed.graph, until(journal, is_done("call"))))["items"] == [4, 9]
    assert resumed.squared == []


@pytest.mark.parametrize("before", [2, 3])
@pytest.mark.parametrize("after", [2, 3])
async def test_a_call_that_is_not_on_the_log_takes_nothing_from_one_that_is(before: int, after: int) -> None:
    journal = ListJournal()
    await execute(Squares(before).graph, journal)
    first = next(index for index, event in enumerate(journal.log) if is_done("square")(event))
    resumed = Squares(after)
    assert (await execute(resumed.graph, ListJournal(journal.log[: first + 1])))["items"] == [4, 9]
    assert resumed.squared == [5 - before]


async def test_the_same_call_twice_is_two_calls() -> None:
    journal = ListJournal()
    squares = Squares(2, (2, 2))
    assert (await execute(squares.graph, journal))["items"] == [4, 4]
    assert squares.squared == [2, 2]
    resumed = Squares(2, (2, 2))
    assert (await execute(resumed.graph, until(journal, is_done("call"))))["items"] == [4, 4]
    assert resumed.squared == []


async def test_a_call_with_another_input_is_a_divergence() -> None:
    journal = ListJournal()
    await execute(Squares(2, (2,)).graph, journal)
    with pytest.raises(ReplayDivergenceError, match=r"begins with .*square.* with another input"):
        await execute(Squares(3, (3,)).graph, until(journal, is_done("call")))


async def test_a_history_that_does_not_say_the_input_is_replayed_by_number() -> None:
    journal = ListJournal()
    await execute(Squares(2).graph, journal)
    log = until(journal, is_done("call")).log
    old = [e.replace(payload={k: v for k, v in e.payload.items() if k != "input_hash"}) for e in log]
    resumed = Squares(2)
    assert (await execute(resumed.graph, ListJournal(old)))["items"] == [4, 9]
    assert resumed.squared == []


async def test_a_body_that_begins_again_with_an_answer_makes_the_same_calls() -> None:
    bodies: Counter[str] = Counter()

    def inner(state: State) -> dict[str, Any]:
        bodies["inner"] += 1
        return {"value": state["n"] + 1}

    called = one("inner", inner).compile()

    async def outer(state: State) -> dict[str, Any]:
        bodies["outer"] += 1
        found = (await called.ainvoke({"n": 1}))["value"]
        return {"items": [found, interrupt("Go on?"), interrupt("Sure?")]}

    async with Rehearsal(one("outer", outer)) as rehearsal:
        run = await rehearsal.start({"items": []})
        await run.answer("yes")
        await run.answer("sure")
        assert (await run.result())["items"] == [2, "yes", "sure"]
    assert bodies == {"inner": 1, "outer": 3}


@pytest.mark.parametrize("dies", [None, 1, 2])
async def test_a_graph_that_failed_is_called_anew_by_its_node_s_next_attempt(dies: int | None) -> None:
    tries: Counter[str] = Counter()

    def flaky(state: State) -> dict[str, Any]:
        tries["flaky"] += 1
        if tries["flaky"] < 3:
            raise ConnectionError("not yet")
        return {"value": "at last"}

    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False)
    graph = StateGraph(State)
    graph.add_node("sub", one("flaky", flaky).compile(), retry_policy=policy)
    graph.add_edge(START, "sub")
    async with Rehearsal(graph) as rehearsal:
        if dies is not None:
            rehearsal.crash_when(_retried("sub", dies), reaches_log=True)
        run = await rehearsal.start({"items": []})
        assert (await run.result())["value"] == "at last"
        assert rehearsal.crashes == (dies is not None)
    assert tries == {"flaky": 3}


def _retried(node: str, attempt: int) -> Callable[[EventEnvelope], bool]:
    def when(event: EventEnvelope) -> bool:
        failed = event.event_type == "kernel.node.failed" and event.payload["node"] == node
        return failed and event.payload["attempt"] == attempt

    return when
