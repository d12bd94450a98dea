"""Progress lines of a process: that the log is away is told once, not for each run, and its return, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import EventStoreError

EVERY_S: Final = 10.0
"""Time between two reports that the log is still being waited for, in seconds."""


class WaitingLine(str):
    """A line that every run and partition prints while it waits for the log."""

    __slots__ = ()


class BackLine(str):
    """A line that everybody prints for whom the log answers; it matters after a `WaitingLine`."""

    __slots__ = ()


LOG_ANSWERS: Final = BackLine("the log answers again")
"""Printed by whoever has waited for the log."""

STILL_ANSWERS: Final = BackLine(str(LOG_ANSWERS))
"""Printed by whoever has not waited: it counts if nobody else has waited since the last such line."""


def waiting_for(problem: str) -> WaitingLine:
    """Make the line for a log that does not take what is written."""
    return WaitingLine(f"waiting for the log: {problem}")


def waiting_for_log(error: EventStoreError) -> WaitingLine:
    """Make the line for a log that is unavailable or full."""
    return waiting_for(error.message)


class Lines:
    """Passes on the lines of a process: of `WaitingLine` at most one in `EVERY_S`, then one `BackLine`.

    Args:
        progress: takes one line for people.
        clock: clock whose monotonic time measures `EVERY_S`.
    """

    def __init__(self, progress: Callable[[str], None], clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._said_s = float("-inf")
        self._waits = False
        self._recently = False

    def __call__(self, line: str) -> None:
        """Pass a line on or drop it."""
        if isinstance(line, WaitingLine):
            self._recently = True
            now_s = self._clock.monotonic()
            if now_s - self._said_s < EVERY_S:
                return
            self._said_s, self._waits = now_s, True
        elif isinstance(line, BackLine):
            waited, self._recently = self._recently and line is STILL_ANSWERS, False
            if waited or not self._waits:
                return
            self._waits = False
        self._progress(line)


def ranges(numbers: Iterable[int]) -> str:
    """Format ascending numbers, as of partitions: `0-3, 7`."""
    found = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        found.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(found)
