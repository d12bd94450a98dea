"""`TimeFeeder`: appends the events of time for one partition of a handler, when they are due.

What it appends may be there twice, and late: the handler sees that by its state. So an append that fails, or
whose outcome is unknown, is made again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import CommitUnknownError, EventStoreError
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log.port import EventLog

LONGEST_SLEEP_S: Final = 10.0
"""Longest wait before the clock is looked at again, in seconds: it may be set, and the machine may sleep."""
AGAIN_S: Final = 1.0
"""Pause before an append that failed is made again, in seconds."""
MOST_AT_ONCE: Final = 500
"""Most events of one append."""

Keyed = tuple[str, DomainEvent]
"""An event and its partition key."""


class TimeFeeder(ABC):
    """A `Feeder` (see `agent.handler`) with a task that appends what is due; `start` starts it.

    Args:
        log: an open log.
        clock: the source of time and ids.
        producer: who appends the events.
        progress: takes one line for people.
        waiting: the beginning of such a line, as "schedules wait".
        topic: where the events are appended; None: to the topics of their types.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        producer: AgentRef,
        progress: Callable[[str], None],
        *,
        waiting: str,
        topic: str | None = None,
    ) -> None:
        self._log = log
        self._clock = clock
        self._producer = producer
        self._progress = progress
        self._waiting = waiting
        self._topic = topic
        self._changed = asyncio.Event()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    def _due(self) -> Sequence[Keyed]:
        """Up to `MOST_AT_ONCE` events that are due now and were not appended a moment ago."""

    @abstractmethod
    def _told(self, events: Sequence[Keyed]) -> None:
        """Take note that these events of `_due` were appended."""

    @abstractmethod
    def _rest_s(self) -> float:
        """Seconds until something is due, as the state is now."""

    def _start(self, name: str) -> None:
        self._task = asyncio.create_task(self._tell(), name=name)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._over.done():
            self._over.set_exception(error)

    async def wait(self) -> None:
        """See `Feeder.wait`."""
        await asyncio.shield(self._over)

    async def close(self) -> None:
        """See `Feeder.close`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if not self._over.done():
            self._over.set_result(None)

    async def _tell(self) -> None:
        while True:
            self._changed.clear()
            events = self._due()
            if events and not await self._append(events):
                await self._clock.sleep(AGAIN_S)
                continue
            self._told(events)
            await self._sleep()

    async def _append(self, events: Sequence[Keyed]) -> bool:
        """Append events; False: append them again."""
        envelopes = [
            root_event(event, self._producer, self._clock, partition_key=key) for key, event in events
        ]
        try:
            await self._log.append(envelopes, topic=self._topic)
        except CommitUnknownError:
            return False
        except EventStoreError as error:
            self._progress(f"{self._waiting} for the log: {error.message}")
            return False
        return True

    async def _sleep(self) -> None:
        """Sleep until something is due, or `_changed` is set."""
        rest_s = max(0.0, min(self._rest_s(), LONGEST_SLEEP_S))
        sleeping = asyncio.ensure_future(self._clock.sleep(rest_s))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((sleeping, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            changed.cancel()
