"""Classification of fold errors, and the errors that report them with the event's position."""

from __future__ import annotations

from collections.abc import Callable

from noesium_stream.errors import (
    EventHeldError,
    ImpureProjectionError,
    NoesiumError,
    ProjectionError,
    StateNotStoredError,
    brief,
)
from noesium_stream.log.headers import CE_TYPE, header_value
from noesium_stream.log.record import Record

Misplaced = Callable[[Record, str], Exception]
"""Makes the error for an event whose row, of this key, may have parts in other partitions."""


def is_no_fault_of_the_event(error: Exception) -> bool:
    """Whether a retry of the event may succeed.

    Examples: a damaged file, an impure projection, no memory, no registry.
    """
    retriable = isinstance(error, NoesiumError) and error.retriable
    stored = isinstance(error, ProjectionError) and not isinstance(error, StateNotStoredError)
    return retriable or stored or isinstance(error, MemoryError)


def located(error: ImpureProjectionError, record: Record) -> ImpureProjectionError:
    """The error with the event's position added."""
    return ImpureProjectionError(
        f"{record.topic}/{record.partition}@{record.offset}: {error.message}", hint=error.hint
    )


def stopped_by(name: str, record: Record, error: Exception) -> EventHeldError:
    """The error of a projection that stops at an event which it cannot take."""
    return EventHeldError(
        f"The projection {name} cannot take the event at {place_of(record)}: "
        f"{type(error).__name__}: {brief(error, 500)}",
        hint="Mend `apply` and start it again, or let it hold such events back (--on-error hold).",
    )


def refuse_exit(name: str, record: Record, error: BaseException) -> None:
    """Refuse that a projection ends the process.

    Raises:
        ProjectionError: the error is that of a `sys.exit`.
    """
    if isinstance(error, SystemExit):
        raise ProjectionError(
            f"{record.topic}/{record.partition}@{record.offset}: the projection {name} called "
            f"sys.exit({error.code!r}).",
            hint="Let it raise an error instead: the event becomes a dead letter then.",
        ) from error


def failed_again(name: str, record: Record, error: Exception) -> ImpureProjectionError:
    """The error of an event that was folded once and fails when its row is rebuilt."""
    return ImpureProjectionError(
        f"The projection {name} took the event at {place_of(record)} once and failed the second time: "
        f"{type(error).__name__}: {brief(error, 300)}"
    )


def place_of(record: Record) -> str:
    """An event's position and type: `TOPIC/PARTITION@OFFSET (TYPE)`."""
    event_type = (header_value(record.raw_headers, CE_TYPE) or b"unknown type").decode(errors="replace")
    return f"{record.topic}/{record.partition}@{record.offset} ({event_type})"
