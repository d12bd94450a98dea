"""A signal that readers wait on: something in the log has changed."""

from __future__ import annotations

import asyncio
import threading


class Signal:
    """Counts changes; whoever waits names the count that it has seen, so that no wake-up is lost.

    Waiters may live in several event loops and threads.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Count one change and wake everybody."""
        with self._lock:
            self.count += 1
            if not self._waiters:
                return
            waiters, self._waiters = self._waiters, set()
        here = _running_loop()
        for waiter in waiters:
            loop = waiter.get_loop()
            if loop is here:
                _wake(waiter)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(_wake, waiter)

    async def wait(self, seen: int, timeout_s: float | None = None) -> None:
        """Return when the count differs from `seen`, or after `timeout_s`."""
        with self._lock:
            if self.count != seen:
                return
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
        try:
            if timeout_s is None:
                await waiter
            else:
                await asyncio.wait((waiter,), timeout=timeout_s)
        finally:
            with self._lock:
                self._waiters.discard(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
