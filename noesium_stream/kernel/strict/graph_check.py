"""Requirements of STRICT mode on a graph before it runs (RFC-0003 §6, §8; RFC-1001 §12.3).

- Nodes that may run in the same superstep do not write the same key, unless it has a reducer: otherwise
  LangGraph fails the run when it happens, or the last write wins.
- Edges are static: targets are declared, and so is the number of executions of a node in a superstep.

The edges decide which nodes may run together (`concurrent_nodes.py`). A conditional edge counts with one
target at a time if the path function returns one (its annotation or its code says so), else with any
combination.

The keys that a node writes come from its code, else from its return annotation (`written_keys.py`). If
neither is conclusive, it may write every key. That is a problem only beside other nodes and for keys without
a reducer, and a TypedDict as return annotation solves it. A node's error handler writes in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from langgraph.channels import AnyValue, EphemeralValue, LastValue, UntrackedValue
from langgraph.channels.last_value import LastValueAfterFinish
from langgraph.graph import END, START
from langgraph.types import Command, Send

from noesium_stream.errors import GraphError
from noesium_stream.kernel.decorators import node_meta
from noesium_stream.kernel.strict.concurrent_nodes import Choice, Edges, together
from noesium_stream.kernel.strict.written_keys import (
    Keys,
    function_of,
    goes_to_one,
    makes,
    returns_command,
    selects_one,
    written_keys,
)

_UNNAMED: Final = "LangGraph"
"""LangGraph's name for a graph that was compiled without one."""
_WITHOUT_REDUCER: Final = (LastValue, LastValueAfterFinish, AnyValue, EphemeralValue, UntrackedValue)


def require_strict(graph: Any) -> None:
    """Refuse a compiled graph that cannot run in STRICT mode.

    Raises:
        GraphError: names every problem (`problems`), each with nodes, key and remedy.
    """
    problems = check_strict(graph)
    if problems:
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        name = getattr(graph, "name", "")
        which = "The graph" if name in ("", _UNNAMED) else f"The graph {name}"
        raise GraphError(
            f"{which} cannot run in STRICT mode, for {count}:\n"
            + "\n".join(f"  - {problem}" for problem in problems),
            problems,
            hint="Or run it in PRAGMATIC mode.",
        )


def check_strict(graph: Any) -> list[str]:
    """The reasons why a compiled graph, or a graph in it, cannot run in STRICT mode; empty if it can.

    One sentence for each problem; problems of graphs in the graph begin with `NODE: `. The graph is the
    user's own, before the kernel wraps its nodes. The order is the same on every call.
    """
    return list(dict.fromkeys(_problems(graph, "", set())))


def _problems(graph: Any, prefix: str, seen: set[int]) -> Iterator[str]:
    if id(graph) in seen:
        return
    seen.add(id(graph))
    builder = getattr(graph, "builder", None)
    if builder is None or not hasattr(builder, "waiting_edges"):
        yield f"{prefix}what it does cannot be told before it runs: build it as a StateGraph."
        return
    for name, node in builder.nodes.items():
        if node_meta(node.runnable).compensation is not None:
            yield (
                f"{prefix}the node {name} is undone by a function of its own (compensate=…), a direct "
                "effect: let the agent that does a thing offer to undo it, and call that."
            )
    shape = _Shape(builder)
    for problem in (*shape.dynamic_edges(), *shape.conflicts()):
        yield prefix + problem
    for name, inner in sorted(graph.get_subgraphs(), key=lambda found: str(found[0])):
        yield from _problems(inner, f"{prefix}{name}: ", seen)


