"""Where a node goes to: LangGraph passes over a node that the graph does not have, and the run just ends.

A `Command`'s targets are looked at when the node returns, those of a conditional edge when it has chosen.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from langgraph._internal._runnable import RunnableCallable
from langgraph.constants import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Send

from noesium_stream.errors import KernelError
from noesium_stream.kernel.run_context import current_run

Targets = frozenset[str] | None
"""Names of the nodes that there are to go to; None where that cannot be known."""


def targets_of(graph: Any) -> Targets:
    """The nodes of a graph that a node of it can name."""
    return frozenset(graph.nodes) - {START} if isinstance(graph, CompiledStateGraph) else None


def check_goto(value: Any, known: Targets, node: str) -> None:
    """Refuse a node's return value that names a node which the graph does not have.

    Raises:
        KernelError: names the node, the target, and what there is.
    """
    if isinstance(value, list | tuple):
        for item in value:
            check_goto(item, known, node)
    elif isinstance(value, Command) and value.graph is None:
        goto = value.goto
        _check([goto] if isinstance(goto, str | Send) else goto, known, f"The node {node}")


def watched(writers: Iterable[Any], known: Targets, node: str) -> list[Any]:
    """A node's writers, of which those that are conditional edges refuse unknown targets within runs.

    Raises (when they choose):
        KernelError: as `check_goto`.
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
    """Takes the destinations of a conditional edge; outside runs it is what it was."""

    def __init__(self, inner: Callable[..., Any], known: Targets, node: str) -> None:
        self._inner = inner
        self._known = known
        self._who = "The edge from the start" if node == START else f"The conditional edge of the node {node}"

    def __call__(self, destinations: Sequence[str | Send], static: bool = False) -> Any:
        if not static and current_run() is not None:
            _check(destinations, self._known, self._who)
        return self._inner(destinations, static)


def _check(destinations: Iterable[Any], known: Targets, who: str) -> None:
    if known is None:
        return
    for target in destinations:
        name = target.node if isinstance(target, Send) else target
        if name in known or (name == END and not isinstance(target, Send)):
            continue
        near = difflib.get_close_matches(str(name), sorted(known), 1)
        raise KernelError(
            f"{who} goes to {name!r}, which the graph does not have.",
            hint=f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(sorted(known))}.",
        )
