"""Fingerprints that distinguish the versions of a graph (RFC-0003 §13)."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from langgraph.channels import BinaryOperatorAggregate
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.errors import KernelError, brief
from noesium_stream.event.standard import GraphRef

Graph = CompiledStateGraph[Any, Any, Any, Any]


def graph_ref(graph: Graph, graph_id: str, version: str) -> GraphRef:
    """The reference that runs are pinned to, with the fingerprint of the graph.

    The fingerprint covers nodes, edges, channels, reducers and subgraphs, but not the code of nodes:
    `noesium verify` tells whether that has changed.

    Raises:
        KernelError: a reducer cannot be distinguished from another one.
    """
    text = json.dumps(graph_shape(graph), sort_keys=True)
    return GraphRef(
        graph_id=graph_id, version=version, fingerprint=hashlib.sha256(text.encode()).hexdigest()[:32]
    )


def graph_shape(graph: Graph) -> dict[str, Any]:
    """The parts of a graph that its fingerprint covers, as JSON types, the same in every process.

    Raises:
        KernelError: LangGraph cannot draw it, or a reducer cannot be distinguished from another one.
    """
    try:
        drawn = graph.get_graph()
    except Exception as error:
        raise KernelError(
            f"The graph {graph.name} cannot be drawn, and so not told from another one: {brief(error)}",
            hint="Declare its state as a TypedDict, a dataclass or a pydantic model.",
        ) from error
    channels = graph.channels.items()
    inner = [(name, inner) for name, inner in graph.get_subgraphs() if isinstance(inner, CompiledStateGraph)]
    return {
        "nodes": sorted(drawn.nodes),
        "edges": sorted([edge.source, edge.target, str(edge.data), edge.conditional] for edge in drawn.edges),
        "channels": sorted(
            [name, type(channel).__name__, _reducer(name, channel)] for name, channel in channels
        ),
        "subgraphs": {name: graph_shape(compiled) for name, compiled in inner},
    }


def _reducer(name: str, channel: Any) -> str:
    if not isinstance(channel, BinaryOperatorAggregate):
        return ""
    function: Callable[..., Any] = channel.operator
    if isinstance(function, partial):
        given = [list(function.args), function.keywords]
        return f"{_named(name, function.func)}{json.dumps(given, sort_keys=True, default=repr)}"
    return _named(name, function)


def _named(name: str, function: Callable[..., Any]) -> str:
    qualname = getattr(function, "__qualname__", None)
    if qualname is None:
        raise KernelError(
            f"The reducer of {name} ({type(function).__name__}) cannot be told from another one.",
            hint="Give a function with a name, so that a run knows the graph that it began with.",
        )
    if "<lambda>" not in qualname:
        module = "operator" if getattr(operator, qualname, None) is function else function.__module__
        return f"{module}:{qualname}"
    return _code(function)


def _code(function: Callable[..., Any]) -> str:
    """The byte code of a lambda, which has no name: it is distinct within one minor version of Python."""
    code = function.__code__
    constants = [repr(value) for value in code.co_consts]
    text = json.dumps([code.co_code.hex(), list(code.co_names), list(code.co_varnames), constants])
    return f"lambda:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
