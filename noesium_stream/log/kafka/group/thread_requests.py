"""Requests of other threads to the thread that owns a client.

Decision record: confluent-kafka lets one thread at a time into a consumer. Another thread's call spins until
it is let in, which never happens beside a thread that polls all the time. So others ask the owner's thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from noesium_stream.errors import LogClosedError

T = TypeVar("T")


class Requests:
    """A queue of functions to call on the owner's thread, in order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._bell: Future[None] = Future()
        self._closed = False

    def ask(self, function: Callable[[], T]) -> Future[T]:
        """Queue a function; the future gets its result or error: `LogClosedError` if nobody serves."""
        asked: Future[T] = Future()
        with self._lock:
            if self._closed:
                asked.set_exception(_closed())
                return asked
            self._waiting.append((function, asked))
            if not self._bell.done():
                self._bell.set_result(None)
        return asked

    def serve(self) -> None:
        """Call the waiting functions; on the owner's thread."""
        while True:
            with self._lock:
                if not self._waiting:
                    if self._bell.done():
                        self._bell = Future()
                    return
                function, asked = self._waiting.popleft()
            if not asked.set_running_or_notify_cancel():
                continue
            try:
                result = function()
            except BaseException as error:
                asked.set_exception(error)
            else:
                asked.set_result(result)

    def wait(self, future: Future[Any], timeout_s: float) -> None:
        """Wait for a future, at most `timeout_s`, and serve meanwhile; on the owner's thread."""
        wait((future, self._bell), timeout_s, FIRST_COMPLETED)
        self.serve()

    def close(self) -> None:
        """Stop serving: refuse waiting and later requests."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for _, asked in waiting:
            if asked.set_running_or_notify_cancel():
                asked.set_exception(_closed())


def _closed() -> LogClosedError:
    return LogClosedError("the subscription is closed.")
