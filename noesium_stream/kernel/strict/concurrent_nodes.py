"""The nodes of a graph that may run in the same superstep, derived from its edges.

The search walks through all possible successions of supersteps, as LangGraph would take them: each choice of
a conditional edge is taken once, joins remember which nodes have arrived, deferred nodes wait until nothing
else is left. If there are too many (a graph that forks widely into branches with choices), the answer is
computed pair by pair instead. Joins and deferred nodes then count as if they did not wait, so that too many
pairs are reported and none is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Final

LIMIT: Final = 20_000
_WIDEST: Final = 6

Pair = tuple[str, str]
_Set = frozenset[str]
_EMPTY: Final[_Set] = frozenset()


@dataclass(frozen=True, slots=True)
class Choice:
    """Targets of one node of which at most one is taken (`several`: any number); `sure`: one certainly is."""

    targets: _Set
    several: bool = False
    sure: bool = False

    def options(self) -> list[_Set]:
        """All possible outcomes of the choice."""
        if self.several:
            sizes = range(len(self.targets) + 1)
            return [frozenset(taken) for size in sizes for taken in combinations(sorted(self.targets), size)]
        return [frozenset({target}) for target in self.targets] + ([] if self.sure else [_EMPTY])


@dataclass(frozen=True, slots=True)
class Edges:
    """The edges of a graph: every choice of a node is made; a join starts its target after all sources."""

    start: str
    choices: Mapping[str, Sequence[Choice]]
    joins: Sequence[tuple[_Set, str]] = ()
    deferred: _Set = field(default=_EMPTY)


def together(edges: Edges, limit: int = LIMIT) -> set[Pair]:
    """Pairs of nodes, each sorted, that may run in the same superstep; `limit` bounds the supersteps."""
    wide = any(
        choice.several and len(choice.targets) > _WIDEST for each in edges.choices.values() for choice in each
    )
    try:
        return _by_pairs(edges) if wide else _by_steps(edges, limit)
    except _TooManyError:
        return _by_pairs(edges)


class _TooManyError(Exception):
    """There are more supersteps than the limit."""


_State = tuple[_Set, _Set, tuple[_Set, ...]]
"""Nodes that run, deferred nodes that wait, and the arrived nodes of each join."""


def _by_steps(edges: Edges, limit: int) -> set[Pair]:
    nobody = (_EMPTY,) * len(edges.joins)
    todo = [_state(edges, targets, _EMPTY, nobody) for targets in _targets(edges, [edges.start], limit)]
    known: set[_State] = set()
    pairs: set[Pair] = set()
    while todo:
        state = todo.pop()
        if state in known:
            continue
        known.add(state)
        if len(known) > limit:
            raise _TooManyError
        running, waiting, arrived = state
        pairs.update(combinations(sorted(running), 2))
        # 1. Joins that were complete have started their target; 2. then the nodes that ran now arrive.
        arrived = tuple(
            (_EMPTY if seen == sources else seen) | (sources & running)
            for seen, (sources, _) in zip(arrived, edges.joins, strict=True)
        )
        for targets in _targets(edges, sorted(running), limit):
            todo.append(_state(edges, targets, waiting, arrived))
    return pairs


def _state(edges: Edges, targets: _Set, waiting: _Set, arrived: tuple[_Set, ...]) -> _State:
    joined = {end for seen, (sources, end) in zip(arrived, edges.joins, strict=True) if seen == sources}
    due = targets | joined
    waiting |= due & edges.deferred
    running = due - edges.deferred
    return (running, waiting, arrived) if running else (waiting, _EMPTY, arrived)


def _targets(edges: Edges, nodes: Iterable[str], limit: int) -> set[_Set]:
    """All possible targets of the plain and conditional edges of these nodes."""
    found = {_EMPTY}
    for node in nodes:
        for choice in edges.choices.get(node, ()):
            found = {one | other for one in found for other in choice.options()}
            if len(found) > limit:
                raise _TooManyError
    return found


def _by_pairs(edges: Edges) -> set[Pair]:
    choices = {node: list(each) for node, each in edges.choices.items()}
    for sources, end in edges.joins:
        for source in sources:
            choices.setdefault(source, []).append(Choice(frozenset({end})))
    todo = [pair for each in choices.values() for pair in _siblings(each)]
    targets = {node: _EMPTY.union(*(choice.targets for choice in each)) for node, each in choices.items()}
    waits = bool(edges.joins or edges.deferred)
    known: set[_Set] = set()
    while todo:
        pair = todo.pop()
        if len(pair) < 2 or pair in known:
            continue
        known.add(pair)
        # A node that waits, at a join or as deferred, meets the successors of the other one.
        one, other = (targets.get(node, _EMPTY) | ({node} if waits else _EMPTY) for node in pair)
        todo += [frozenset(both) for both in product(one, other)]
    return {(min(pair), max(pair)) for pair in known}


def _siblings(choices: Sequence[Choice]) -> list[_Set]:
    found = [frozenset(pair) for c in choices if c.several for pair in combinations(c.targets, 2)]
    for one, other in combinations(choices, 2):
        found += [frozenset(pair) for pair in product(one.targets, other.targets)]
    return found
