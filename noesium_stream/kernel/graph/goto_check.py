"""Checks of a node's destinations: LangGraph ignores an unknown node in silence, and the run just ends.

The targets of a conditional edge are checked when it has chosen, those of a `Command` when the node returns
(`node_values`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from langgraph._internal._runnable import RunnableCallable
from langgraph.constants import START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send

from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.state.node_values import Targets, check_targets


def targets_of(graph: Any) -> Targets:
    """The nodes of a graph that its nodes may name as targets."""
    return frozenset(graph.nodes) - {START} if isinstance(graph, CompiledStateGraph) else None


def watched(writers: Iterable[Any], known: Targets, node: str) -> list[Any]:
    """A node's writers; within runs, conditional edges among them refuse unknown targets.

    Raises (when they choose):
        KernelError: names the node, the target, and the existing nodes.
    """
    return [_watched(writer, known, node) for writer in writers]


def _watched(writer: Any, known: Targets, node: str) -> Any:
    inner = writer.kwargs.get("writer") if isinstance(writer, RunnableCallable) else None
    if inner is None or isinstance(inner, _Chosen):
        return writer
    copied = copy.copy(writer)
    copied.kwargs = {**writer.kwargs, "writer": _Chosen(inner, known, node)}
    return copied


class _Chosen:
    """Checks the destinations of a conditional edge; outside runs it does nothing."""

    def __init__(self, inner: Callable[..., Any], known: Targets, node: str) -> None:
        self._inner = inner
        self._known = known
        self._who = "The edge from the start" if node == START else f"The conditional edge of the node {node}"

    def __call__(self, destinations: Sequence[str | Send], static: bool = False) -> Any:
        if not static and current_run() is not None:
            check_targets(destinations, self._known, self._who)
        return self._inner(destinations, static)
