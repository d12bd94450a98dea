"""STRICT mode in force: what a run refuses, with the line, and what it allows."""

from __future__ import annotations

import itertools
import operator
import random
import time
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.config import ExecutionMode
from noesium_stream.errors import GraphError, NondeterminismError, StrictModeError
from noesium_stream.kernel import DurableGraph, current_step, kernel_node
from tests.support.journal import ListJournal


class State(TypedDict, total=False):
    n: int
    items: Annotated[list[Any], operator.add]


def one(node: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return graph


async def run(node: Any, mode: ExecutionMode = ExecutionMode.STRICT) -> Any:
    return await DurableGraph(one(node).compile(), mode=mode).execute(ListJournal(), {"n": 1, "items": []})


def reads_the_clock(state: State) -> dict[str, Any]:
    return {"n": int(time.time())}


async def test_reading_the_clock_names_the_line() -> None:
    line = reads_the_clock.__code__.co_firstlineno + 1
    with pytest.raises(NondeterminismError, match=rf"test_guard_in_runs\.py.*{line}"):
        await run(reads_the_clock)


async def test_in_pragmatic_mode_nothing_is_watched() -> None:
    assert (await run(reads_the_clock, ExecutionMode.PRAGMATIC))["n"] > 1


async def test_a_node_that_is_not_the_same_twice_is_found() -> None:
    numbers = itertools.count()
    with pytest.raises(StrictModeError, match=r"two executions differ: delta\.n: 0 then 1"):
        await run(lambda state: {"n": next(numbers)})


async def test_a_node_that_changes_its_input_in_place_is_the_same_twice_or_found() -> None:
    async def adds(state: State) -> dict[str, Any]:
        state["items"].append(1)
        return {"n": len(state["items"])}

    assert (await run(adds))["n"] == 1


async def test_a_node_that_says_so_may_draw_lots_and_runs_once() -> None:
    bodies: list[int] = []

    @kernel_node(deterministic=False, entropy_sources=["lots"])
    async def draws(state: State) -> dict[str, Any]:
        bodies.append(1)
        return {"n": round(current_step().random())}

    assert (await run(draws))["n"] in (0, 1)
    assert len(bodies) == 1


async def test_chance_is_refused() -> None:
    async def draws(state: State) -> dict[str, Any]:
        return {"n": random.randrange(10)}

    with pytest.raises(NondeterminismError, match="random"):
        await run(draws)


async def test_a_direct_effect_is_refused() -> None:
    async def calls(state: State) -> dict[str, Any]:
        return {"n": await current_step().effect("outside", lambda: 1)}

    with pytest.raises(StrictModeError, match="calls outside by itself") as caught:
        await run(calls)
    assert "step.invoke" in str(caught.value.hint)


async def test_time_ids_and_numbers_of_the_step_are_the_same_in_both_executions() -> None:
    async def asks(state: State) -> dict[str, Any]:
        step = current_step()
        return {"items": [step.now().isoformat(), step.uuid(), step.random()]}

    assert len((await run(asks))["items"]) == 3


def test_branches_that_write_the_same_key_are_refused_when_the_graph_is_prepared() -> None:
    graph = StateGraph(State)
    graph.add_node("left", lambda s: {"n": 1})
    graph.add_node("right", lambda s: {"n": 2})
    graph.add_edge(START, "left")
    graph.add_edge(START, "right")
    with pytest.raises(GraphError, match=r"left.*right"):
        DurableGraph(graph.compile(), mode=ExecutionMode.STRICT)
    DurableGraph(graph.compile(), mode=ExecutionMode.SANDBOX)


def undo(delta: dict[str, Any]) -> None:
    """Never called here."""


def test_a_node_that_is_undone_by_a_function_is_refused() -> None:
    @kernel_node(compensate=undo)
    def node(state: State) -> State:
        return {"n": 1}

    with pytest.raises(GraphError, match="the node node is undone by a function of its own"):
        DurableGraph(one(node).compile(), mode=ExecutionMode.STRICT)
