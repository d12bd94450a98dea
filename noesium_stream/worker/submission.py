"""What was handed to the committer, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from noesium_stream.log.port import Outgoing


class Submission:
    """Records that belong together, on their way to the log.

    It ends once. Each who waits has a future of its own, which is set then: every step of every run waits
    here, and one that is shared and shielded takes a turn of the event loop more.

    Args:
        records: what goes to the log.

    Attributes:
        ended: whether it is known what became of it; the records are not kept then.
        error: why it is not on the log; None while that is open, and where it is.
        on_end: called with it when it ends.
    """

    __slots__ = ("_waiting", "ended", "error", "on_end", "records")

    def __init__(self, records: Sequence[Outgoing]) -> None:
        self.records = records
        self.ended = False
        self.error: Exception | None = None
        self.on_end: Callable[[Submission], None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def end(self, error: Exception | None = None) -> None:
        """It is on the log, or will never be; the first word counts.

        Who has submitted it may end it with an error while it has not been sent: it will not be.
        """
        if self.ended:
            return
        self.ended, self.error = True, error
        if self.on_end is not None:
            self.on_end(self)
        self.records, self.on_end = (), None
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def wait(self) -> None:
        """Return when it is on the log; that somebody who waits is cancelled changes nothing for it.

        Raises:
            Exception: why it is not.
        """
        await self.settled()
        if self.error is not None:
            raise self.error

    async def settled(self) -> None:
        """Return when it has ended, one way or the other."""
        if not self.ended:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
