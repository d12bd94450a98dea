"""What went wrong, in a line for those who watch a worker: failed runs, unknown outcomes, dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel import RunHistory
from noesium_stream.kernel.compensation import UNDER_WAY

MOST: Final = 20
"""So many lines in `WINDOW_S`; what is more is counted. All of it is on the log."""

WINDOW_S: Final = 10.0
WIDTH: Final = 240


class Telling:
    """The lines of one agent's worker.

    Args:
        progress: takes one line for people.
        clock: whose monotonic time bounds them.
    """

    def __init__(self, progress: Callable[[str], None], clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._began = float("-inf")
        self._told = self._more = 0

    def tell(self, line: str) -> None:
        """Say it, on one line and cut to `WIDTH` characters, or count it."""
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
        """Say how many were not said."""
        if self._more:
            self._progress(f"and {self._more:,} more failures: noesium runs")
            self._more = 0


def line_of(event: EventEnvelope, history: RunHistory) -> str | None:
    """What to tell of an event that a run has written; None: nothing."""
    teller = _TELLERS.get(event.event_type)
    return None if teller is None else teller(event, history)


def _failed(event: EventEnvelope, history: RunHistory) -> str:
    return f"run {event.partition_key} failed: {event.payload['error_type']}: {event.payload['message']}"


def _expired(event: EventEnvelope, history: RunHistory) -> str:
    return f"run {event.partition_key} failed: its command expired after {event.payload['ttl_ms']} ms"


def _unknown(event: EventEnvelope, history: RunHistory) -> str:
    requested = history.requested.get(event.payload["effect_id"])
    name = "an effect" if requested is None else f"the effect {requested.payload['name']}"
    said = f"run {event.partition_key}: the outcome of {name} is unknown: {event.payload['reason']}"
    if history.compensation is None and event.payload["reason"] == UNDER_WAY:
        return said  # nobody waits for it, and nobody can decide about it
    return f"{said}; decide it with `noesium effect resolve`"


_TELLERS: Final[dict[str, Callable[[EventEnvelope, RunHistory], str]]] = {
    "run.failed": _failed,
    "command.expired": _expired,
    "effect.outcome.unknown": _unknown,
}
