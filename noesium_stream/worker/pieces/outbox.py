"""Pieces of answers on their way to the stream topic.

Decision record: pieces are for people who watch; the durable answer is in the journal. So they are written
beside the transactions, those that wait together in one append, and no run fails or stands still because of
them: while the log takes none they are dropped, which is said once. Their writer is held back while the log
takes them more slowly than he makes them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from itertools import count
from typing import Final, NamedTuple

from noesium_stream.errors import NoesiumError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog

MOST_WAITING: Final = 1_000
MOST_BYTES: Final = 4 * 1024 * 1024
"""Pieces, and their bytes, that wait to be written; further ones hold their writer back."""
BATCH: Final = 500
PATIENCE_S: Final = 5.0
"""How long an append may take."""
HOLD_S: Final = 1.0
"""How long a writer is held back, and a node's end waits for its pieces."""
_WIDTH: Final = 200


class _Waiting(NamedTuple):
    event: EventEnvelope
    size: int


class PieceOutbox:
    """The pieces of all runs of one agent in this process.

    Args:
        log: the log.
        tell: takes one line for people.

    Attributes:
        lost: how many pieces were dropped or not written.
    """

    def __init__(self, log: EventLog, tell: Callable[[str], None]) -> None:
        self.lost = 0
        self._log = log
        self._tell = tell
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._numbers = count()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._put = self._done = 0
        self._is_away = False
        self._closed = False

    def execution(self) -> int:
        """A number for an execution of a node; it grows with each call."""
        return next(self._numbers)

    async def put(self, event: EventEnvelope, size: int) -> None:
        """Hand in a piece; waits for room, and drops it if there is none for `HOLD_S`."""
        if self._is_full and not self._is_away:
            with suppress(TimeoutError):
                async with asyncio.timeout(HOLD_S):
                    while self._is_full and not self._is_away:
                        await self._changed.wait()
        self.offer(event, size)

    def offer(self, event: EventEnvelope, size: int) -> None:
        """Hand in a piece without waiting; drops it if there is no room."""
        if self._closed or self._is_full:
            self._lose(1, "the log takes them more slowly than they are made")
            return
        self._waiting.append(_Waiting(event, size))
        self._bytes += size
        self._put += 1
        if self._task is None or self._task.done():
            # Not in the context of the node that writes: the task outlives it.
            self._task = asyncio.get_running_loop().create_task(
                self._work(), name="noesium pieces", context=Context()
            )

    async def flush(self) -> None:
        """Return when the pieces that were handed in are written or lost, after `HOLD_S` at the latest."""
        target = self._put
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD_S):
                while self._done < target and not self._is_away:
                    await self._changed.wait()

    async def close(self) -> None:
        """Write what waits, if the log takes it."""
        await self.flush()
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES

    async def _work(self) -> None:
        """Write batch after batch until nothing waits."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._log.append_each([one.event for one in batch])
            except (NoesiumError, TimeoutError) as error:
                reason = error if isinstance(error, NoesiumError) else f"no answer for {PATIENCE_S:.0f} s"
                self._drop(batch, reason)
            else:
                self._is_away = False
                self._bytes -= sum(one.size for one in batch)
                self._finish(len(batch))

    def _drop(self, batch: list[_Waiting], reason: NoesiumError | str) -> None:
        """Give up these and all that wait: what the log takes next is new."""
        gone = len(batch) + len(self._waiting)
        self._lose(gone, reason if isinstance(reason, str) else brief(reason, _WIDTH))
        self._is_away = True
        self._waiting.clear()
        self._bytes = 0
        self._finish(gone)

    def _lose(self, number: int, reason: str) -> None:
        if not self.lost:
            self._tell(f"pieces of answers are lost, the answers are not: {reason}")
        self.lost += number

    def _finish(self, number: int) -> None:
        self._done += number
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
