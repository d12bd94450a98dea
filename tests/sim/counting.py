"""What a play has left on its log, in numbers."""

from __future__ import annotations

from collections import Counter
from typing import Final

from noesium_stream.event.standard import EventValidationFailed
from tests.support.invariants import Book

_COUNTED: Final = {
    "unknown": "effect.outcome.unknown",
    "reported": "effect.reported",
    "overdue": "run.deadline.passed",
    "cancelled": "run.cancelled",
    "undoing": "run.compensation.started",
    "timers": "timer.fired",
    "late calls": "capability.expired",
    "parked runs": "run.parked",
    "parked requests": "request.parked",
    "tool calls": "tool.invoked",
    "denied": "tool.denied",
    "tool timeouts": "tool.timeout",
}


def on_the_log(book: Book) -> dict[str, int]:
    """Counts, by name."""
    types = Counter(r.event_type for records in book.journals.values() for r in records)
    return {
        "records": sum(1 for _ in book.all()),
        "runs": len(book.runs),
        "acquired": types["partition.acquired"],
        "forwarded": types["request.forwarded"],
        **{name: types[event_type] for name, event_type in _COUNTED.items()},
        "letters": sum(r.event_type == EventValidationFailed.event_type() for r in book.letters),
    }
