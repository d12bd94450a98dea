"""The graph of agents whose runs call one tool: one node, whose state names the tool and its arguments."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph


class ToolCallState(TypedDict, total=False):
    """A call of a tool, and its result."""

    tool: str
    arguments: dict[str, Any]
    result: Any


def call_graph(call: Any) -> StateGraph[Any, Any, Any, Any]:
    """The graph of one node, an async function from `ToolCallState` to a part of it."""
    graph = StateGraph(ToolCallState)
    graph.add_node("call", call)
    graph.add_edge(START, "call")
    graph.add_edge("call", END)
    return graph
