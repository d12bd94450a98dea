"""The event loop of a checkpointer's log, reachable from any thread and any other loop.

An open log belongs to the loop that runs at the hand-over, and stays open afterwards. A log that is still to
be opened gets a loop in a thread of its own, so that synchronous calls work everywhere. Operations run one
after the other, in the order in which they were requested.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from noesium_stream.errors import ConfigError, LogClosedError
from noesium_stream.kernel.checkpointer.store import CheckpointStore
from noesium_stream.kernel.checkpointer.values import Values
from noesium_stream.log.port import EventLog

T = TypeVar("T")
Work = Callable[[CheckpointStore], Coroutine[Any, Any, T]]


class Home:
    """Runs operations on the store for callers on any loop or thread.

    Args:
        source: an open log, or the coroutine that opens it.
        values: the codec of bodies.

    Raises:
        ConfigError: an open log outside of a running event loop, or an awaitable that is bound to one.
    """

    def __init__(self, source: EventLog | Awaitable[EventLog], values: Values) -> None:
        self._values = values
        self._guard = threading.Lock()
        self._closed = False
        self._opening: asyncio.Task[CheckpointStore] | None = None
        self._turn = asyncio.Lock()
        self._busy: set[asyncio.Task[Any]] = set()
        self._log: EventLog | None = None
        self._coroutine: Coroutine[Any, Any, EventLog] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if inspect.iscoroutine(source):
            self._coroutine = source
        elif inspect.isawaitable(source):
            raise ConfigError(
                f"A {type(source).__name__} belongs to its event loop and cannot be opened on another one.",
                hint="Hand over the coroutine: LogCheckpointer(open_log(url)).",
            )
        else:
            self._log = source
            self._loop = _running()
            if self._loop is None:
                raise ConfigError(
                    "An open log is used on the event loop that it was opened on, and none is running here.",
                    hint="Hand over the coroutine: LogCheckpointer(open_log(url)).",
                )

    async def run(self, work: Work[T]) -> T:
        """Run `work` on the store, from any event loop; cancellation does not undo it."""
        loop = self._started()
        if loop is _running():
            return await asyncio.shield(asyncio.ensure_future(self._do(work)))
        future = asyncio.run_coroutine_threadsafe(self._do(work), loop)
        return await asyncio.shield(asyncio.wrap_future(future))

    def call(self, work: Work[T]) -> T:
        """Run `work` on the store and wait for it.

        Raises:
            ConfigError: called on the thread of the loop that would have to run it.
        """
        loop = self._started()
        if loop is _running():
            raise ConfigError(
                "A synchronous call would wait for the event loop that it holds up.",
                hint="Use the asynchronous methods (graph.ainvoke) here, or LogCheckpointer(open_log(url)), "
                "which has a thread of its own.",
            )
        return asyncio.run_coroutine_threadsafe(self._do(work), loop).result()

    def close(self) -> None:
        """Close the log if it was opened here; harmless when repeated."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        if self._thread is None or self._loop is None:
            if self._coroutine is not None:
                self._coroutine.close()
            return
        asyncio.run_coroutine_threadsafe(self._close_log(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        """The loop, started if necessary."""
        with self._guard:
            if self._closed:
                raise LogClosedError("The checkpointer is closed.", hint="Open the log again, and a new one.")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="noesium-checkpointer", daemon=True
                )
                self._thread.start()
            elif self._thread is None and not self._loop.is_running():
                raise LogClosedError(
                    "The event loop that the log was opened on is not running any more.",
                    hint="Use LogCheckpointer(open_log(url)), which has an event loop of its own.",
                )
            return self._loop

    async def _do(self, work: Work[T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            # Waiting here keeps the order in which operations were requested, from the first one on.
            async with self._turn:
                if self._opening is None:
                    self._opening = asyncio.ensure_future(self._open())
                return await work(await asyncio.shield(self._opening))
        finally:
            self._busy.discard(task)

    async def _open(self) -> CheckpointStore:
        if self._coroutine is None:
            assert self._log is not None
            return await CheckpointStore.open(self._log, self._values)
        log = self._log = await self._coroutine
        return await CheckpointStore.open(log, self._values)

    async def _close_log(self) -> None:
        """Finish the running operation, then close the log; on the own loop."""
        await asyncio.gather(*self._busy, return_exceptions=True)
        if self._log is not None:
            await self._log.close()
        elif self._coroutine is not None:
            self._coroutine.close()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
