"""Owning a partition: taking it, losing it, taking it again, giving it up.

One machine for agents with runs and for handlers. What an ownership consists of is a `Tenure`: one object,
made when the partition is taken and dropped whole when it is lost.

A group that gives a partition waits for its member's callback, and so do the member's other partitions. So
the callback waits `TAKING_S` at most. What takes longer (a long journal, a state that is folded anew, another
process that takes the partition too, a log that is away) goes on beside it; once the partition is taken, it
is read from where its tenure starts, whatever the group has handed over meanwhile.

A journal that cannot be read stops its partition and no other. It stays assigned here, and nothing of its
inbox is dealt with, until the worker is started again or the group gives it to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from noesium_stream.errors import (
    CheckpointError,
    CorruptRecordError,
    LogFullError,
    LogUnavailableError,
    NoesiumError,
    brief,
)
from noesium_stream.event.standard import PartitionStatus
from noesium_stream.kernel.graph.durable_node import NO_LONGER_OWNER
from noesium_stream.log.record import Record
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.ownership.assignment import Assignment

TAKING_S: Final = 2.0
"""For so long the group waits for a partition to be taken."""

PASSING: Final = (*NO_LONGER_OWNER, LogUnavailableError, LogFullError)
"""Errors that do not keep a partition from being taken a moment later."""

UNREADABLE: Final = (CheckpointError, CorruptRecordError)
"""Errors of a journal that has to be restored; they stop its partition."""

_PAUSE_S: Final = 0.25
_REASON_LENGTH: Final = 500


class Tenure(Protocol):
    """One tenure of a partition, from the first commit of its writer until `end`."""

    @property
    def start(self) -> int:
        """Offset of the next record to deal with, when the partition was taken."""

    @property
    def open_runs(self) -> int:
        """How many runs of the partition are open."""

    def status(self, handled: int | None) -> PartitionStatus:
        """Status of the partition; `handled` is where the group's reader stands in it, if it reads it."""

    async def accept(self, records: Sequence[Record]) -> None:
        """Deal with the next records; returns when all are dealt with on the log, or kept for later."""

    def begin(self) -> None:
        """Deal with records from now on.

        Raises:
            CommitUnknownError: the tenure was lost by now.
        """

    async def end(self, *, orderly: bool) -> None:
        """Let go of everything; harmless when repeated.

        Args:
            orderly: the partition is given up, and not lost: what is under way may come to its end.
        """


T = TypeVar("T", bound=Tenure)


