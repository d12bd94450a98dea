"""Which changes of a graph its fingerprint sees."""

from __future__ import annotations

import operator
from functools import partial
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream.errors import KernelError
from noesium_stream.kernel import graph_ref


def newest(old: Any, new: Any) -> Any:
    return new


class Added(TypedDict):
    items: Annotated[list[int], operator.add]


class Replaced(TypedDict):
    items: Annotated[list[int], newest]


class Joined(TypedDict):
    items: Annotated[list[int], lambda old, new: old + new]


class Prefixed(TypedDict):
    items: Annotated[list[int], lambda old, new: new + old]


class Keep:
    def __call__(self, old: Any, new: Any) -> Any:
        return old


class Partial(TypedDict):
    items: Annotated[list[int], partial(newest)]


class Nameless(TypedDict):
    items: Annotated[list[int], Keep()]


def fingerprint(
    state: Any = Added, *, name: str = "b", edge: bool = True, inner: Any = None, body: Any = dict
) -> str:
    graph = StateGraph(state)
    graph.add_node("a", lambda s: body())
    graph.add_node(name, inner or (lambda s: {}))
    graph.add_edge(START, "a")
    graph.add_edge("a", name)
    if edge:
        graph.add_edge(name, END)
    else:
        graph.add_conditional_edges(name, lambda s: END, ["a", END])
    return graph_ref(graph.compile(), "sample", "1.0.0").fingerprint


def subgraph(name: str) -> Any:
    inner = StateGraph(Added)
    inner.add_node(name, lambda s: {})
    inner.add_edge(START, name)
    return inner.compile()


def test_nodes_edges_reducers_and_subgraphs_make_the_fingerprint_and_bodies_do_not() -> None:
    prints = [
        fingerprint(),
        fingerprint(name="c"),
        fingerprint(edge=False),
        fingerprint(Replaced),
        fingerprint(Joined),
        fingerprint(Prefixed),
        fingerprint(Partial),
        fingerprint(inner=subgraph("x")),
        fingerprint(inner=subgraph("y")),
    ]
    assert len(set(prints)) == len(prints)
    assert prints[0] == fingerprint(body=list)
    assert fingerprint(Joined) == fingerprint(Joined)


def test_a_reducer_without_a_name_is_refused() -> None:
    with pytest.raises(KernelError, match=r"reducer of items \(Keep\) cannot be told from another one"):
        fingerprint(Nameless)
