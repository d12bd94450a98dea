"""A signal that wakes readers when something in the log has changed.

Decision record: every commit used to wake every reader of the process, and most found nothing new in their
partitions. So a writer names the partitions that it touched, if it knows them, and a reader names the
partitions that it waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from typing import Any

Place = tuple[str, int]
"""A partition: topic and number."""

Waiter = asyncio.Future[None]


class Signal:
    """A counter of changes. A waiter passes the count that it has seen, so that no wake-up is lost.

    Waiters may live in several event loops and threads.
    """

    def __init__(self) -> None:
        self.count = 0
        self._anywhere = 0
        self._changed: dict[Place, int] = {}
        self._lock = threading.Lock()
        self._waiters: dict[Waiter, Collection[Place] | None] = {}
        self._waiting: dict[Place, set[Waiter]] = {}

    def notify(self, places: Collection[Place] | None = None) -> None:
        """Count one change of these partitions; wake those who wait for one of them, or for any change.

        None: all partitions changed, or something else did (a group, the log itself); wakes everybody.
        """
        with self._lock:
            self.count += 1
            if places is None:
                self._anywhere = self.count
                woken = set(self._waiters)
            else:
                self._changed.update(dict.fromkeys(places, self.count))
                woken = self._of(places)
            if not woken:
                return
            for waiter in woken:
                self._forget(waiter)
        here = _running_loop()
        for waiter in woken:
            loop = waiter.get_loop()
            if loop is here:
                _wake(waiter)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(_wake, waiter)

    async def wait(
        self, seen: int, timeout_s: float | None = None, places: Collection[Place] | None = None
    ) -> None:
        """Return when one of `places` has changed since the count was `seen`, or after `timeout_s`.

        None: return on any change.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._last(places) > seen:
                return
            waiter = loop.create_future()
            self._waiters[waiter] = places
            for place in _ANY if places is None else places:
                self._waiting.setdefault(place, set()).add(waiter)
        alarm = None if timeout_s is None else loop.call_later(timeout_s, _wake, waiter)
        try:
            await waiter
        finally:
            if alarm is not None:
                alarm.cancel()
            with self._lock:
                self._forget(waiter)

    def _last(self, places: Collection[Place] | None) -> int:
        """The count at the last change of these partitions."""
        if places is None:
            return self.count
        changed = self._changed
        return max(self._anywhere, max([changed.get(place, 0) for place in places], default=0))

    def _of(self, places: Collection[Place]) -> set[Waiter]:
        woken: set[Waiter] = set()
        for place in (*_ANY, *places):
            woken.update(self._waiting.get(place, ()))
        return woken

    def _forget(self, waiter: Waiter) -> None:
        if waiter not in self._waiters:
            return
        places = self._waiters.pop(waiter)
        for place in _ANY if places is None else places:
            waiting = self._waiting[place]
            waiting.discard(waiter)
            if not waiting:
                del self._waiting[place]


_ANY: tuple[Any, ...] = (None,)
"""The key of waiters for any change."""


def _wake(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
