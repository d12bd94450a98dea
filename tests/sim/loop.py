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
from bisect import insort
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

MOST_AT_ONCE: Final = 8
"""So many callbacks of a lane run at most before another lane may have its turn."""

CALLBACK_S: Final = 1e-6
"""What a callback takes, in virtual time: whoever turns round and round does not stop the clock."""

_new: Final = object.__new__

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
        context: of what it does later.
        listed: the loop has it among those that may have the next turn.
    """

    def __init__(self, loop: SimLoop, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.ready: deque[_Call] = deque()
        self.listed = False
        self.tasks: list[SimTask] = []
        self.paused = False
        self.dead = False
        self.steps = 0
        self.fatal: int | None = None
        self.rests: dict[int, float] = {}
        self.last_words: list[Callable[[], object]] = []
        self._loop = loop
        self.context = copy_context()
        self.context.run(_LANE.set, self)

    def __repr__(self) -> str:
        return f"<Lane {self.name}>"

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Begin a task of this process."""
        context = copy_context()
        if context.get(_LANE) is not self:
            context.run(_LANE.set, self)
        return self._loop.create_task(work, name=name, context=context)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Let this process do something after a while."""
        self._loop.call_later(delay_s, callback, *args, context=self.context)

    def kill(self) -> None:
        """End the process here: from now on nothing of it runs."""
        self.dead = True
        self._loop.rests(self)
        for last in self.last_words:
            last()

    def pause(self, seconds: float) -> None:
        """Stop the process for a while (SIGSTOP): time passes without it."""
        if self.dead or self.paused:
            return
        self.paused = True
        self._loop.rests(self)
        self._loop.outside.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self.paused = False
        self._loop.goes_on(self)


_LANE: ContextVar[Lane | None] = ContextVar("sim_lane", default=None)


def here() -> Lane:
    """The process that the calling code belongs to."""
    lane = _LANE.get()
    return lane if lane is not None else asyncio.get_running_loop().outside  # type: ignore[attr-defined,no-any-return]


class SimFuture(asyncio.Future[Any]):
    """A future that is hashed by its number."""

    __slots__ = ("number",)

    number: int

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[Any]):
    """A task that is hashed by its number, which it has when it is hashed first: while it is made."""

    number = 0

    def __hash__(self) -> int:
        if not self.number:
            self.number = self.get_loop().next_number()  # type: ignore[attr-defined]
        return self.number


class _Call:
    """A callback that waits for its turn: an `asyncio.Handle` without what only the debug mode wants.

    There are thousands in a play; the loop makes them without `__init__`, which would be half of their cost.
    """

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "lane")

    _callback: Any
    _args: Any
    _context: Context
    _cancelled: bool
    lane: Lane

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None

    def cancelled(self) -> bool:
        return self._cancelled

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._callback} of {self.lane.name}>"


class _Timer(_Call):
    """A callback that waits for its time."""

    __slots__ = ("_when",)

    _when: float

    def when(self) -> float:
        """In virtual seconds."""
        return self._when


class _Timers:
    """What waits for its time: where asyncio's own loop has a heap of handles."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, _Timer]] = []

    def __iter__(self) -> Iterator[_Call]:
        return (timer for _, _, timer in self.heap)

    def __len__(self) -> int:
        return len(self.heap)

    def clear(self) -> None:
        self.heap.clear()


