"""Journal-record fields used by the partition-state fold, from a record read back or just committed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from noesium_stream.clock import to_ms
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import RequestParked, RequestResumed
from noesium_stream.log.headers import CE_ID, CE_TIME
from noesium_stream.log.port import Outgoing
from noesium_stream.log.record import Record

ACQUIRED: Final = "partition.acquired"
OUTGROWN: Final = "partition.outgrown"
WITH_PAYLOAD: Final = frozenset({ACQUIRED, OUTGROWN, RequestParked.TYPE, RequestResumed.TYPE})
"""Event types whose payload the fold needs: those of the partition itself and of deferred requests."""


class Entry(NamedTuple):
    """The fields of a journal record that the fold uses.

    `ms` is the time of a terminal event, by its owner's clock (milliseconds since the epoch). `payload` is
    set for the event types `WITH_PAYLOAD`.
    """

    place: str
    offset: int
    event_id: str
    key: str
    event_type: str
    headers: Mapping[str, bytes]
    ms: int = 0
    payload: Mapping[str, Any] | None = None


def entry_of(record: Record) -> Entry:
    """Make the entry of a record read back from the journal. Raises `CorruptRecordError`."""
    headers = dict(record.headers)
    event_type = record.event_type
    event_id = headers[CE_ID].decode() if CE_ID in headers else record.envelope.event_id
    ms, payload = 0, None
    if event_type in ENDINGS:
        time = headers.get(CE_TIME)
        ms = record.envelope.timestamp_ms if time is None else to_ms(datetime.fromisoformat(time.decode()))
    elif event_type in WITH_PAYLOAD:
        payload = record.envelope.payload
    place = f"{record.topic}/{record.partition}"
    return Entry(place, record.offset, event_id, record.key, event_type, headers, ms, payload)


def entry_of_sent(sent: Outgoing, offset: int) -> Entry:
    """Make the entry of a record that was just committed at `offset`."""
    event = sent.envelope
    place, headers = f"{sent.topic}/{sent.partition}", dict(sent.headers)
    ms = event.timestamp_ms if event.event_type in ENDINGS else 0
    return Entry(place, offset, event.event_id, sent.key, event.event_type, headers, ms, event.payload)