class PartitionOwner(Generic[T]):
    """Owns one partition from `take` to `release`, one tenure after the other.

    Args:
        context: of the partition.
        assignment: what the group says of it.
        open_tenure: takes the partition; raises one of `PASSING` where that may succeed a moment later.
        on_change: called when it was taken beside the group, or stopped.
        on_taken: called with the context when it was taken.
        on_failure: called with what keeps it from being taken, where nobody waits for that.

    Attributes:
        tenure: the tenure that deals with records; None: the partition is being taken, stopped, or given up.
        stopped: why the partition is stopped; None: it is not.
    """

    def __init__(
        self,
        context: PartitionContext,
        assignment: Assignment,
        open_tenure: Callable[[PartitionOwner[T]], Awaitable[T]],
        *,
        on_change: Callable[[], None] = lambda: None,
        on_taken: Callable[[PartitionContext], None] = lambda context: None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.tenure: T | None = None
        self.context = context
        self.stopped: NoesiumError | None = None
        self._on_failure = on_failure
        self._assignment = assignment
        self._open_tenure = open_tenure
        self._on_change = on_change
        self._on_taken = on_taken
        self._task: asyncio.Task[int | None] | None = None
        self._held: T | None = None
        self._beside = False
        self._released = False

    async def take(self) -> int | None:
        """Take the partition; return the next offset to deal with.

        None: it is taken by and by, is stopped, or was given up.

        Raises what keeps it from being taken for good.
        """
        if self._released:
            return None
        task = self._task = asyncio.create_task(self._take(None), name=f"take {self.context.name}")
        await asyncio.wait((task,), timeout=TAKING_S)
        if task.done():
            return None if task.cancelled() else task.result()
        self._go_on(task)
        return None

    def lose(self, error: Exception, tenure: T | None = None) -> None:
        """Take the partition again after its loss, unless it is given up or the group gives it to others.

        Args:
            error: by which it was lost.
            tenure: the one that was lost; an earlier one than the current one changes nothing.
        """
        if tenure is not None and tenure is not self._held:
            return
        self.tenure = None
        if self.stopped is None and not self._released and (self._task is None or self._task.done()):
            self._go_on(asyncio.create_task(self._take(error), name=f"take {self.context.name} again"))

    def fail(self, error: BaseException) -> None:
        """Stop the partition if its journal cannot be read; any other error is the worker's."""
        if not isinstance(error, UNREADABLE):
            self._on_failure(error)
        elif self.stopped is None:
            self._stop(error)
            if not self._released and (self._task is None or self._task.done()):
                self._go_on(asyncio.create_task(self._end_lost(), name=f"stop {self.context.name}"))

    def _stop(self, error: NoesiumError) -> None:
        self.tenure, self.stopped = None, error
        what = f"{self.context.name} is stopped, other partitions go on: {error.message}"
        line = f"{what} {error.hint or ''} Then start the worker again."
        self.context.progress(" ".join(line.split()))
        self._on_change()

    async def _end_lost(self) -> None:
        await _unbroken(self._end(orderly=False))

    async def release(self) -> None:
        """Give the partition up: what is under way comes to its end, the writer closes."""
        self._released = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self.tenure = None
        await self._end(orderly=True)

    @property
    def open_runs(self) -> int:
        """How many runs of the partition are open."""
        return 0 if self.tenure is None else self.tenure.open_runs

    def status(self, handled: int | None) -> PartitionStatus | None:
        """Status of the partition; None: it is being taken, or given up.

        Args:
            handled: where the group's reader stands in the partition, if it reads it.
        """
        if self.stopped is not None:
            return PartitionStatus(
                partition=self.context.partition,
                epoch=0,
                next_offset=0,
                open_runs=0,
                topic=self.context.inbox,
                stopped=brief(self.stopped, _REASON_LENGTH),
            )
        return None if self.tenure is None else self.tenure.status(handled)

    def accept(self, records: Sequence[Record]) -> Coroutine[Any, Any, None]:
        """Deal with the next records; see `Tenure.accept`.

        What comes while the partition is not owned here is passed over: it is read again once it is, and the
        member's other partitions do not wait for that. So is what was handed over in an earlier tenure and is
        awaited in this one: records may be missing before it.
        """
        return self._accept(self.tenure, records)

    async def _accept(self, tenure: T | None, records: Sequence[Record]) -> None:
        if tenure is not None and tenure is self.tenure:
            await tenure.accept(records)

    def _go_on(self, task: asyncio.Task[int | None]) -> None:
        self._task, self._beside = task, True
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[int | None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.fail(error)

    async def _end(self, *, orderly: bool) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.end(orderly=orderly)

    async def _take(self, error: Exception | None) -> int | None:
        while True:
            try:
                if error is not None:
                    await _unbroken(self._end(orderly=False))
                    await self.context.clock.sleep(_PAUSE_S)
                    if not await self._assignment.still_here():
                        self.context.progress(
                            f"{self.context.name}: the group has given it to another worker"
                        )
                        self._released = True
                        return None
                    self.context.progress(f"{self.context.name}: taking it again after: {error}")
                held = self._held = await self._open_tenure(self)
                if self._beside:
                    await self._assignment.start_at(held.start)
                # Between the seek and this nothing gives way: records that the group handed over before
                # belong to no tenure.
                held.begin()
            except PASSING as again:
                error = again
                continue
            except UNREADABLE as unreadable:
                await self._end_lost()
                self._stop(unreadable)
                return None
            self.tenure = held
            self._on_taken(self.context)
            if self._beside:
                self._on_change()
            return held.start


async def _unbroken(call: Awaitable[None]) -> None:
    """Await it to its end, also when cancelled: what is let go of in part stays open."""
    task = asyncio.ensure_future(call)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        task.exception()  # asked for here: nobody else will
        raise
