"""Journal records that nobody can read: a listing passes them over.

The owner of their partition stops there, and `noesium doctor` says where they lie.
"""

from __future__ import annotations

from typing import Final

from noesium_stream.errors import CorruptRecordError
from noesium_stream.log.record import Record

WRONG: Final = (CorruptRecordError, ValueError, TypeError, LookupError, AttributeError)
"""Errors of a fold for a record whose headers or payload are not those of its type."""


def pass_over(record: Record, error: Exception) -> None:
    """Return if the record that led to this error of a fold is wrong.

    Raises:
        Exception: the error, if the record is right.
    """
    try:
        _ = record.envelope
    except CorruptRecordError:
        return
    if not isinstance(error, CorruptRecordError):
        raise error