class _Shape:
    """A graph's nodes, keys and edges."""

    def __init__(self, builder: Any) -> None:
        self._specs = builder.nodes
        self._branches = builder.branches
        self._joins = {(tuple(sorted(starts)), end) for starts, end in builder.waiting_edges if end != END}
        self._edges = builder.edges
        self._open = frozenset(
            name for name, channel in builder.channels.items() if isinstance(channel, _WITHOUT_REDUCER)
        )

    def dynamic_edges(self) -> Iterator[str]:
        """Edges without declared targets."""
        for source, branches in sorted(self._branches.items()):
            for name, branch in sorted(branches.items()):
                place = f"the conditional edge {name} after {_shown(source)}"
                if makes(function_of(branch.path), Send):
                    yield f"{place} makes Send, so that the graph does not say how often a node runs: {_SEND}"
                elif branch.ends is None:
                    yield f"{place} may go anywhere: {_PATH}"
        for name, spec in sorted(self._specs.items()):
            yield from self._dynamic_node(name, spec)

    def _dynamic_node(self, name: str, spec: Any) -> Iterator[str]:
        function = function_of(spec.runnable)
        if _is_graph(spec.runnable):
            return
        if makes(function, Send):
            yield f"{name} makes Send, so that the graph does not say how often a node runs: {_SEND}"
        if makes(function, Command, "graph"):
            yield f"{name} sends a Command to another graph: {_PARENT}"
        elif not spec.ends and (makes(function, Command, "goto") or returns_command(function)):
            yield f"{name} goes where its Command says, which is not declared: {_GOTO}"

    def conflicts(self) -> Iterator[str]:
        """Keys without a reducer that two nodes of one superstep may write."""
        writes = {name: self._writes(name) for name in self._specs}
        guesses: dict[str, tuple[set[str], set[str]]] = {}
        for one, other in sorted(together(self._edges_of())):
            first, second = writes[one], writes[other]
            keys = _overlap(first, second, self._open)
            if not keys:
                continue
            if first is not None and second is not None:
                yield (
                    f"{one} and {other} may run in the same superstep and both write {_list(keys)} without a "
                    "reducer: declare Annotated[TYPE, reducer] in the state, or let one follow the other."
                )
            for name, partner, own in ((one, other, first), (other, one, second)):
                if own is None:
                    beside, guessed = guesses.setdefault(name, (set(), set()))
                    beside.add(partner)
                    guessed |= keys
        for name, (beside, perhaps) in sorted(guesses.items()):
            yield (
                f"{name} may run in the same superstep as {_list(beside)}, and its code does not tell what "
                f"it writes, perhaps {_list(perhaps)} without a reducer: annotate its return type with a "
                "TypedDict of the keys that it writes, or declare Annotated[TYPE, reducer] in the state."
            )

    def _writes(self, name: str) -> Keys:
        spec = self._specs[name]
        if _is_graph(spec.runnable):
            channels = spec.runnable.output_channels
            keys: Keys = frozenset([channels] if isinstance(channels, str) else channels)
        else:
            keys = written_keys(function_of(spec.runnable))
        handler = spec.error_handler_node
        if handler is None or keys is None or handler not in self._specs:
            return keys
        instead = self._writes(handler)
        return None if instead is None else keys | instead

    def _edges_of(self) -> Edges:
        return Edges(
            start=START,
            choices={name: self._choices_of(name) for name in (START, *self._specs)},
            joins=[(frozenset(starts), end) for starts, end in sorted(self._joins)],
            deferred=frozenset(name for name, spec in self._specs.items() if spec.defer),
        )

    def _choices_of(self, name: str) -> list[Choice]:
        found = [
            Choice(frozenset({end}), sure=True) for start, end in self._edges if start == name and end != END
        ]
        every = frozenset(self._specs)
        for branch in self._branches.get(name, {}).values():
            ends = every if branch.ends is None else frozenset(branch.ends.values())
            one = selects_one(function_of(branch.path))
            found.append(
                Choice(ends - {END}, several=not one, sure=branch.ends is not None and END not in ends)
            )
        spec = self._specs.get(name)
        if spec is not None and spec.ends:
            found.append(
                Choice(frozenset(spec.ends) - {END}, several=not goes_to_one(function_of(spec.runnable)))
            )
        return found


_PARENT: Final = "return an update, and let the edges of that graph decide."
_SEND: Final = "give each part a node of its own, or take the parts one after another in a loop."
_PATH: Final = "give add_conditional_edges a path_map, or annotate the path function -> Literal[...]."
_GOTO: Final = "annotate the node -> Command[Literal[...]], or give add_node destinations."


def _is_graph(runnable: Any) -> bool:
    return hasattr(runnable, "output_channels") and hasattr(runnable, "nodes")


def _overlap(first: Keys, second: Keys, without_reducer: frozenset[str]) -> frozenset[str]:
    keys = without_reducer
    for part in (first, second):
        keys = keys if part is None else keys & part
    return keys


def _list(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:-1]) + " and " + ordered[-1] if len(ordered) > 1 else ordered[0]


def _shown(name: str) -> str:
    return "the start" if name == START else name
