"""Whose fault an error is that judging an inbox record raised: the record's or the log's."""

from __future__ import annotations

from sqlite3 import Error as SqliteError

from noesium_stream.errors import (
    CorruptRecordError,
    EventStoreError,
    EventValidationError,
    NoesiumError,
    ProjectionError,
    RecordTooLargeError,
    brief,
)

_REASON_LENGTH = 300


def is_of_the_record(error: Exception) -> bool:
    """Whether a record is to blame for an error, so that it becomes a dead letter.

    It is not where ownership is lost, the log is away or closed, the state file is damaged, or the machine
    has no memory or disk: the next owner judges the record again.
    """
    if isinstance(error, CorruptRecordError | RecordTooLargeError):
        return True
    if isinstance(error, NoesiumError) and error.retriable:
        return False
    return not isinstance(error, EventStoreError | ProjectionError | SqliteError | MemoryError | OSError)


def refusal_by(error: Exception) -> NoesiumError:
    """The reason of a dead letter for an error that `is_of_the_record`."""
    if isinstance(error, NoesiumError):
        return error
    return EventValidationError("value", f"{type(error).__name__}: {brief(error, _REASON_LENGTH)}")
