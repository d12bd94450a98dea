"""Exceptions of user code that do not derive from `Exception`: they fail the run, not the process.

`sys.exit()` in a node would end the process with the node's exit code, and then each process that takes the
run over. An unrequested cancellation would leave the run open in silence. Both fail the run, as any other
error does. What the runtime itself raises passes through: a cancellation of this task, the end of a
coroutine, Ctrl-C.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from noesium_stream.errors import NodeExecutionError, brief
from noesium_stream.kernel.failure_location import where_of


def failure_of_code(error: BaseException, task: asyncio.Task[Any] | None) -> Exception | None:
    """The failure of a run that `error` stands for; None: the runtime raised it.

    Args:
        error: the exception that left the code.
        task: the task that called the code.
    """
    if isinstance(error, Exception):
        return error
    if _is_of_the_runtime(error, task):
        return None
    kind = type(error).__name__
    said = f"sys.exit({error.code!r})" if isinstance(error, SystemExit) else brief(error)
    failure = NodeExecutionError(
        f"{kind}: {said}",
        hint="Raise an Exception: what ends a process does not end a run.",
        recorded=(kind, said),
        where=where_of(error),
    )
    failure.__cause__ = error
    return failure.with_traceback(error.__traceback__)


def _is_of_the_runtime(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        return task is None or _current() is not task  # a coroutine that is closed when it is dropped
    return isinstance(error, KeyboardInterrupt) and not _came_from_a_thread(error)


def _current() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _came_from_a_thread(error: BaseException) -> bool:
    """Whether the exception came from a thread; a signal's is raised in the main thread."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") in _POOLS:
            return True
        trace = trace.tb_next
    return threading.current_thread() is not threading.main_thread()


_POOLS = frozenset({"concurrent.futures.thread", "noesium_stream.worker.thread_pool"})
