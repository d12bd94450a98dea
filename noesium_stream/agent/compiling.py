"""Compilation of graphs that users wrote: an error of theirs is told as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore

from noesium_stream.errors import AgentLoadError, NoesiumError, brief
from noesium_stream.kernel.failure_location import where_of

AnyGraph = StateGraph[Any, Any, Any, Any] | CompiledStateGraph[Any, Any, Any, Any]


def compiled(
    name: str, build: Callable[[], AnyGraph], store: BaseStore | None = None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Build and compile a graph.

    Args:
        name: how the user knows the graph.
        build: returns it, compiled or not.
        store: what its nodes get as LangGraph's store, if it has none of its own.

    Raises:
        AgentLoadError: it cannot be built, or LangGraph refuses to compile it.
    """
    try:
        graph = build()
    except NoesiumError:
        raise
    except Exception as error:
        raise AgentLoadError(
            f"The graph of {name} cannot be built: {type(error).__name__}: {brief(error)}",
            hint=f"At {where_of(error)}.",
        ) from error
    if isinstance(graph, CompiledStateGraph):
        return graph if graph.store is not None else graph.copy({"store": store})
    try:
        return graph.compile(store=store)
    except Exception as error:
        raise AgentLoadError(
            f"The graph {name} does not compile: {brief(error)}",
            hint="Mend its nodes and edges: LangGraph compiles a graph before anything runs.",
        ) from error
