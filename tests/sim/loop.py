"""An event loop with virtual time, in which several processes live, interleaved as a seed says.

What a process runs is its lane: all tasks and callbacks whose context names it. Within a lane callbacks run
in the order in which they were scheduled, as asyncio promises; which lane goes on next is chance. Time moves
when nobody can go on, to the next timer. A lane can be paused (its callbacks and timers wait), or killed:
nothing of it runs any more, not even what stands in `finally`.

The same seed gives the same run: futures and tasks are hashed by a number instead of their address, so that
sets of them are walked in the same order; what is given to an executor runs in the loop, a moment later. The
texts' hash seed has to be fixed from outside (`PYTHONHASHSEED`).
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final

MOST_AT_ONCE: Final = 8
"""So many callbacks of a lane run at most before another lane may have its turn."""

CALLBACK_S: Final = 1e-6
"""What a callback takes, in virtual time: whoever turns round and round does not stop the clock."""

_CLEARING_ROUNDS: Final = 50
_CLEARING_CALLBACKS: Final = 20_000


class StalledError(Exception):
    """Nobody can go on, and no timer is set: everything waits for something that never comes."""


class Lane:
    """The tasks and callbacks of one process.

    Attributes:
        steps: how many callbacks have run.
        fatal: at which of these the process dies before it runs; None: at none.
        rests: at which of these it is paused, and for how many seconds.
        last_words: what the system does when it dies.
    """

    def __init__(self, loop: SimLoop, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.ready: deque[events.Handle] = deque()
        self.tasks: list[SimTask] = []
        self.paused = False
        self.dead = False
        self.steps = 0
        self.fatal: int | None = None
        self.rests: dict[int, float] = {}
        self.last_words: list[Callable[[], object]] = []
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Lane {self.name}>"

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Begin a task of this process."""
        context = copy_context()
        context.run(_LANE.set, self)
        return self._loop.create_task(work, name=name, context=context)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Let this process do something after a while."""
        context = copy_context()
        context.run(_LANE.set, self)
        self._loop.call_later(delay_s, callback, *args, context=context)

    def kill(self) -> None:
        """End the process here: from now on nothing of it runs."""
        self.dead = True
        for last in self.last_words:
            last()

    def pause(self, seconds: float) -> None:
        """Stop the process for a while (SIGSTOP): time passes without it."""
        if self.dead or self.paused:
            return
        self.paused = True
        self._loop.outside.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self.paused = False


_LANE: ContextVar[Lane | None] = ContextVar("sim_lane", default=None)


def here() -> Lane:
    """The process that the calling code belongs to."""
    lane = _LANE.get()
    return lane if lane is not None else asyncio.get_running_loop().outside  # type: ignore[attr-defined,no-any-return]


class SimFuture(asyncio.Future[Any]):
    """A future that is hashed by its number."""

    def __new__(cls, number: int, **options: Any) -> SimFuture:
        self = super().__new__(cls)
        self.number = number  # type: ignore[attr-defined]
        return self

    def __init__(self, number: int, **options: Any) -> None:
        super().__init__(**options)

    def __hash__(self) -> int:
        return self.number  # type: ignore[attr-defined,no-any-return]


class SimTask(asyncio.Task[Any]):
    """A task that is hashed by its number."""

    def __new__(cls, number: int, coro: Any, **options: Any) -> SimTask:
        self = super().__new__(cls)
        self.number = number  # type: ignore[attr-defined]
        return self

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number  # type: ignore[attr-defined,no-any-return]


class _Ready:
    """What stands ready in all lanes: where asyncio's own loop has its queue."""

    def __init__(self, lanes: list[Lane]) -> None:
        self._lanes = lanes

    def __iter__(self) -> Iterator[events.Handle]:
        for lane in self._lanes:
            yield from lane.ready

    def __len__(self) -> int:
        return sum(len(lane.ready) for lane in self._lanes)

    def clear(self) -> None:
        for lane in self._lanes:
            lane.ready.clear()


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one simulated world.

    Args:
        chance: where all chance comes from.

    Attributes:
        outside: the lane of what belongs to no process.
        complaints: what the loop's exception handler was told.
        trace: a number that sums up which lane went on when; equal for equal runs.
    """

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.chance = chance
        self.complaints: list[dict[str, Any]] = []
        self.trace = 0
        self._now = 0.0
        self._numbers = 0
        self._lanes: list[Lane] = []
        self._ready: Any = _Ready(self._lanes)
        self.outside = self.lane("outside")
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda loop, context: self.complaints.append(context))

    def lane(self, name: str) -> Lane:
        """A new process."""
        lane = Lane(self, name, len(self._lanes))
        self._lanes.append(lane)
        return lane

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def create_future(self) -> SimFuture:
        self._numbers += 1
        return SimFuture(self._numbers, loop=self)

    def _make_task(self, loop: Any, coro: Any, context: Context | None = None) -> SimTask:
        self._numbers += 1
        lane = (_LANE.get() if context is None else context.get(_LANE)) or self.outside
        task = SimTask(self._numbers, coro, loop=self, context=context)
        lane.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> SimFuture:  # type: ignore[override]
        """Call it a moment later, in the loop."""
        future = self.create_future()
        self.call_later(self.chance.random() * 0.002, _call, future, func, args)
        return future

    def clear(self) -> None:
        """End all tasks, of dead processes too, so that nothing of them is left behind."""
        for lane in self._lanes:
            lane.dead = lane.paused = False
            lane.fatal = None
            lane.rests.clear()
        tasks = [task for lane in self._lanes for task in lane.tasks]
        for _ in range(_CLEARING_ROUNDS):
            tasks = [task for task in tasks if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self._run_some()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def _run_some(self) -> None:
        count = 0

        def stop_later() -> None:
            nonlocal count
            count += 1
            if count < _CLEARING_CALLBACKS // MOST_AT_ONCE and len(self._ready):
                self.call_soon(stop_later)
            else:
                self.stop()

        self.call_soon(stop_later)
        self.run_forever()

    # -- what asyncio's loop does otherwise ------------------------------------------------------------

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    def _put(self, handle: Any) -> None:
        lane: Lane = handle._context.get(_LANE) or self.outside
        lane.ready.append(handle)

    def _run_once(self) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while True:
            while scheduled and (scheduled[0]._cancelled or scheduled[0]._when <= self._now):
                handle = heapq.heappop(scheduled)
                handle._scheduled = False
                if not handle._cancelled:
                    self._put(handle)
            runnable = [lane for lane in self._lanes if lane.ready and not lane.paused and not lane.dead]
            if runnable or self._stopping:  # type: ignore[attr-defined]
                break
            if not scheduled:
                raise StalledError("nobody can go on")
            self._now = max(self._now, scheduled[0]._when)
        if runnable:
            chosen = runnable[int(self.chance.random() * len(runnable))] if len(runnable) > 1 else runnable[0]
            self._run_lane(chosen, 1 + int(self.chance.random() * MOST_AT_ONCE))

    def _run_lane(self, lane: Lane, most: int) -> None:
        self.trace = hash((self.trace, lane.number, lane.steps, round(self._now * 1e6)))
        ready = lane.ready
        for _ in range(most):
            if not ready or lane.paused or lane.dead:
                return
            lane.steps += 1
            if lane.steps == lane.fatal:
                lane.kill()
                return
            rest = lane.rests.pop(lane.steps, None) if lane.rests else None
            if rest is not None:
                lane.pause(rest)
                return
            handle = ready.popleft()
            self._now += CALLBACK_S
            if not handle._cancelled:
                handle._run()

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass


def _call(future: SimFuture, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        value = func(*args)
    except BaseException as error:
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(value)
