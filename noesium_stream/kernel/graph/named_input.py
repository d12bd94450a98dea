"""The input of a graph that a step's body calls: its messages get ids that are the same on each execution."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from noesium_stream.kernel.graph.node_config import input_hash_of
from noesium_stream.kernel.state.message_ids import MessageKeys, identified
from noesium_stream.kernel.step.position import Place, enclosing_step


class NamedInput:
    """The mapper of a graph's start. Outside steps, and with messages that have ids, it changes nothing.

    Equal inputs of one step get ids by their order, which cannot tell them apart in another way either.

    Args:
        keys: see `message_keys`, of the graph.
        mapper: what the start maps its input by otherwise.
    """

    def __init__(self, keys: MessageKeys, mapper: Callable[[Any], Any] | None) -> None:
        self._keys = keys
        self._mapper: Callable[[Any], Any] | None = (
            mapper._mapper if isinstance(mapper, NamedInput) else mapper
        )

    def __call__(self, value: Any) -> Any:
        """The input, with ids."""
        given = value if self._mapper is None else self._mapper(value)
        place = enclosing_step()
        return given if place is None else identified(given, self._keys, _ids(place, given))


def _ids(place: Place, given: Any) -> Callable[[], str]:
    numbers, which = itertools.count(), ""

    def next_id() -> str:
        nonlocal which
        if not which:
            content = input_hash_of(given) or "?"
            which = f"{content}:{place.occurrence(f'input:{content}')}"
        return place.derived("input", which, str(next(numbers)))

    return next_id
