"""Calls of the owner's callbacks from a member's thread onto the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import Any, Final

from noesium_stream.errors import EventStoreError
from noesium_stream.log.kafka.group.thread_requests import Requests

_CHECK_S: Final = 0.1


class LoopCalls:
    """Runs callbacks on the event loop; all methods but `inside` are for the thread.

    Args:
        loop: the event loop.
        requests: the requests to the thread, which it serves while it waits: a callback may wait for one.

    Attributes:
        calling: whether the thread waits for a callback that it runs by `call`, or is about to.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, requests: Requests) -> None:
        self.calling = False
        self._loop = loop
        self._requests = requests
        self._tasks: set[asyncio.Task[Any]] = set()

    def inside(self) -> bool:
        """Whether the current task is one of the callbacks; on the event loop."""
        return asyncio.current_task() in self._tasks

    def call(self, callback: Awaitable[Any]) -> Any:
        """Run a callback and wait for it; raises its error."""
        self.calling = True
        try:
            future = self.start(callback)
            self.wait(future, None)
            return future.result()
        finally:
            self.calling = False

    def start(self, callback: Awaitable[Any]) -> Future[Any]:
        """Run a callback; the future gets its result or error."""
        return asyncio.run_coroutine_threadsafe(self._entered(callback), self._loop)

    def wait(self, future: Future[Any], timeout_s: float | None) -> bool:
        """Whether it finishes within the time (None: no limit, while the event loop lives).

        Raises:
            EventStoreError: the event loop was closed.
        """
        begun, waited = time.monotonic(), 0.0
        while not future.done():
            if timeout_s is not None and waited >= timeout_s:
                return False
            if self._loop.is_closed():
                raise EventStoreError("the event loop of a subscription was closed.")
            self._requests.wait(future, _CHECK_S)
            waited = time.monotonic() - begun
        return True

    async def _entered(self, callback: Awaitable[Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await callback
        finally:
            self._tasks.discard(task)
