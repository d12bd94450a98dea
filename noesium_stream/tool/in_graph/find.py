"""The `ToolNode`s of a graph, wherever they are in it; a graph without one imports nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables import RunnableLambda, RunnableSequence
from langgraph._internal._runnable import RunnableCallable, RunnableSeq
from langgraph.pregel import Pregel
from langgraph.pregel._utils import get_function_nonlocals

from noesium_stream.kernel.graph.durable_node import DurableNode

if TYPE_CHECKING:
    from langgraph.prebuilt import ToolNode

_MODULE: Final = "langgraph.prebuilt.tool_node"


def tool_nodes(graph: Pregel[Any, Any, Any, Any]) -> list[tuple[str, ToolNode]]:
    """The `ToolNode`s of a compiled graph, each once, with the path of the first node that has it.

    They may be nodes, parts of a sequence, nodes of a subgraph, or what the code of a node names.
    """
    kind = getattr(sys.modules.get(_MODULE), "ToolNode", None)
    if kind is None:
        return []  # nobody can have made one
    found: dict[int, tuple[str, ToolNode]] = {}
    for path, part in _parts(graph, "", set()):
        if isinstance(part, kind):
            found.setdefault(id(part), (path, part))
    return list(found.values())


def _parts(graph: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    seen.add(id(graph))
    for name, node in graph.nodes.items():
        path = f"{prefix}{name}"
        for part in _within(getattr(node, "bound", None)):
            yield path, part
        for inner in getattr(node, "subgraphs", ()):
            if id(inner) not in seen and hasattr(inner, "nodes"):
                yield from _parts(inner, f"{path}.", seen)


def _within(bound: Any) -> Iterator[Any]:
    """What a node runs, and what that is made of, as LangGraph looks for the graphs in a node."""
    parts, seen = [bound], set()
    while parts:
        part = parts.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, DurableNode):
            parts.append(part.bound)
        elif isinstance(part, RunnableSequence | RunnableSeq):
            parts.extend(part.steps)
        elif isinstance(part, RunnableLambda):
            parts.extend(part.deps)
        elif isinstance(part, RunnableCallable):
            parts.extend(_named_by(part))


def _named_by(part: RunnableCallable) -> Iterator[Any]:
    for function in (part.func, part.afunc):
        if function is not None:
            for value in get_function_nonlocals(function):
                yield getattr(value, "__self__", value)
