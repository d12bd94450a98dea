"""A clock for tests that moves by itself: when nothing else can go on, it is the next sleeper's time.

A month of timers passes in milliseconds, and in the right order: whoever sleeps for a minute wakes before
whoever sleeps for an hour, and both wake after everything that could be done before.

Idle means that the event loop has nothing ready and that no thread of its default executor works (sync nodes
and sync effects run there). What waits for the machine's own time or for a socket (`asyncio.sleep`,
`asyncio.timeout`) counts as idle: virtual time does not wait for it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any, Final, TypeVar

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import RehearsalError
from noesium_stream.worker.threads import MAX_THREADS

T = TypeVar("T")

_QUIET_TURNS: Final = 3
"""Turns of the loop without anything ready: sockets and pipes are asked once per turn."""

_THREAD_POLL_S: Final = 0.001


class AutoClock(VirtualClock):
    """A `VirtualClock` whose sleepers wake in the order of their times, as soon as all else is idle.

    Use one per event loop. `advance` moves it by hand; ids and random numbers come from the seed.

    Args:
        start_ms: the first moment, milliseconds since the epoch.
        seed: of ids, tokens and random numbers.
    """

    def __init__(self, start_ms: int = 1_767_225_600_000, seed: int = 0) -> None:
        super().__init__(start_ms, seed)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()
        self._threads: _BusyThreads | None = None
        self._looking = False

    def attach(self) -> None:
        """Watch the running loop's default executor from now on; `sleep` does it at the latest.

        Raises:
            RehearsalError: the loop is not asyncio's own, and does not tell whether it is idle.
        """
        loop = asyncio.get_running_loop()
        if self._threads is not None and self._threads.loop is loop:
            return
        if not hasattr(loop, "_ready"):
            raise RehearsalError(
                f"{type(loop).__module__}.{type(loop).__name__} does not tell whether it is idle.",
                hint="Run tests with an AutoClock on asyncio's own event loop.",
            )
        self._threads = _BusyThreads(loop)
        loop.set_default_executor(self._threads)

    def advance(self, seconds: float) -> None:
        """Move the time forward by `seconds` (not negative) and wake those whose time has come."""
        super().advance(seconds)
        now = self.monotonic()
        while self._sleepers and self._sleepers[0][0] <= now:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self.attach()
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self.monotonic() + seconds, next(self._order), woken))
        if not self._looking:
            self._looking = True
            loop.call_soon(self._look, loop, 0)
        await woken

    def _look(self, loop: asyncio.AbstractEventLoop, quiet: int) -> None:
        """One look per turn of the loop, for as long as anybody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)  # cancelled
        if not self._sleepers or loop.is_closed():
            self._looking = False
            return
        if self._threads is not None and self._threads.busy:
            loop.call_later(_THREAD_POLL_S, self._look, loop, 0)
            return
        ready: Any = getattr(loop, "_ready", ())
        if ready:
            quiet = 0
        elif quiet < _QUIET_TURNS:
            quiet += 1
        else:
            self.advance(max(0.0, self._sleepers[0][0] - self.monotonic()))
            quiet = 0
        loop.call_soon(self._look, loop, quiet)


class _BusyThreads(ThreadPoolExecutor):
    """The loop's default executor, with a count of what runs in it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(MAX_THREADS, thread_name_prefix="noesium test")
        self.loop = loop
        self.busy = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self.busy += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, future: Future[Any]) -> None:
        # The loop hears of the result by another callback, after this one: it has to be idle after that.
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.call_later, 2 * _THREAD_POLL_S, self._left)

    def _left(self) -> None:
        self.busy -= 1
