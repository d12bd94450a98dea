"""Code that a node calls and that lies in another file than the node."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from contextvars import Context
from queue import SimpleQueue
from threading import Thread
from typing import Any


def deep(n: int) -> float:
    return deep(n - 1) if n else time.time()


async def later() -> float:
    await asyncio.sleep(0)
    return time.time()


class Pool:
    """One thread that was there before, and takes the caller's context along."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._thread = Thread(target=self._work)
        self._thread.start()

    async def run(self, context: Context, function: Any, *args: Any) -> Any:
        future: Future[Any] = Future()
        self._queue.put((future, context, function, args))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            future, context, function, args = job
            try:
                future.set_result(context.run(function, *args))
            except BaseException as error:
                future.set_exception(error)
