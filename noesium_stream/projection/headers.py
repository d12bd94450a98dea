"""What a projection sees that does not have its events decoded: where a record lies and what is on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noesium_stream.errors import CorruptRecordError, EventStoreError, EventValidationError
from noesium_stream.event.codec import peek_type
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.headers import CE_ID, CE_TYPE, SEQUENCE
from noesium_stream.log.port import Position
from noesium_stream.log.record import Record


class EventHeaders:
    """An event as its record's key and headers tell it; names are those of `EventEnvelope`.

    The event itself is decoded for those who ask for it.
    """

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:
        self._record = record

    @property
    def event_type(self) -> str:
        """The event's type."""
        return self._record.event_type

    @property
    def event_id(self) -> str:
        """The event's id.

        Raises:
            CorruptRecordError: the record has no such header, and cannot be decoded either.
        """
        return event_id_of(self._record)

    @property
    def partition_key(self) -> str:
        """The record's key."""
        return self._record.key

    @property
    def timestamp_ms(self) -> int:
        """When the log took the record, in milliseconds; not the producer's time."""
        return self._record.timestamp_ms

    @property
    def position(self) -> Position:
        """Where the record lies."""
        return Position(self._record.topic, self._record.partition, self._record.offset)

    @property
    def run_id(self) -> str | None:
        """The run whose journal this record is part of; None where it is of none.

        The partition key of the event is another one where a run records what it asks of another run.
        """
        return None if self._record.header(SEQUENCE) is None else self._record.key

    @property
    def envelope(self) -> EventEnvelope:
        """The event in its newest version.

        Raises:
            CorruptRecordError: it cannot be decoded, is not valid, or of a version that is not known here.
        """
        return self._record.newest

    @property
    def unchecked(self) -> EventEnvelope:
        """The event as it was written, also where its type is not known here.

        Raises:
            CorruptRecordError: it cannot be decoded at all.
        """
        return self._record.unchecked


def event_id_of(record: Record) -> str:
    """The id of the record's event, without decoding it where its header is there."""
    value = record.header(CE_ID)
    if value is None:
        return record.unchecked.event_id
    try:
        return value.decode("ascii")
    except UnicodeDecodeError as error:
        reason = EventValidationError(CE_ID, "is no text")
        raise CorruptRecordError(record.topic, record.partition, record.offset, reason) from error


def id_if_told(record: Record) -> str | None:
    """An event's id; None where neither its headers nor its envelope tell it."""
    try:
        return event_id_of(record)
    except EventStoreError:
        return None


def key_of_unknown(record: Record, key_of: Callable[..., Any], decodes: bool) -> str | None:
    """The row of an event that is not valid, or not known here, if that much can be told.

    Args:
        record: the event's.
        key_of: the projection's `key`.
        decodes: whether that is given envelopes, not headers.
    """
    try:
        known: Any = record.unchecked if decodes else EventHeaders(record)
        key: str | None = key_of(known)
        if key is not None:
            key.encode()
    except Exception:  # whatever is wrong with it: it is a letter without a key
        return None
    return key


def type_told(record: Record) -> bytes | None:
    """The event type that the record's value begins with, else what its header says; None: neither does."""
    return peek_type(record.value) or record.header(CE_TYPE)
