"""Calls of subgraphs from one node: identified by their input, not by their order.

LangGraph numbers them in the order in which they begin. Under `gather` that may be another order on replay,
and after an interrupt or a failure the numbers continue where they were. So a call is looked up among the
recorded ones of the same node by the input of its first nodes, and takes over its recorded number.
"""

from __future__ import annotations

from noesium_stream.kernel.run_history import RunHistory, StepKey, step_id, undo_id


class Subcalls:
    """The subgraph calls of one execution of one node.

    Args:
        history: the run's history.
        key: the step's key.
        declared: the node is a graph itself: there is one call, whatever its input.
    """

    def __init__(self, history: RunHistory, key: StepKey, declared: bool) -> None:
        self.declared = declared
        self._history = history
        self._id = step_id(key)
        self._goes_on = undo_id(key) is not None and history.failures[key] > 0
        self._numbers: dict[str, str] = {}
        self._first: dict[str, int] = {}
        self._made: set[str] = set()
        self._new: set[str] = set()

    def begin_again(self) -> None:
        """Execute the node's body again; it makes the same calls again."""
        self._numbers.clear()
        self._first.clear()

    def is_first(self, live: str, step: int) -> bool:
        """Whether a superstep of the call that LangGraph numbers `live` is its first one."""
        return self._first.setdefault(live, step) == step

    def number(self, live: str, path: str, input_hash: str | None) -> str:
        """The recorded number of a call, by LangGraph's number and one of its first nodes."""
        if live not in self._numbers:
            self._numbers[live] = self._find(live, path, input_hash)
            self._made.add(self._numbers[live])
        return self._numbers[live]

    @property
    def lost(self) -> str | None:
        """A node whose recorded call this execution did not make, although it made others."""
        if self._goes_on:
            return None
        known = self._history.subcalls.get(self._id, {})
        spent = self._history.spent.get(self._id, frozenset())
        missing = [number for number in known if number not in self._made and number not in spent]
        return next(iter(known[missing[0]])) if missing and self._new else None

    def _find(self, live: str, path: str, input_hash: str | None) -> str:
        known = self._history.subcalls.get(self._id, {})
        taken = self._history.spent.get(self._id, frozenset()) | set(self._numbers.values())
        free = [number for number in (live, *known) if number in known and number not in taken]
        for number in free:
            if known[number].get(path) == input_hash:
                return number
        if live in free and known[live].get(path) is None:
            return live  # a history without such numbers
        numbers = {*known, *taken}
        number = live if live not in numbers else str(1 + max(map(int, numbers)))
        self._new.add(number)
        return number
