"""Progress lines of a process; reports once that the log is being waited for, not for each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import EventStoreError

EVERY_S: Final = 10.0
"""Time between two reports that the log is still being waited for, in seconds."""


class WaitingLine(str):
    """A line that every run and partition prints while it waits for the log."""

    __slots__ = ()


def waiting_for_log(error: EventStoreError) -> WaitingLine:
    """Make the line for a log that is unavailable or full."""
    return WaitingLine(f"waiting for the log: {error.message}")


class Lines:
    """Passes on the lines of a process, and of `WaitingLine` at most one in `EVERY_S`.

    Args:
        progress: takes one line for people.
        clock: clock whose monotonic time measures `EVERY_S`.
    """

    def __init__(self, progress: Callable[[str], None], clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._said_s = float("-inf")

    def __call__(self, line: str) -> None:
        """Pass a line on or drop it."""
        if isinstance(line, WaitingLine):
            now_s = self._clock.monotonic()
            if now_s - self._said_s < EVERY_S:
                return
            self._said_s = now_s
        self._progress(line)
