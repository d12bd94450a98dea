"""Tells a watchdog of due times, as events of the topic that it reads.

What it appends may be there twice, and late: the watchdog sees that by its state. It is appended again after
a while if the state does not show it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from typing import Final

from noesium_stream.agent.watchdog.rule import Overdue
from noesium_stream.clock import Clock
from noesium_stream.errors import EventStoreError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.standard import WatchdogElapsed
from noesium_stream.log.port import EventLog

LONGEST_SLEEP_S: Final = 10.0
"""Longest wait before the clock is looked at again, in seconds: it may be set, and the machine may sleep."""
_AGAIN_S: Final = 1.0
_PATIENCE_MS: Final = 30_000
"""Time after which what was told and is not dealt with is told again."""
_MOST_AT_ONCE: Final = 500


class WatchdogFeeder:
    """The feeder of one partition of a watchdog; see `agent.handler.Feeder`.

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
        self._log = log
        self._clock = clock
        self._producer = producer
        self._progress = progress
        self._topic = topic
        self._watchdog = watchdog
        self._open: dict[str, Overdue] = {}
        self._wakes: list[tuple[int, str, str]] = []
        """A heap: when to look at what has begun with an event, and its key. Old entries stay in it."""
        self._changed = asyncio.Event()
        self._note(rows)
        self._task = asyncio.create_task(self._tell(), name=f"times of {watchdog}")

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

    async def wait(self) -> None:
        """See `Feeder.wait`."""
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.result()

    async def close(self) -> None:
        """See `Feeder.close`."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _tell(self) -> None:
        while True:
            self._changed.clear()
            due = self._due()
            if due and not await self._append(due):
                for row in due:
                    heapq.heappush(self._wakes, (row.due_ms, row.key, row.event_id))
                await self._clock.sleep(_AGAIN_S)
                continue
            now_ms = self._clock.now_ms()
            for row in due:
                heapq.heappush(self._wakes, (now_ms + _PATIENCE_MS, row.key, row.event_id))
            await self._sleep()

    def _due(self) -> list[Overdue]:
        now_ms = self._clock.now_ms()
        found: list[Overdue] = []
        while self._wakes and self._wakes[0][0] <= now_ms and len(found) < _MOST_AT_ONCE:
            _, key, event_id = heapq.heappop(self._wakes)
            row = self._open.get(key)
            if row is not None and row.event_id == event_id:
                found.append(row)
        return found

    async def _append(self, due: list[Overdue]) -> bool:
        try:
            await self._log.append([self._elapsed(row) for row in due], topic=self._topic)
        except EventStoreError as error:
            self._progress(f"{self._watchdog} waits for the log: {error.message}")
            return False
        return True

    def _elapsed(self, row: Overdue) -> EventEnvelope:
        event = WatchdogElapsed(
            watchdog=self._watchdog,
            begun_id=row.event_id,
            due_ms=row.due_ms,
            now_ms=self._clock.now_ms(),
        )
        return root_event(event, self._producer, self._clock, partition_key=row.key)

    async def _sleep(self) -> None:
        """Sleep until something is due, or a row has changed."""
        waits = LONGEST_SLEEP_S
        if self._wakes:
            waits = min(waits, (self._wakes[0][0] - self._clock.now_ms()) / 1000)
        sleeping = asyncio.ensure_future(self._clock.sleep(max(0.0, waits)))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((sleeping, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            changed.cancel()
