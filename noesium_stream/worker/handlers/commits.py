"""Commits of a handler's partition: events made during a commit go into the next one.

Decision record: a commit costs the broker as much as a hundred events, and most of its time is waiting. So
further events are handled while a commit is under way. If many more are ready to be read, the next commit
waits until there are `MOST_EVENTS`, or until `LINGER_S` have passed. A handler that has read all events does
not wait: a lone event is committed at once. Measured on eight partitions and two processors: events gathered
for a second, instead of a quarter of one, make commits twice as large, and a tenth more events are handled.

If as many events wait behind a commit under way, no further event is handled: thousands of events may be made
of one, and all events of a commit must be sent within the time limit of a transaction.

Order is the guarantee: handled events are committed in the order of their offsets, one commit at a time. No
commit follows a failed one, because what was handled later builds on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from noesium_stream.errors import LogClosedError
from noesium_stream.log.port import Outgoing

MOST_EVENTS: Final = 5_000
"""Number of handled or made events with which a commit does not wait for more."""

MOST_BYTES: Final = 4_000_000
"""Bytes of handled events with which a commit does not wait for more."""

LINGER_S: Final = 1.0
"""Longest wait of a commit for more events, in seconds."""


class Made:
    """The content of one commit: events made from handled events.

    Attributes:
        outgoing: the events that were made.
        handled: number of handled events.
        size: bytes of the handled events.
        cursor: offset behind the last handled event.
        on_log: done when the commit is on the log; raises the error of a failed one.
    """

    __slots__ = ("cursor", "handled", "on_log", "outgoing", "size")

    def __init__(self) -> None:
        self.outgoing: list[Outgoing] = []
        self.handled = 0
        self.size = 0
        self.cursor = 0
        self.on_log: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: Exception) -> None:
        """Fail: the commit will never be on the log."""
        if not self.on_log.done():
            self.on_log.set_exception(error)
            self.on_log.exception()  # marks it as retrieved: the waiting caller may be gone


class Commits:
    """Groups made events into commits, one at a time, as long as the writer is open.

    Args:
        commit: writes one commit, given its cursor, the number of handled events and the made events.
        on_log: called with each commit that is on the log.
    """

    def __init__(
        self,
        commit: Callable[[int, int, Sequence[Outgoing]], Awaitable[None]],
        on_log: Callable[[Made], None],
    ) -> None:
        self._commit = commit
        self._on_log = on_log
        self._next: Made | None = None
        self._more = False
        self._under_way: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.lost: Exception | None = None
        """The error after which nothing is committed any more."""

    @property
    def idle(self) -> bool:
        """Whether all events made so far are on the log."""
        return self._next is None and self._under_way is None and self.lost is None

    def add(self, outgoing: Sequence[Outgoing], handled: int, size: int, cursor: int, *, more: bool) -> Made:
        """Add the events made from the next handled events.

        Args:
            outgoing: the made events.
            handled: number of handled events; may be 0.
            size: bytes of the handled events.
            cursor: offset behind the last handled event.
            more: whether many more events are about to come.
        """
        made = self._next
        if made is None:
            made = Made()
            if self.lost is not None:
                made.fail(self.lost)
                return made
            self._next = made
        made.outgoing += outgoing
        made.handled += handled
        made.size += size
        made.cursor = cursor
        self._more = more
        self._go_on()
        return made

    async def room(self) -> None:
        """Return when the next commit has room, or nothing is committed any more."""
        while self.lost is None and self._under_way is not None and _is_large(self._next):
            await asyncio.wait((self._under_way,))

    def hurry(self) -> None:
        """Commit without waiting for more events."""
        self._more = False
        self._go_on()

    async def settle(self) -> bool:
        """Commit all events made so far; return whether they are on the log."""
        while self.lost is None and (self._next is not None or self._under_way is not None):
            self.hurry()
            if self._under_way is not None:
                await asyncio.wait((self._under_way,))
        return self.lost is None

    async def close(self) -> None:
        """Stop committing; return when no commit is under way."""
        self._lose(LogClosedError("the partition was given up"))
        if self._under_way is not None:
            await asyncio.wait((self._under_way,))

    def _go_on(self) -> None:
        made = self._next
        if made is None or self._under_way is not None or self.lost is not None:
            return
        if self._more and not _is_large(made):
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.hurry)
            return
        self._stop_timer()
        self._next = None
        if made.handled:
            self._under_way = asyncio.create_task(self._send(made), name="a handler's commit")
        else:
            self._done(made)

    async def _send(self, made: Made) -> None:
        try:
            await self._commit(made.cursor, made.handled, made.outgoing)
        except Exception as error:
            self._lose(error)
            made.fail(error)
        except asyncio.CancelledError:
            self._lose(LogClosedError("the commit was broken off"))
            made.fail(LogClosedError("the commit was broken off"))
            raise
        else:
            self._done(made)
        finally:
            self._under_way = None
            self._go_on()

    def _done(self, made: Made) -> None:
        self._on_log(made)
        if not made.on_log.done():
            made.on_log.set_result(None)

    def _lose(self, error: Exception) -> None:
        self._stop_timer()
        self.lost = self.lost or error
        made, self._next = self._next, None
        if made is not None:
            made.fail(self.lost)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_large(made: Made | None) -> bool:
    """Whether the content is enough for one commit."""
    if made is None:
        return False
    return max(made.handled, len(made.outgoing)) >= MOST_EVENTS or made.size >= MOST_BYTES
