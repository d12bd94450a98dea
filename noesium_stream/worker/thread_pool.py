"""Thread pool for sync nodes and the sync code that they call.

A sync node that makes a call (`Step.run_sync`, a subgraph's `invoke`) keeps its thread until the answer is
there. The answering code may need a thread as well: a sync effect, a sync node of the subgraph. asyncio's own
pool has only a few more threads than the machine has cores; as many such nodes at the same time would wait
for one another for ever.

An ending process does not wait for these threads, as it does for those of asyncio's pool. A worker has waited
for its effects already (`grace`), and the result of a thread that still runs cannot be recorded any more.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Any, Final, TypeVar

MAX_THREADS: Final = 1_000
"""Most threads; they are created when needed. A run that waits for long is evicted and frees its threads."""

LINGER_S: Final = 0.5
"""How long `Threads.shutdown` waits for working threads, in seconds."""

SWITCH_S: Final = 0.001
"""Time after which a thread that waits for the interpreter gets it, in seconds.

Kafka's client needs the interpreter for each record of a commit: with Python's default of 5 ms a commit of
ten records waited 50 ms for a busy event loop."""

_T = TypeVar("_T")
_Job = tuple[Future[Any], Callable[[], Any]]


def make_room_for_threads() -> None:
    """Give the running loop a large thread pool, unless the program has set one."""
    loop: Any = asyncio.get_running_loop()
    chosen = getattr(loop, "_default_executor", None)
    if chosen is None or getattr(chosen, "_thread_name_prefix", "") == "asyncio":
        loop.set_default_executor(Threads(MAX_THREADS))


def take_turns_sooner() -> None:
    """Lower the interpreter's switch interval to `SWITCH_S`; a shorter one stays as it is."""
    if sys.getswitchinterval() > SWITCH_S:
        sys.setswitchinterval(SWITCH_S)


class Threads(ThreadPoolExecutor):
    """A pool of daemon threads, created when they are needed.

    asyncio accepts only a `ThreadPoolExecutor`; an ending process waits for that class's own threads without
    a time limit.

    Args:
        most: most threads.
    """

    def __init__(self, most: int) -> None:
        super().__init__(most, "noesium")
        self._most = most
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._changed = Condition()
        self._made = self._open_jobs = 0
        self._closed = False

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """See `Executor.submit`.

        Raises:
            RuntimeError: the pool is closed.
        """
        future: Future[_T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._open_jobs += 1
            self._jobs.put((future, lambda: fn(*args, **kwargs)))
            if self._open_jobs > self._made and self._made < self._most:
                self._made += 1
                Thread(target=self._work, name=f"noesium_{self._made}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`; wait for `LINGER_S` at most, then cancel the jobs that have not begun."""
        with self._changed:
            self._closed = True
            if wait:
                self._changed.wait_for(lambda: not self._open_jobs, LINGER_S)
            while not self._jobs.empty():
                job = self._jobs.get()
                if job is not None:
                    job[0].cancel()
            for _ in range(self._made):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _do(*job)
            del job  # free its arguments now, not when the next job comes
            with self._changed:
                self._open_jobs -= 1
                self._changed.notify_all()


def _do(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(value)
    finally:
        del future, call  # break the cycle: the error refers to this frame, the future to the error
