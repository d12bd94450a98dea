"""Pieces of the runs that this process's runs have called: one reader of the stream topic for all of them.

It reads while anybody listens, and a little longer: the next call is often near. It begins at the present end
of the topic: what came before is not told, and what the log does not give is lost, as pieces may be.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Final

from noesium_stream.errors import LogTruncatedError, NoesiumError, TopicNotFoundError, brief
from noesium_stream.event.rules.stream_pieces import PIECE, Piece, PieceOrder
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.log.stream_topic import piece_in, stream_ends
from noesium_stream.log.topics import partition_of

MOST_WAITING: Final = 1_000
"""Records that wait for one listener; further ones are lost."""
LINGER_S: Final = 30.0
"""How long the topic is read after the last listener has gone."""
CATCH_UP_S: Final = 1.0
"""How long the end of a call waits for pieces that were written before it."""
_PAUSE_S: Final = 1.0
_WIDTH: Final = 200


class Listener:
    """The pieces of one call, of whichever provider has it at last.

    Args:
        arrivals: of the process.
    """

    def __init__(self, arrivals: PieceArrivals) -> None:
        self._arrivals = arrivals
        self._order: PieceOrder | None = None
        self._records: asyncio.Queue[Record] = asyncio.Queue(MOST_WAITING)
        self._run_id: str | None = None
        self._again = False

    async def open(self) -> None:
        """See `IncomingPieces.open`."""
        await self._arrivals.open(self)

    def expect(self, run_id: str, agent_type: str, agent_id: str) -> None:
        """See `IncomingPieces.expect`."""
        if run_id == self._run_id:
            return
        self._again = self._order is not None and self._order.offset is not None
        self._arrivals.move(self, self._run_id, run_id)
        self._run_id = run_id
        self._order = PieceOrder(run_id, agent_type)
        self._order.agent_id = agent_id

    async def next(self) -> Piece:
        """See `IncomingPieces.next`."""
        while True:
            piece = self._piece(await self._records.get())
            if piece is not None:
                return piece

    async def rest(self) -> Sequence[Piece]:
        """See `IncomingPieces.rest`."""
        if self._run_id is not None:
            await self._arrivals.catch_up(self._run_id)
        found = []
        while not self._records.empty():
            piece = self._piece(self._records.get_nowait())
            if piece is not None:
                found.append(piece)
        return found

    def close(self) -> None:
        """See `IncomingPieces.close`."""
        self._arrivals.forget(self, self._run_id)

    def take(self, record: Record) -> None:
        """Take a record of the expected run; if too many wait already, it is lost."""
        with suppress(asyncio.QueueFull):
            self._records.put_nowait(record)

    def _piece(self, record: Record) -> Piece | None:
        if self._order is None or record.key != self._run_id:
            return None  # of a provider that has failed
        piece = piece_in(record, self._order)
        if piece is None:
            return None
        self._order.offset = record.offset + 1
        again, self._again = self._again, False
        return piece.begun_again() if again else piece


class PieceArrivals:
    """The one reader of a process.

    Args:
        log: the log.
        tell: takes one line for people.
    """

    def __init__(self, log: EventLog, tell: Callable[[str], None]) -> None:
        self._log = log
        self._tell = tell
        self._listeners: set[Listener] = set()
        self._of_run: defaultdict[str, set[Listener]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._next: dict[int, int] | None = None
        self._asked = asyncio.Event()
        self._read = asyncio.Event()
        self._closing: asyncio.TimerHandle | None = None
        self._told = False

    async def open(self, listener: Listener) -> None:
        """Follow the topic for this listener too; returns when nothing that is written from now on is missed.

        A log that has not said where it ends for `CATCH_UP_S` is waited for no longer, and gives no error:
        the pieces until it does are missed.
        """
        self._listeners.add(listener)
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if self._task is None or self._task.done() or self._task.cancelling():
            self._next, self._asked = None, asyncio.Event()
            # Not in the context of the node that calls: the task outlives it.
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._follow(), name="noesium arriving pieces", context=Context())
        try:
            async with asyncio.timeout(CATCH_UP_S):
                await self._asked.wait()
        except TimeoutError as error:
            self._say(error)

    def move(self, listener: Listener, old: str | None, new: str) -> None:
        """Give a listener the records of another run."""
        self._drop(listener, old)
        self._of_run[new].add(listener)

    def forget(self, listener: Listener, run_id: str | None) -> None:
        """Give a listener nothing any more; the last one ends the reading after a while."""
        self._drop(listener, run_id)
        if listener not in self._listeners:
            return
        self._listeners.remove(listener)
        if not self._listeners and self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(LINGER_S, self._stop)

    async def catch_up(self, run_id: str) -> None:
        """Return when all that the topic has of a run now was given out, after `CATCH_UP_S` at last."""
        if self._task is None or self._task.done() or self._next is None:
            return
        with suppress(TimeoutError, NoesiumError):
            async with asyncio.timeout(CATCH_UP_S):
                ends = await self._log.end(self._log.topology.stream)
                partition = partition_of(run_id, len(ends))
                while self._next is not None and self._next.get(partition, 0) < ends[partition]:
                    await self._read.wait()

    async def close(self) -> None:
        """End the reading."""
        if self._closing is not None:
            self._closing.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _drop(self, listener: Listener, run_id: str | None) -> None:
        if run_id is not None:
            self._of_run[run_id].discard(listener)
            if not self._of_run[run_id]:
                del self._of_run[run_id]

    def _stop(self) -> None:
        self._closing = None
        if self._task is not None and not self._listeners:
            self._task.cancel()

    async def _follow(self) -> None:
        while True:
            try:
                if self._next is None:
                    self._next = dict(await stream_ends(self._log))
                    self._asked.set()
                await self._read_on(self._next)
            except (LogTruncatedError, TopicNotFoundError) as error:
                self._next = None
                self._say(error)
            except NoesiumError as error:
                self._say(error)
            self._asked.set()
            await asyncio.sleep(_PAUSE_S)

    async def _read_on(self, next_: dict[int, int]) -> None:
        """Give out what is written from `next_` on, and note there what was."""
        source = self._log.read_batches(self._log.topology.stream, next_, types=(PIECE,))
        try:
            async for batch in source:
                for record in batch:
                    next_[record.partition] = record.offset + 1
                    for listener in self._of_run.get(record.key, ()):
                        listener.take(record)
                read, self._read = self._read, asyncio.Event()
                read.set()
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    def _say(self, error: NoesiumError | TimeoutError) -> None:
        if not self._told:
            reason = brief(error, _WIDTH) if isinstance(error, NoesiumError) else "no answer"
            self._tell(f"pieces of called runs may be lost, the answers are not: {reason}")
        self._told = True
