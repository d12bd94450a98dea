"""The commits of a handler's partition: what is made while one is under way goes into the next.

Decision record: a commit costs the broker as much as a hundred events, and most of its time is waiting. So
events are handled on while the commit of those before is under way; where many more are there to be read the
next one waits until there are `MOST_EVENTS`, or `LINGER_S` have gone by. Who has read all that is there waits
for nothing: a lone event is committed at once. Measured on eight partitions and two processors: what is
gathered for a second, instead of a quarter of one, is twice as large a commit, and a tenth more is handled.

Where so many wait behind a commit that is under way nothing more is handled: an event may have thousands made
of it, and what a commit has must be sent within the time that a transaction may take.

Order is the guarantee: what was handled goes to the log in the order of its offsets, one commit at a time.
When one has failed none follows it, for what was handled since stands on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from noesium_stream.errors import LogClosedError
from noesium_stream.log.port import Outgoing

MOST_EVENTS: Final = 5_000
"""Handled, or made of them: with so many a commit waits for no more."""

MOST_BYTES: Final = 4_000_000
"""The same, by the size of what was handled."""

LINGER_S: Final = 1.0
"""For so long at most it waits for more."""


class Made:
    """What was made of events, on its way to the log.

    Attributes:
        outgoing: the events that were made.
        handled: how many they were made of.
        size: the bytes of those.
        cursor: behind the last one of them.
        on_log: done when all of it is on the log; raises why it is not.
    """

    __slots__ = ("cursor", "handled", "on_log", "outgoing", "size")

    def __init__(self) -> None:
        self.outgoing: list[Outgoing] = []
        self.handled = 0
        self.size = 0
        self.cursor = 0
        self.on_log: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: Exception) -> None:
        """It will never be on the log."""
        if not self.on_log.done():
            self.on_log.set_exception(error)
            self.on_log.exception()  # asked for here: who handed it over may be gone


class Commits:
    """Hands over what was made, from the opening of a writer until it is lost or given up.

    Args:
        commit: writes the events that were made of so many, and that all before an offset is dealt with.
        on_log: told of what is on the log.
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
        """Why nothing goes to the log any more."""

    @property
    def idle(self) -> bool:
        """Whether all that was made is on the log."""
        return self._next is None and self._under_way is None and self.lost is None

    def add(self, outgoing: Sequence[Outgoing], handled: int, size: int, cursor: int, *, more: bool) -> Made:
        """Take what was made of the next events.

        Args:
            outgoing: made of them.
            handled: how many they are; there may be none.
            size: their bytes.
            cursor: behind them.
            more: whether many more are about to come.
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
        """Return when what waits is less than a whole commit, or nothing goes to the log any more."""
        while self.lost is None and self._under_way is not None and _is_large(self._next):
            await asyncio.wait((self._under_way,))

    def hurry(self) -> None:
        """Wait for no more."""
        self._more = False
        self._go_on()

    async def settle(self) -> bool:
        """Send what there is, and wait; whether all of it is on the log."""
        while self.lost is None and (self._next is not None or self._under_way is not None):
            self.hurry()
            if self._under_way is not None:
                await asyncio.wait((self._under_way,))
        return self.lost is None

    async def close(self) -> None:
        """Send nothing more; returns when nothing is under way."""
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
    """Whether it is enough for one commit."""
    if made is None:
        return False
    return max(made.handled, len(made.outgoing)) >= MOST_EVENTS or made.size >= MOST_BYTES