class _Ready:
    """What stands ready in all lanes: where asyncio's own loop has its queue."""

    def __init__(self, lanes: list[Lane]) -> None:
        self._lanes = lanes

    def __iter__(self) -> Iterator[_Call]:
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
        self._timers_set = 0
        self._numbers = 0
        self._lanes: list[Lane] = []
        self._can_run: list[int] = []
        self._ready: Any = _Ready(self._lanes)
        self._scheduled: Any = _Timers()
        self._timers = self._scheduled.heap
        self.outside = self.lane("outside")
        self.set_exception_handler(lambda loop, context: self.complaints.append(context))

    def lane(self, name: str) -> Lane:
        """A new process."""
        lane = Lane(self, name, len(self._lanes))
        self._lanes.append(lane)
        return lane

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def next_number(self) -> int:
        """For what is to be hashed by a number."""
        self._numbers += 1
        return self._numbers

    def create_future(self) -> SimFuture:
        future = SimFuture(loop=self)
        self._numbers += 1
        future.number = self._numbers
        return future

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> SimTask:
        task = SimTask(coro, loop=self, name=name or "task", context=context)
        lane = (_LANE.get() if context is None else context.get(_LANE)) or self.outside
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
            self.goes_on(lane)
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
        for lane in self._lanes:  # what holds itself would be left to the collector of garbage
            lane.tasks.clear()
            lane.last_words.clear()

    def _run_some(self) -> None:
        count = 0

        def stop_later() -> None:
            nonlocal count
            count += 1
            if count < _CLEARING_CALLBACKS // MOST_AT_ONCE and any(lane.ready for lane in self._lanes):
                self.call_soon(stop_later)
            else:
                self.stop()

        self.call_soon(stop_later)
        self.run_forever()

    # -- what asyncio's loop does otherwise ------------------------------------------------------------

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> _Call:  # type: ignore[override]
        call = _new(_Call)
        call._callback = callback
        call._args = args
        call._cancelled = False
        call._context = context = copy_context() if context is None else context
        call.lane = lane = context.get(_LANE) or self.outside
        lane.ready.append(call)
        if not lane.listed:
            self.goes_on(lane)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> _Timer:
        timer = _new(_Timer)
        timer._callback = callback
        timer._args = args
        timer._cancelled = False
        timer._context = context = copy_context() if context is None else context
        timer.lane = context.get(_LANE) or self.outside
        self._timers_set = number = self._timers_set + 1
        timer._when = when = self._now + delay
        heappush(self._timers, (when, number, timer))
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> _Timer:
        return self.call_later(when - self._now, callback, *args, context=context)

    def goes_on(self, lane: Lane) -> None:
        """The lane is one of those that may have the next turn, if there is anything that it may do."""
        if lane.ready and not lane.listed and not lane.paused and not lane.dead:
            lane.listed = True
            insort(self._can_run, lane.number)

    def rests(self, lane: Lane) -> None:
        """The lane has no turn until it goes on."""
        if lane.listed:
            lane.listed = False
            self._can_run.remove(lane.number)

    def _run_once(self) -> None:
        """Give one lane its turn after the other, until the loop is stopped."""
        timers, can_run, lanes, random = self._timers, self._can_run, self._lanes, self.chance.random
        while True:
            while timers:
                when, _, timer = timers[0]
                if not timer._cancelled:
                    if when > self._now:
                        break
                    lane = timer.lane
                    lane.ready.append(timer)
                    if not lane.listed:
                        self.goes_on(lane)
                heappop(timers)
            if can_run:
                chosen = can_run[int(random() * len(can_run))] if len(can_run) > 1 else can_run[0]
                self._run_lane(lanes[chosen], 1 + int(random() * MOST_AT_ONCE))
            if self._stopping:  # type: ignore[attr-defined]
                return
            if not can_run:
                if not timers:
                    raise StalledError("nobody can go on")
                self._now = max(self._now, timers[0][0])

    def _run_lane(self, lane: Lane, most: int) -> None:
        self.trace = hash((self.trace, lane.number, lane.steps, round(self._now * 1e6)))
        ready = lane.ready
        for _ in range(most):
            lane.steps = steps = lane.steps + 1
            if steps == lane.fatal:
                lane.kill()
                return
            if lane.rests and (rest := lane.rests.pop(steps, None)) is not None:
                lane.pause(rest)
                return
            call = ready.popleft()
            self._now += CALLBACK_S
            if not call._cancelled:
                try:
                    call._context.run(call._callback, *call._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    said = f"Exception in callback {call._callback}"
                    self.call_exception_handler({"message": said, "exception": error, "handle": call})
            if not lane.listed:
                return
            if not ready:
                self.rests(lane)
                return

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
