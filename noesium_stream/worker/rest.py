"""What a run has under way beside its waits: a run is parked only where that is provably nothing.

The body of a node may do in this process what no record tells: sleep with asyncio, bound a wait with
`asyncio.timeout`, compute beside a wait. Nothing would bring that back. So everything of the run that the
event loop knows is looked at, found by the run that its context names (a task, a timer, a callback inherits
the context of what made it):

 - each of its tasks awaits what this package waits in (`RunSession.waits_in`), be it by `gather`, `wait`, a
   task group, LangGraph's own frames, or in a thread that blocks in `Step.wait`,
 - no timer and no callback of it is pending.

Whatever else a task may await (a bare future, a queue, a socket, a thread that computes), and an event loop
that does not show its timers (uvloop): nothing is proven, and the run stays loaded, which costs memory only.

Not seen is what carries no context of the run: a thread of the body's own (`threading.Thread`) that nobody
waits for, a task made with another `context=` that nobody awaits, a callback of a socket (`add_reader`). It
ends or not, as after a crash, and its calls of `step` are refused once the run is parked.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextvars import Context
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any, Final

from noesium_stream.kernel.node import DurableNode
from noesium_stream.kernel.run_context import run_of
from noesium_stream.kernel.step import Step
from noesium_stream.worker.session import RunSession

_STOPS: Final[frozenset[CodeType]] = frozenset({Step.wait.__code__, DurableNode.invoke.__code__})
"""Where threads wait for what the run's event loop does for them."""

_RESULT: Final = concurrent.futures.Future.result.__code__

_POOLS: Final = frozenset({"concurrent.futures.thread", "noesium_stream.worker.threads"})
"""Whose threads have the future they work for at the bottom of their stack."""

_WAITED_FOR: Final[dict[tuple[str, str], Callable[[dict[str, Any]], Iterable[Any]]]] = {
    ("asyncio.tasks", "_wait"): lambda names: names["fs"],
    ("asyncio.taskgroups", "TaskGroup.__aexit__"): lambda names: names["self"]._tasks,
    # Woken by what the run's own tasks stream.
    ("langgraph._internal._queue", "AsyncQueue.wait"): lambda names: (),
}
"""Coroutines that await a future of their own: for which others that stands, by the coroutine's names."""

_CHAINED: Final = frozenset({"asyncio.futures", "langgraph._internal._future"})
"""Whose `_chain_future` lets one future end as another one does."""


class Rest:
    """What is under way in the running event loop at this moment.

    It is read once, whatever the number of runs, and holds until something gives way to the loop.
    """

    def __init__(self) -> None:
        loop: Any = asyncio.get_running_loop()
        self._tasks: defaultdict[object, set[asyncio.Task[Any]]] = defaultdict(set)
        self._busy: set[object] = set()
        self._readable = hasattr(loop, "_scheduled") and hasattr(loop, "_ready")
        if not self._readable:
            return
        for handle in (*loop._scheduled, *loop._ready):
            if not handle.cancelled():
                self._busy.add(_journal(getattr(handle, "_context", None)))
        for task in asyncio.all_tasks(loop):
            context = _context(task)
            self._readable = self._readable and context is not None
            self._tasks[_journal(context)].add(task)

    def __len__(self) -> int:
        """How many tasks there are, of all runs and of none."""
        return sum(map(len, self._tasks.values()))

    def proves(self, session: RunSession) -> bool:
        """Whether nothing in this process goes on with the run unless something wakes its session."""
        if not self._readable or session in self._busy or session.task is None:
            return False
        # Before its graph begins and after it has ended the run's own task has no context of it.
        tasks = self._tasks.get(session, set()) | {session.task}
        proof = _Proof(session, tasks)
        return all(proof.waits(task) for task in tasks)


class _Proof:
    """That the tasks of a run wait for its session alone."""

    def __init__(self, session: RunSession, tasks: set[asyncio.Task[Any]]) -> None:
        self._session = session
        self._tasks = tasks

    def waits(self, task: asyncio.Task[Any]) -> bool:
        awaited = getattr(task, "_fut_waiter", None)
        if awaited is None or awaited.done():
            return False  # it goes on at once
        if self._stands(awaited):
            return True
        frame = _innermost(task.get_coro())
        if frame is None:
            return False
        find = _WAITED_FOR.get((frame.f_globals.get("__name__", ""), frame.f_code.co_qualname))
        return find is not None and all(other.done() or self._stands(other) for other in find(frame.f_locals))

    def _stands(self, future: Any) -> bool:
        """Whether only the run's session or a task of the run ends this future."""
        if isinstance(future, concurrent.futures.Future):
            return _blocked(future)
        if isinstance(future, asyncio.Task):
            return future in self._tasks
        children = getattr(future, "_children", None)  # of `gather`
        if children is not None:
            return all(child.done() or self._stands(child) for child in children)
        if self._session.waits_in(future):
            return True
        source = _source(future)
        return source is not None and not source.done() and self._stands(source)


def _journal(context: Context | None) -> object:
    """The journal of the run that a context names; None: it names none."""
    run = None if context is None else run_of(context)
    return None if run is None else run.journal


def _context(task: Any) -> Context | None:
    """A task's context; None where it cannot be told."""
    get = getattr(task, "get_context", None)
    if get is not None:
        found = get()
    else:  # Python 3.11: a task refers to its own before those of its callbacks
        found = next((item for item in gc.get_referents(task) if isinstance(item, Context)), None)
    return found if isinstance(found, Context) else None


def _innermost(awaited: Any) -> FrameType | None:
    """The frame at the end of a chain of coroutines; None where it leads through something else."""
    frame: FrameType | None = None
    while awaited is not None:
        if isinstance(awaited, CoroutineType):
            frame, awaited = awaited.cr_frame, awaited.cr_await
        elif isinstance(awaited, AsyncGeneratorType):
            frame, awaited = awaited.ag_frame, awaited.ag_await
        elif isinstance(awaited, GeneratorType):
            frame, awaited = awaited.gi_frame, awaited.gi_yieldfrom
        elif type(awaited).__name__ in ("async_generator_asend", "coroutine_wrapper"):
            awaited = next(iter(gc.get_referents(awaited)), None)
            if awaited is None:
                return None
        else:
            break  # what the innermost one waits for
    return frame


def _source(future: Any) -> Any:
    """The future that this one is chained to; None: it is not."""
    for callback, _ in getattr(future, "_callbacks", None) or ():
        code = getattr(callback, "__code__", None)
        if code is None or getattr(callback, "__module__", None) not in _CHAINED:
            continue
        if code.co_name == "_call_check_cancel":
            return callback.__closure__[code.co_freevars.index("source")].cell_contents
    return None


def _blocked(source: object) -> bool:
    """Whether the thread that works for `source` stands still until the event loop has an answer for it."""
    for found in sys._current_frames().values():
        frame: FrameType | None = found
        while frame is not None and frame.f_globals.get("__name__") == "threading":
            frame = frame.f_back
        if frame is None or frame.f_code is not _RESULT or frame.f_locals["self"].done():
            continue
        frame = frame.f_back
        if frame is None or frame.f_code not in _STOPS:
            continue
        while frame is not None and frame.f_globals.get("__name__") not in _POOLS:
            frame = frame.f_back
        while frame is not None and frame.f_globals.get("__name__") in _POOLS:
            names, frame = frame.f_locals, frame.f_back
            if source in (names.get("future"), getattr(names.get("self"), "future", None)):
                return True
    return False
