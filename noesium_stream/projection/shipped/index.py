"""Where events lie: by event id, by correlation id and by run (RFC-0001: the log is indexed by both ids).

A row says for each partition which offsets may hold what it is about: `{"TOPIC/PARTITION": [first, last,
count]}`. That of an event (`event/ID`) is exact; a run's (`run/ID`) and a correlation's (`correlation/ID`)
are ranges that other records lie between. Copies of an event in other journals are among its positions.
"""

from __future__ import annotations

from typing import Any, Final

from noesium_stream.errors import CorruptRecordError
from noesium_stream.log.port import Position
from noesium_stream.projection.base import FACTS, JOURNALS, BaseProjection
from noesium_stream.projection.headers import EventHeaders

Extents = dict[str, list[int]]
"""First and last offset and number of records, by `TOPIC/PARTITION`."""

EVENT: Final = "event/"
CORRELATION: Final = "correlation/"
RUN: Final = "run/"


class IndexProjection(BaseProjection[Extents]):
    """Positions by event id, correlation id and run."""

    name = "index"
    topics = (JOURNALS, FACTS, "registry")
    decodes = False
    copies = True
    in_place = True
    on_error = "stop"

    def initial_state(self) -> Extents:
        """Nowhere."""
        return {}

    def keys(self, event: Any) -> tuple[str, ...]:
        """The event's row, its correlation's and its run's; of one that cannot be decoded its run's alone."""
        assert isinstance(event, EventHeaders)
        found = []
        try:
            correlation = event.unchecked.correlation_id
            found.append(f"{EVENT}{event.event_id}")
        except CorruptRecordError:
            correlation = None
        if correlation is not None:
            found.append(f"{CORRELATION}{correlation}")
        if event.run_id is not None:
            found.append(f"{RUN}{event.run_id}")
        return tuple(found)

    def apply(self, state: Extents, event: Any) -> Extents:
        """The row with one more position."""
        topic, partition, offset = event.position
        extent = state.get(f"{topic}/{partition}")
        if extent is None:
            state[f"{topic}/{partition}"] = [offset, offset, 1]
        else:
            extent[1] = offset
            extent[2] += 1
        return state

    def merge(self, a: Extents, b: Extents) -> Extents:
        """The extents of both; each partition's are in one of them."""
        return dict(sorted({**a, **b}.items()))


def positions(row: Extents) -> list[Position]:
    """The first position of each partition in a row; of an event's row all that it has."""
    found = []
    for place, (first, _, _) in row.items():
        topic, _, partition = place.rpartition("/")
        found.append(Position(topic, int(partition), first))
    return sorted(found)
