"""Threads for what waits in one: sync nodes, and what they wait for.

A sync node that calls something (`Step.wait`, a subgraph's `invoke`) keeps its thread until the answer is
there, and what answers may need a thread as well: a sync effect, a sync node of the subgraph. asyncio's own
pool has a few more threads than the machine has cores: as many such nodes at once would wait for one another
for ever.

Nor does the process wait for them when it ends, as it does for those of asyncio's pool: a worker has waited
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
"""Made when they are needed; a run that waits for long is parked and gives its threads back."""

LINGER_S: Final = 0.5
"""For so long `Threads.shutdown` waits for those that are at work."""

SWITCH_S: Final = 0.001
"""A thread that waits for the interpreter gets it after this. Kafka's client asks for it at each record of a
commit: with Python's own 5 ms a commit of ten records waited 50 ms for an event loop that is at work."""

_T = TypeVar("_T")
_Job = tuple[Future[Any], Callable[[], Any]]


def make_room_for_threads() -> None:
    """Give the running loop a pool with room, unless the program has chosen one."""
    loop: Any = asyncio.get_running_loop()
    chosen = getattr(loop, "_default_executor", None)
    if chosen is None or getattr(chosen, "_thread_name_prefix", "") == "asyncio":
        loop.set_default_executor(Threads(MAX_THREADS))


def take_turns_sooner() -> None:
    """Let threads have the interpreter soon while the event loop is at work; what is sooner already stays."""
    if sys.getswitchinterval() > SWITCH_S:
        sys.setswitchinterval(SWITCH_S)


class Threads(ThreadPoolExecutor):
    """A pool of daemon threads, made when they are needed.

    asyncio takes nothing but a `ThreadPoolExecutor`, whose own threads a process waits for without an end.

    Args:
        most: how many there are at most.
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
        """See `Executor.shutdown`; waits for `LINGER_S` at most, and what has not begun by then does not."""
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
            del job  # what it was given is not kept until the next one comes
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
        del future, call  # an error holds this frame, and the future the error
