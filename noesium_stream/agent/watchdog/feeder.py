"""Tells a watchdog of due times, as events of the topic that it reads."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from noesium_stream.agent.time_feeder import LONGEST_SLEEP_S, MOST_AT_ONCE, Keyed, TimeFeeder
from noesium_stream.agent.watchdog.rule import Overdue
from noesium_stream.clock import Clock
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import WatchdogElapsed
from noesium_stream.log.port import EventLog

_PATIENCE_MS: Final = 30_000
"""Time after which what was told and is not dealt with is told again."""


class WatchdogFeeder(TimeFeeder):
    """The feeder of one partition of a watchdog.

    Args:
        log: an open log.
        clock: the source of time and ids.
        producer: who appends the events.
        progress: takes one line for people.
        topic: the topic that the watchdog reads.
        watchdog: its agent type.
        rows: what is open, by key.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        producer: AgentRef,
        progress: Callable[[str], None],
        topic: str,
        watchdog: str,
        rows: Mapping[str, Overdue],
    ) -> None:
        super().__init__(log, clock, producer, progress, waiting=f"{watchdog} waits", topic=topic)
        self._watchdog = watchdog
        self._open: dict[str, Overdue] = {}
        self._wakes: list[tuple[int, str, str]] = []
        """A heap: when to look at what has begun with an event, and its key. Old entries stay in it."""
        self._telling: list[tuple[int, str, str]] = []
        """The entries of the events that are being appended."""
        self._note(rows)
        self._start(f"times of {watchdog}")

    async def follow(self, rows: Mapping[str, Overdue | None]) -> None:
        """See `Feeder.follow`."""
        self._note(rows)
        self._changed.set()

    def _note(self, rows: Mapping[str, Overdue | None]) -> None:
        for key, row in rows.items():
            before = self._open.pop(key, None)
            if row is None or not row.event_id:
                continue
            self._open[key] = row
            if before is None or before.event_id != row.event_id:
                heapq.heappush(self._wakes, (row.due_ms, key, row.event_id))

    def _due(self) -> Sequence[Keyed]:
        for entry in self._telling:  # their append failed
            heapq.heappush(self._wakes, entry)
        self._telling = []
        now_ms = self._clock.now_ms()
        found: list[Keyed] = []
        while self._wakes and self._wakes[0][0] <= now_ms and len(found) < MOST_AT_ONCE:
            entry = heapq.heappop(self._wakes)
            _, key, event_id = entry
            row = self._open.get(key)
            if row is not None and row.event_id == event_id:
                self._telling.append(entry)
                found.append((key, self._elapsed(row, now_ms)))
        return found

    def _elapsed(self, row: Overdue, now_ms: int) -> WatchdogElapsed:
        return WatchdogElapsed(
            watchdog=self._watchdog, begun_id=row.event_id, due_ms=row.due_ms, now_ms=now_ms
        )

    def _told(self, events: Sequence[Keyed]) -> None:
        again_ms = self._clock.now_ms() + _PATIENCE_MS
        for _, key, event_id in self._telling:
            heapq.heappush(self._wakes, (again_ms, key, event_id))
        self._telling = []

    def _rest_s(self) -> float:
        if not self._wakes:
            return LONGEST_SLEEP_S
        return (self._wakes[0][0] - self._clock.now_ms()) / 1000
