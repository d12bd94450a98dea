"""Positions of events by event id, correlation id and run (RFC-0001: the log is indexed by both ids).

A row maps each partition to the range of offsets that may hold its events: `{"TOPIC/PARTITION": [first, last,
count]}`. An event's row (`event/ID`) is exact. The rows of a run (`run/ID`) and of a correlation
(`correlation/ID`) are ranges with other records in between. Copies of an event in other journals count as
positions of the event.
"""

from __future__ import annotations

from typing import Any, Final

from noesium_stream.errors import CorruptRecordError
from noesium_stream.log.port import Position
from noesium_stream.projection.base import FACTS, JOURNALS, BaseProjection
from noesium_stream.projection.event_headers import EventHeaders

Extents = dict[str, list[int]]
"""First and last offset and number of records, by `TOPIC/PARTITION`."""

EVENT: Final = "event/"
CORRELATION: Final = "correlation/"
RUN: Final = "run/"


class IndexProjection(BaseProjection[Extents]):
    """Positions by event id, correlation id and run."""

    name = "index"
    takes_erased = True
    topics = (JOURNALS, FACTS, "registry")
    headers_only = True
    include_copies = True
    in_place = True
    on_error = "stop"

    def initial_state(self) -> Extents:
        """An empty row."""
        return {}

    def keys(self, event: Any) -> tuple[str, ...]:
        """The rows of the event, its correlation and its run; only the run's if it cannot be decoded."""
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
        """The row with the position of one more event."""
        topic, partition, offset = event.position
        extent = state.get(f"{topic}/{partition}")
        if extent is None:
            state[f"{topic}/{partition}"] = [offset, offset, 1]
        else:
            extent[1] = offset
            extent[2] += 1
        return state

    def merge(self, a: Extents, b: Extents) -> Extents:
        """The extents of both rows; each partition appears in only one of them."""
        return dict(sorted({**a, **b}.items()))


def positions(row: Extents) -> list[Position]:
    """The first position in each partition of a row; for an event's row, these are all its positions."""
    found = []
    for place, (first, _, _) in row.items():
        topic, _, partition = place.rpartition("/")
        found.append(Position(topic, int(partition), first))
    return sorted(found)
