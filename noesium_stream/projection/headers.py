"""What a projection sees that does not have its events decoded."""

from __future__ import annotations

from noesium_stream.errors import CorruptRecordError, EventValidationError
from noesium_stream.log.headers import CE_ID
from noesium_stream.log.record import Record


class EventHeaders:
    """An event as its record's key and headers tell it; names are those of `EventEnvelope`."""

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
