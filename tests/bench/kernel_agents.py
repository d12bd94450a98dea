"""The graphs of the kernel's bench, as agents: a chain, a growing conversation, a counter."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent

Graph = StateGraph[Any, Any, Any, Any]


class Count(TypedDict, total=False):
    n: int


class Talk(TypedDict, total=False):
    messages: Annotated[list[dict[str, str]], operator.add]


async def _plus_one(state: Count) -> Count:
    return {"n": state["n"] + 1}


def chain(nodes: int) -> Graph:
    """`nodes` trivial nodes, one after the other."""
    graph: Graph = StateGraph(Count)
    names = [f"node{number:03d}" for number in range(nodes)]
    for name in names:
        graph.add_node(name, _plus_one)
    for source, target in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(source, target)
    return graph


def counter(steps: int, reached: asyncio.Event | None = None) -> Graph:
    """One node, run `steps` times; with `reached` it stops there: sets it, and waits for ever."""

    async def tick(state: Count) -> Count:
        if reached is not None and state["n"] == steps:
            reached.set()
            await asyncio.Event().wait()
        return {"n": state["n"] + 1}

    graph: Graph = StateGraph(Count)
    graph.add_node("tick", tick)
    graph.add_edge(START, "tick")
    last = steps if reached is None else steps + 1
    graph.add_conditional_edges("tick", lambda state: END if state["n"] >= last else "tick")
    return graph


def conversation(turns: int, size: int) -> Graph:
    """`turns` steps that append two messages of `size` bytes each."""

    async def turn(state: Talk) -> Talk:
        number = len(state["messages"])
        return {"messages": [_message("user", number, size), _message("assistant", number + 1, size)]}

    graph: Graph = StateGraph(Talk)
    graph.add_node("turn", turn)
    graph.add_edge(START, "turn")
    graph.add_conditional_edges("turn", lambda state: END if len(state["messages"]) >= 2 * turns else "turn")
    return graph


def _message(role: str, number: int, size: int) -> dict[str, str]:
    text = f"message {number} "
    return {"role": role, "content": (text * (size // len(text) + 1))[:size]}


def agent(graph: Graph, name: str, supersteps: int) -> type[BaseGraphicAgent]:
    """An agent that runs it; its result is empty, so that a journal holds the steps and not the sum again."""

    class Measured(BaseGraphicAgent):
        agent_type = name
        max_supersteps = supersteps + 10

        def get_state_class(self) -> type[Any]:
            return dict

        def _build_graph(self) -> Graph:
            return graph

        def result(self, state: dict[str, Any]) -> Any:
            return None

    return Measured
