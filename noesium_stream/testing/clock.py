"""A test clock that advances by itself: when nothing else can run, it jumps to the next sleeper's time.

A month of timers passes in milliseconds, and in the right order: a task that sleeps for a minute wakes before
one that sleeps for an hour, and both wake after everything that could run before.

Idle means that the event loop has nothing ready and that no thread of its default executor works (sync nodes
and sync effects run there). Waiting for real time or for a socket (`asyncio.sleep`, `asyncio.timeout`) counts
as idle: virtual time does not wait for it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, TypeVar

from noesium_stream.clock import VirtualClock, to_ms
from noesium_stream.durations import Duration
from noesium_stream.errors import RehearsalError
from noesium_stream.worker.thread_pool import MAX_THREADS

T = TypeVar("T")

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)

_QUIET_TURNS: Final = 3
"""Required turns of the loop without anything ready: sockets and pipes are polled once per turn."""

_THREAD_POLL_S: Final = 0.001


class AutoClock(VirtualClock):
    """A `VirtualClock` whose sleepers wake in the order of their times, as soon as all else is idle.

    Use one per event loop. `advance` moves it manually; ids and random numbers come from the seed.

    Args:
        start: the first moment, with a time zone; default: the beginning of 2026.
        seed: the seed of ids, tokens and random numbers.
    """

    def __init__(self, start: datetime = _START, seed: int = 0) -> None:
        super().__init__(to_ms(start), seed)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()
        self._threads: _BusyThreads | None = None
        self._looking = False

    def attach(self) -> None:
        """Watch the running loop's default executor from now on; the first `sleep` does this too.

        Raises:
            RehearsalError: the loop is not asyncio's own, so its idle state is not known.
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

    def advance(self, duration: Duration) -> None:
        """Move the time forward by `duration` (not negative) and wake the sleepers that are due."""
        super().advance(duration)
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
        """Check for idleness once per turn of the loop, as long as any task sleeps."""
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
    """The loop's default executor, with a count of running calls."""

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
        # Another callback, after this one, delivers the result to the loop: check for idleness after it.
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.call_later, 2 * _THREAD_POLL_S, self._left)

    def _left(self) -> None:
        self.busy -= 1
