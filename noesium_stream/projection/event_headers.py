"""Events of projections that do not decode: the position and headers of a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noesium_stream.errors import CorruptRecordError, EventStoreError, EventValidationError
from noesium_stream.event.codec.codec import peek_type
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.headers import CE_ID, CE_TYPE, SEQUENCE, header_value
from noesium_stream.log.port import Position
from noesium_stream.log.record import Record


class EventHeaders:
    """An event seen through its record's key and headers, with the attribute names of `EventEnvelope`.

    `envelope` decodes the event on demand.
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
            CorruptRecordError: the record has no id header and cannot be decoded.
        """
        return event_id_of(self._record)

    @property
    def partition_key(self) -> str:
        """The record's key."""
        return self._record.key

    @property
    def timestamp_ms(self) -> int:
        """Append time of the record in milliseconds; not the producer's time."""
        return self._record.timestamp_ms

    @property
    def position(self) -> Position:
        """The record's position."""
        return Position(self._record.topic, self._record.partition, self._record.offset)

    @property
    def run_id(self) -> str | None:
        """The run whose journal this record is part of; None outside a journal.

        It differs from the event's partition key where a run records a request to another run.
        """
        return None if self._record.header(SEQUENCE) is None else self._record.key

    @property
    def envelope(self) -> EventEnvelope:
        """The event in its newest version.

        Raises:
            CorruptRecordError: it cannot be decoded, is invalid, or its version is unknown here.
        """
        return self._record.newest

    @property
    def unchecked(self) -> EventEnvelope:
        """The event as it was written, even if its type is unknown here.

        Raises:
            CorruptRecordError: it cannot be decoded at all.
        """
        return self._record.unchecked


def event_id_of(record: Record) -> str:
    """The id of the record's event, from its header if present, without decoding."""
    value = record.header(CE_ID)
    if value is None:
        return record.unchecked.event_id
    try:
        return value.decode("ascii")
    except UnicodeDecodeError as error:
        reason = EventValidationError(CE_ID, "is no text")
        raise CorruptRecordError(record.topic, record.partition, record.offset, reason) from error


def id_if_told(record: Record) -> str | None:
    """An event's id; None if neither headers nor envelope contain it."""
    try:
        return event_id_of(record)
    except EventStoreError:
        return None


def key_of_unknown(record: Record, key_of: Callable[..., Any], headers_only: bool) -> str | None:
    """The row of an event that is invalid or unknown here, if it can be determined.

    Args:
        record: the event's record.
        key_of: the projection's `key`.
        headers_only: whether `key_of` takes headers, not envelopes.
    """
    try:
        record.prove()  # a letter with a key holds back the events behind it
        known: Any = EventHeaders(record) if headers_only else record.unchecked
        key: str | None = key_of(known)
        if key is not None:
            key.encode()
    except Exception:  # any failure makes it a dead letter without a key
        return None
    return key


def type_told(record: Record) -> bytes | None:
    """The event type at the start of the record's value, else from its header; None if neither has it."""
    return peek_type(record.value) or header_value(record.raw_headers, CE_TYPE)
