"""What comes out of user code and is no `Exception`: it fails its run, not the process of many runs.

`sys.exit()` in a node would end the process with the node's exit code, and the next one that takes the run
over, and the next; a cancellation that nobody asked for would leave the run open in silence. Both fail the
run, as any other error does. What the runtime itself raises goes on its way: a cancellation of this task, the
end of a coroutine, Ctrl-C.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from noesium_stream.errors import NodeExecutionError, brief
from noesium_stream.kernel.failure_place import where_of


def failure_of_code(error: BaseException, task: asyncio.Task[Any] | None) -> Exception | None:
    """The failure that `error` is for a run; None: it is the runtime's.

    Args:
        error: what came out of the code.
        task: the one that called it.
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
        return task is None or _current() is not task  # a coroutine that is closed, by whoever drops it
    return isinstance(error, KeyboardInterrupt) and not _came_from_a_thread(error)


def _current() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _came_from_a_thread(error: BaseException) -> bool:
    """A signal's is raised in the main thread, whose frames begin elsewhere."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") in _POOLS:
            return True
        trace = trace.tb_next
    return threading.current_thread() is not threading.main_thread()


_POOLS = frozenset({"concurrent.futures.thread", "noesium_stream.worker.threads"})
