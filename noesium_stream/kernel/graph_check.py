"""What STRICT mode asks of a graph before it runs (RFC-0003 §6, §8; RFC-1001 §12.3).

- Nodes that may run in the same superstep do not write the same key, unless it has a reducer: otherwise
  LangGraph fails the run when it happens, or the last write wins.
- Edges are static: where the graph may go is declared, and how often a node runs in a superstep too.

Which nodes may run together is told from the edges, on the safe side: all targets of plain edges of one
node; of a conditional edge one target where the path function returns one (its annotation or its code says
so), else any of them together; and whatever these reach side by side. A joining edge (`add_edge([a, b], c)`)
does not start `c` while a branch is still on its way to one of its sources; in a loop that leaves a join
early this may take two nodes apart that can meet. Deferred nodes meet deferred ones only.

What a node writes is told from its code and else from its return annotation (`node_code.py`). Where neither
tells, it may write every key: that is a problem only beside other nodes and for keys without a reducer, and
a TypedDict as return annotation solves it. A node's error handler writes in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final

from langgraph.channels import AnyValue, EphemeralValue, LastValue, UntrackedValue
from langgraph.channels.last_value import LastValueAfterFinish
from langgraph.graph import END, START
from langgraph.types import Command, Send

from noesium_stream.errors import GraphError
from noesium_stream.kernel.node_code import (
    Keys,
    function_of,
    goes_to_one,
    makes,
    returns_command,
    selects_one,
    written_keys,
)

_WITHOUT_REDUCER: Final = (LastValue, LastValueAfterFinish, AnyValue, EphemeralValue, UntrackedValue)


def require_strict(graph: Any) -> None:
    """Refuse a compiled graph that cannot run in STRICT mode.

    Raises:
        GraphError: names every problem (`problems`), each with nodes, key and what to do.
    """
    problems = check_strict(graph)
    if problems:
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise GraphError(
            f"The graph {getattr(graph, 'name', '')} cannot run in STRICT mode, for {count}:\n"
            + "\n".join(f"  - {problem}" for problem in problems),
            problems,
            hint="Or run it in PRAGMATIC mode.",
        )


def check_strict(graph: Any) -> list[str]:
    """Why a compiled graph, or a graph in it, cannot run in STRICT mode; empty if it can.

    One sentence for each problem; those of graphs in the graph begin with `NODE: `. The graph is the user's
    own, before the kernel wraps its nodes. Same order on every call.
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
    shape = _Shape(builder)
    for problem in (*shape.dynamic_edges(), *shape.conflicts()):
        yield prefix + problem
    for name, inner in sorted(graph.get_subgraphs(), key=lambda found: str(found[0])):
        yield from _problems(inner, f"{prefix}{name}: ", seen)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Targets of one node of which one is taken, or several."""

    targets: frozenset[str]
    several: bool


class _Shape:
    """A graph's nodes, keys and edges."""

    def __init__(self, builder: Any) -> None:
        self._specs = builder.nodes
        self._branches = builder.branches
        self._joins = {(frozenset(starts), end) for starts, end in builder.waiting_edges}
        self._edges = builder.edges
        self._open = frozenset(
            name for name, channel in builder.channels.items() if isinstance(channel, _WITHOUT_REDUCER)
        )
        self._choices = {name: self._choices_of(name) for name in (START, *self._specs)}
        self._targets = {
            name: frozenset().union(*(choice.targets for choice in choices))
            for name, choices in self._choices.items()
        }
        self._reach = self._reachable()

    def dynamic_edges(self) -> Iterator[str]:
        """Edges whose targets are not declared."""
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
        """Keys without a reducer that nodes of one superstep may write both."""
        writes = {name: self._writes(name) for name in self._specs}
        guesses: dict[str, tuple[set[str], set[str]]] = {}
        for one, other in sorted(self._together()):
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

    def _choices_of(self, name: str) -> list[_Choice]:
        """Where it goes: every choice is taken, and of each one target, or several."""
        found = [
            _Choice(frozenset({end}), several=False)
            for start, end in self._edges
            if start == name and end != END
        ]
        found += [_Choice(frozenset({end}), several=False) for starts, end in self._joins if name in starts]
        every = frozenset(self._specs)
        for branch in self._branches.get(name, {}).values():
            ends = every if branch.ends is None else frozenset(branch.ends.values())
            found.append(_Choice(ends - {END}, several=not selects_one(function_of(branch.path))))
        if name in self._specs and self._specs[name].ends:
            function = function_of(self._specs[name].runnable)
            found.append(
                _Choice(frozenset(self._specs[name].ends) - {END}, several=not goes_to_one(function))
            )
        return found

    def _reachable(self) -> dict[str, frozenset[str]]:
        reach = {name: set(targets) for name, targets in self._targets.items()}
        changed = True
        while changed:
            changed = False
            for found in reach.values():
                more = set().union(*(reach.get(name, ()) for name in found)) - found
                found |= more
                changed = changed or bool(more)
        return {name: frozenset(found) for name, found in reach.items()}

    def _together(self) -> set[tuple[str, str]]:
        """Pairs of nodes that may run in the same superstep."""
        todo = [pair for name in self._choices for pair in self._siblings(name)]
        known: set[frozenset[str]] = set()
        while todo:
            pair = todo.pop()
            if len(pair) < 2 or pair in known:
                continue
            known.add(pair)
            todo.extend(self._next(*pair))
        ordered = (tuple(sorted(pair)) for pair in known)
        return {(a, b) for a, b in ordered if self._specs[a].defer == self._specs[b].defer}

    def _siblings(self, name: str) -> Iterator[frozenset[str]]:
        choices = self._choices[name]
        for choice in choices:
            if choice.several:
                yield from (frozenset(pair) for pair in combinations(choice.targets, 2))
        for one, other in combinations(choices, 2):
            for a, b in product(one.targets, other.targets):
                if not (self._too_early(name, a, b) or self._too_early(name, b, a)):
                    yield frozenset((a, b))

    def _too_early(self, source: str, joined: str, beside: str) -> bool:
        """Whether `joined` waits for something that `beside` is, or is on its way to."""
        waits = [starts for starts, end in self._joins if end == joined and source in starts]
        if not waits or self._goes_without_join(source, joined):
            return False
        return all((starts - {source}) & (self._reach[beside] | {beside}) for starts in waits)

    def _next(self, one: str, other: str) -> Iterator[frozenset[str]]:
        """What may run together one superstep after `one` and `other` did."""
        deferred = self._specs[one].defer, self._specs[other].defer
        if deferred[0] != deferred[1]:
            waiting, going = (one, other) if deferred[0] else (other, one)
            yield from (frozenset((waiting, target)) for target in self._targets[going])
            return
        for a, b in product(self._targets[one], self._targets[other]):
            if not (self._held(one, a, other) or self._held(other, b, one)):
                yield frozenset((a, b))

    def _held(self, source: str, target: str, beside: str) -> bool:
        """Whether a joining edge from `source` still waits for something that `beside` is on its way to."""
        waits = [starts for starts, end in self._joins if end == target and source in starts]
        if not waits or self._goes_without_join(source, target):
            return False
        return all((starts - {source, beside}) & self._reach[beside] for starts in waits)

    def _goes_without_join(self, source: str, target: str) -> bool:
        branches = self._branches.get(source, {}).values()
        declared = source in self._specs and target in (self._specs[source].ends or ())
        routed = any(branch.ends is None or target in branch.ends.values() for branch in branches)
        return (source, target) in self._edges or declared or routed


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
