"""Taking a handler's partition, for as long as the group leaves it here: beside the group, not within it.

A group that gives a partition waits for its member's callback, and so do the member's other partitions. So
the callback waits `TAKING_S` at most. What takes longer (a state that is folded anew, somebody else who takes
the partition too, a log that is away) goes on beside it, and once the partition is taken it is read from
where its owner stands, whatever the group has handed over meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import LogFullError, LogUnavailableError
from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.worker.acquiring import Assignment

TAKING_S: Final = 1.0
"""For so long the group waits for a partition to be taken."""

PASSING: Final = (*NO_LONGER_OWNER, LogUnavailableError, LogFullError)
"""What does not keep a partition from being taken a moment later."""

_PAUSE_S: Final = 0.25


class Takeover:
    """How one partition comes to be owned here, and again when it was lost.

    Args:
        name: of the partition, for people.
        acquire: takes it; returns the next offset to handle.
        let_go: gives up what is left of an ownership.
        assignment: what the group says of the partition.
        clock: for pauses.
        progress: takes one line for people.
        on_taken: told when it is taken beside the group.
        on_failure: told what keeps it from being taken, where nobody waits for that.

    Attributes:
        taken: it is owned here, and what comes from the group can be handled.
        turn: how often it was taken: what was handed over in an earlier turn is read again.
    """

    def __init__(
        self,
        name: str,
        acquire: Callable[[], Awaitable[int]],
        let_go: Callable[[], Awaitable[None]],
        assignment: Assignment,
        clock: Clock,
        progress: Callable[[str], None],
        on_taken: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._name = name
        self._acquire = acquire
        self._let_go = let_go
        self._assignment = assignment
        self._clock = clock
        self._progress = progress
        self._on_taken = on_taken
        self._on_failure = on_failure
        self._task: asyncio.Task[int | None] | None = None
        self._beside = False
        self._stopped = False
        self.taken = False
        self.turn = 0

    async def begin(self) -> int | None:
        """Take it; return the next offset to handle, or None: that is not known yet, or it was given up.

        Raises what keeps it from being taken for good.
        """
        if self._stopped:
            return None
        task = self._task = asyncio.create_task(self._take(None), name=f"take {self._name}")
        await asyncio.wait((task,), timeout=TAKING_S)
        if task.done():
            return None if task.cancelled() else task.result()
        self._go_on(task)
        return None

    def again(self, error: Exception) -> None:
        """It was lost: take it again, unless it is given up or the group gives it to others."""
        self.taken = False
        if not self._stopped and (self._task is None or self._task.done()):
            self._go_on(asyncio.create_task(self._take(error), name=f"take {self._name} again"))

    async def stop(self) -> None:
        """It is given up: nobody takes it any more. Harmless when repeated."""
        self._stopped, self.taken = True, False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _go_on(self, task: asyncio.Task[int | None]) -> None:
        self._task, self._beside = task, True
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[int | None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._on_failure(error)

    async def _take(self, error: Exception | None) -> int | None:
        while True:
            try:
                if error is not None:
                    self._progress(f"{self._name}: taking it again after: {error}")
                    await _unbroken(self._let_go())
                    await self._clock.sleep(_PAUSE_S)
                    if not await self._assignment.still_here():
                        self._progress(f"{self._name}: the group has given it to another worker")
                        return None
                start = await self._acquire()
                if self._beside:
                    await self._assignment.start_at(start)
            except PASSING as again:
                error = again
                continue
            # Between the seek and this nothing gives way: what the group has handed over before is not taken.
            self.turn += 1
            self.taken = True
            if self._beside:
                self._on_taken()
            return start


async def _unbroken(call: Awaitable[None]) -> None:
    """Await it to its end, also when cancelled: what is let go of in part stays open."""
    task = asyncio.ensure_future(call)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        task.exception()  # asked for here: nobody else will
        raise
