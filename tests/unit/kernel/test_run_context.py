"""Which steps share a commit, and what a crash repeats, under each `Durability`."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Annotated, Any, ClassVar, TypedDict

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph

from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import MemoryWritten
from noesium_stream.kernel import Durability, DurableGraph, current_step, kernel_node, run_context
from tests.support.journal import ListJournal
from tests.support.reading import PATIENCE_S

Graph = StateGraph[Any, Any, Any, Any]


class State(TypedDict, total=False):
    n: int
    items: Annotated[list[Any], operator.add]


async def run(graph: Graph, state: Any, journal: ListJournal, durability: Durability) -> Any:
    return await DurableGraph(graph.compile(), durability=durability).execute(journal, state)


@pytest.fixture(autouse=True)
def nothing_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that share their commits do not get to the log because time passes."""
    monkeypatch.setattr(run_context, "SHARE_S", 3600.0)


def add_one(state: State) -> dict[str, Any]:
    return {"n": state["n"] + 1}


@kernel_node()
def add_one_for_sure(state: State) -> dict[str, Any]:
    return add_one(state)


@kernel_node(deterministic=False)
def add_one_perhaps(state: State) -> dict[str, Any]:
    return add_one(state)


async def add_one_later(state: State) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"n": state["n"] + round(time.time() / time.time())}


def loop_of(node: Any) -> Graph:
    """The node 20 times, one after the other."""
    graph = StateGraph(State)
    graph.add_node("step", node)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda s: "step" if s["n"] < 20 else END, ["step", END])
    return graph


def add_one_and_remember(state: State) -> dict[str, Any]:
    current_step().emit(MemoryWritten(key="n", value=state["n"], value_type="int"))
    return add_one(state)


@pytest.mark.parametrize(
    "node", [add_one, add_one_for_sure, add_one_perhaps, add_one_later, add_one_and_remember]
)
async def test_steps_that_cause_nothing_share_commits_as_the_durability_says(node: Any) -> None:
    commits = {}
    for durability in Durability:
        journal = ListJournal()
        assert await run(loop_of(node), {"n": 0}, journal, durability) == {"n": 20, "items": []}
        commits[durability] = journal.commits
    assert commits[Durability.SYNC] == 20, "one for each step, the last one's with the end of the run"
    assert commits[Durability.ASYNC] < 10
    assert commits[Durability.EXIT] == 0, "the end of the run takes it along"


class Noted(DomainEvent):
    """A step has said something."""

    TYPE: ClassVar[str] = "sample.noted"


async def add_one_by_an_effect(state: State) -> dict[str, Any]:
    return {"n": await current_step().effect("add", add_one_to, state["n"])}


async def add_one_to(n: int) -> int:
    return n + 1


def add_one_and_emit(state: State) -> dict[str, Any]:
    current_step().emit(Noted())
    return add_one(state)


def add_one_and_return_an_event(state: State) -> dict[str, Any]:
    return {**add_one(state), "_pending_events": [Noted()]}


@pytest.mark.parametrize(
    "node",
    [add_one_by_an_effect, add_one_and_emit, add_one_and_return_an_event],
)
@pytest.mark.parametrize("durability", list(Durability))
async def test_a_step_that_causes_something_is_on_the_log_before_the_next_one(
    node: Any, durability: Durability
) -> None:
    journal = ListJournal()

    async def checked(state: State) -> Any:
        assert journal.types().count("kernel.node.completed") == state["n"]
        return await RunnableLambda(node).ainvoke(state)

    assert (await run(loop_of(checked), {"n": 0}, journal, durability))["n"] == 20


@pytest.mark.parametrize(
    ("durability", "repeated"),
    [
        (Durability.SYNC, ["last"]),
        (Durability.ASYNC, ["c", "d", "last"]),
        (Durability.EXIT, ["c", "d", "last"]),
    ],
)
async def test_a_crash_repeats_the_step_under_way_or_all_since_the_last_one_that_caused_something(
    durability: Durability, repeated: list[str]
) -> None:
    bodies: list[str] = []
    stands = asyncio.Event()

    def computing(name: str) -> Any:
        def node(state: State) -> dict[str, Any]:
            bodies.append(name)
            return {"items": [name]}

        return node

    async def outside() -> None:
        bodies.append("effect")

    async def causing(state: State) -> dict[str, Any]:
        await current_step().effect("outside", outside)
        return {"items": ["b"]}

    async def last(state: State) -> dict[str, Any]:
        bodies.append("last")
        stands.set()
        if bodies.count("last") == 1:
            await asyncio.Event().wait()
        return {"items": ["last"]}

    def build() -> Graph:
        graph = StateGraph(State)
        nodes = {"a": computing("a"), "b": causing, "c": computing("c"), "d": computing("d"), "last": last}
        for name, node in nodes.items():
            graph.add_node(name, node)
        for first, second in pairwise((START, *nodes)):
            graph.add_edge(first, second)
        return graph

    journal = ListJournal()
    crashing = asyncio.create_task(run(build(), {"items": []}, journal, durability))
    await asyncio.wait_for(stands.wait(), PATIENCE_S)
    crashing.cancel()
    await asyncio.wait([crashing])
    assert bodies == ["a", "effect", "c", "d", "last"]
    bodies[:] = ["last"]  # not to stand still again
    result = await run(build(), {"items": []}, ListJournal(journal.log), durability)
    assert bodies == ["last", *repeated]
    assert result["items"] == ["a", "b", "c", "d", "last"]


def one_step_and_a_slow_edge(edge: Callable[[State], Awaitable[str]]) -> Graph:
    graph = StateGraph(State)
    graph.add_node("step", add_one)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", edge, [END])
    return graph


async def test_a_step_is_sent_while_an_edge_decides_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_context, "HOLD_S", 0.0)
    journal = ListJournal()

    async def edge(state: State) -> str:
        async with asyncio.timeout(PATIENCE_S):
            while "kernel.node.completed" not in journal.types():
                await asyncio.sleep(0)
        return END

    assert (await run(one_step_and_a_slow_edge(edge), {"n": 0}, journal, Durability.SYNC))["n"] == 1


async def test_a_step_is_sent_when_its_run_is_stopped_before_the_next_one() -> None:
    journal, stands = ListJournal(), asyncio.Event()

    async def edge(state: State) -> str:
        stands.set()
        return await asyncio.Event().wait() and END

    stopping = asyncio.create_task(run(one_step_and_a_slow_edge(edge), {"n": 0}, journal, Durability.SYNC))
    await asyncio.wait_for(stands.wait(), PATIENCE_S)
    assert journal.types() == [], "it waits for what follows at once"
    stopping.cancel()
    await asyncio.wait([stopping])
    assert "kernel.node.completed" in journal.types()
