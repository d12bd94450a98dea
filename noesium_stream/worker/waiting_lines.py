"""That the log is waited for, said once by a process, and not by each of its runs and partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import EventStoreError

EVERY_S: Final = 10.0
"""As long as the log is waited for it is said again each time that so much has gone by."""


class WaitingLine(str):
    """A line that all say at once who wait for the log."""

    __slots__ = ()


def waiting_for_log(error: EventStoreError) -> WaitingLine:
    """The line of who waits for a log that is away, or full."""
    return WaitingLine(f"waiting for the log: {error.message}")


class Lines:
    """Passes on the lines of a process; of those that say that the log is waited for, one in `EVERY_S`.

    Args:
        progress: takes one line for people.
        clock: whose monotonic time counts.
    """

    def __init__(self, progress: Callable[[str], None], clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._said_s = float("-inf")

    def __call__(self, line: str) -> None:
        """Pass a line on, or leave it out."""
        if isinstance(line, WaitingLine):
            now_s = self._clock.monotonic()
            if now_s - self._said_s < EVERY_S:
                return
            self._said_s = now_s
        self._progress(line)
