"""Lines about failures for people who watch a worker: failed runs, unknown outcomes, dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel import RunHistory
from noesium_stream.kernel.compensation.saga import UNDER_WAY

MOST: Final = 20
"""Most lines in `WINDOW_S`; further ones are only counted. All failures are on the log."""

WINDOW_S: Final = 10.0
WIDTH: Final = 240


class FailureLines:
    """Rate limit for the failure lines of one agent.

    Args:
        progress: takes one line for people.
        clock: clock whose monotonic time measures `WINDOW_S`.
    """

    def __init__(self, progress: Callable[[str], None], clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._began = float("-inf")
        self._told = self._more = 0

    def tell(self, line: str) -> None:
        """Print a failure on one line, cut to `WIDTH` characters, or count it."""
        now = self._clock.monotonic()
        if now - self._began >= WINDOW_S:
            self.close()
            self._began, self._told = now, 0
        if self._told >= MOST:
            self._more += 1
            return
        self._told += 1
        line = " ".join(line.split())
        self._progress(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…")

    def close(self) -> None:
        """Print how many failures were only counted."""
        if self._more:
            self._progress(f"and {self._more:,} more failures: noesium runs")
            self._more = 0


def _failed(event: EventEnvelope, history: RunHistory) -> str:
    return f"run {event.partition_key} failed: {event.payload['error_type']}: {event.payload['message']}"


def _expired(event: EventEnvelope, history: RunHistory) -> str:
    return f"run {event.partition_key} failed: its command expired after {event.payload['ttl_ms']} ms"


def _refused(event: EventEnvelope, history: RunHistory) -> str:
    return f"run {event.partition_key} was refused: {event.payload['message']}"


def _unknown(event: EventEnvelope, history: RunHistory) -> str:
    requested = history.requested.get(event.payload["effect_id"])
    name = "an effect" if requested is None else f"the effect {requested.payload['name']}"
    said = f"run {event.partition_key}: the outcome of {name} is unknown: {event.payload['reason']}"
    if history.compensation is None and event.payload["reason"] == UNDER_WAY:
        return said  # no task waits for the outcome, and nobody can decide it
    return f"{said}; decide it with `noesium effect resolve`"


LINES: Final[dict[str, Callable[[EventEnvelope, RunHistory], str]]] = {
    "run.failed": _failed,
    "command.expired": _expired,
    "command.refused": _refused,
    "effect.outcome.unknown": _unknown,
}
"""Functions that make the line about a failure which a run has written, by event type."""
