"""Reads the pieces of one run's answer from the stream topic, as they come.

The topic keeps them for an hour and has nothing of the run's end, which is in the journal: the reader follows
both. When the run has ended, it reads what the stream has until then: a node's pieces are written before its
result is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Generic, TypeVar

from noesium_stream.client.shared.tail import closing, shared_tails
from noesium_stream.client.views.run_reader import Reader
from noesium_stream.errors import LogTruncatedError
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import RunStarted
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.log.stream_topic import Order, piece_in, stream_ends
from noesium_stream.log.topics import partition_of

T = TypeVar("T")
_LOGGER: Final = logging.getLogger(__name__)

LIFE: Final = (*ENDINGS, RunStarted.TYPE)
"""Types of the journal's records that a reader of pieces needs."""


class PieceReader(Generic[T]):
    """Reads the pieces of a run, each once; or its progress.

    Args:
        log: the log that has the run.
        run_id: id of the run.
        event_type: what is read.
        order: what was read before, and which of these records count.
        since: offsets of the stream topic below which there is no piece of the run.
    """

    def __init__(
        self,
        log: EventLog,
        run_id: str,
        event_type: str,
        order: Order[T],
        since: Mapping[int, int] | None = None,
    ) -> None:
        self._log = log
        self._topic = log.topology.stream
        self._run_id = run_id
        self._since = since
        self._types = (event_type,)
        self._order = order
        self._partition = 0
        self._next = 0

    async def read(self, life: Reader) -> AsyncGenerator[T, None]:
        """Yield the pieces until the run has ended.

        Args:
            life: the records of `LIFE` of the run's journal, to its end; it is closed.
        """
        ended = asyncio.create_task(self._ended(life))
        first = asyncio.create_task(self._first())
        try:
            await asyncio.wait((first, ended), return_when=asyncio.FIRST_COMPLETED)
            if not first.done() and not await self._has_topic():
                return  # the run has ended, and nobody has ever written a piece
            self._next = await first
            while not ended.done():
                async with aclosing(self._until(ended)) as live:
                    async for piece in live:
                        yield piece
            ended.result()
            async with aclosing(self._rest()) as rest:
                async for piece in rest:
                    yield piece
        finally:
            for task in (first, ended):
                task.cancel()
            await asyncio.gather(first, ended, return_exceptions=True)
            self._report()

    async def _has_topic(self) -> bool:
        return self._topic in await self._log.layout()

    async def _ended(self, life: Reader) -> None:
        async with aclosing(life) as records:
            async for record in records:
                self._order.agent_id = record.unchecked.producer.agent_id

    async def _first(self) -> int:
        """Return the offset to begin at; the topic may be a new one of its name, or shorter than it was."""
        ends = await stream_ends(self._log)
        self._partition = partition = partition_of(self._run_id, len(ends))
        wanted = self._order.offset
        if wanted is None and self._since is not None:
            wanted = self._since.get(partition)
        first = (await self._log.beginning(self._topic))[partition]
        return first if wanted is None or wanted > ends[partition] else max(wanted, first)

    async def _until(self, ended: asyncio.Task[None]) -> AsyncGenerator[T, None]:
        """Yield pieces as they come; return when the run has ended, or retention was faster."""
        place = TopicPartition(self._topic, self._partition)
        tails = shared_tails(self._log)
        source = tails.follow_batches(self._log, place, self._run_id, self._next, self._types)
        async with aclosing(_taken_until(source, ended)) as batches:
            try:
                async for batch in batches:
                    for record in batch:
                        piece = self._take(record)
                        if piece is not None:
                            yield piece
            except LogTruncatedError:
                self._next = (await self._log.beginning(self._topic))[self._partition]

    async def _rest(self) -> AsyncGenerator[T, None]:
        """Yield the pieces that are there and were not read yet."""
        end = (await self._log.end(self._topic))[self._partition]
        if self._next >= end:
            return
        until = {self._partition: end}
        source = self._log.read(self._topic, {self._partition: self._next}, until=until, types=self._types)
        async with closing(source) as records:
            async for record in records:
                piece = self._take(record)
                if piece is not None:
                    yield piece

    def _take(self, record: Record) -> T | None:
        self._next = record.offset + 1
        return piece_in(record, self._order) if record.key == self._run_id else None

    def _report(self) -> None:
        wrong = self._order.wrong()
        if wrong:
            _LOGGER.warning("records in the stream of run %s were dropped: %s", self._run_id, wrong)


async def _taken_until(
    source: AsyncGenerator[Sequence[Record], None], ended: asyncio.Task[None]
) -> AsyncGenerator[Sequence[Record], None]:
    """Yield the batches of an endless reader until the task is done; close it."""
    batch: asyncio.Future[Sequence[Record]] | None = None
    try:
        while True:
            batch = asyncio.ensure_future(anext(source))
            await asyncio.wait((batch, ended), return_when=asyncio.FIRST_COMPLETED)
            if not batch.done():
                return
            yield batch.result()
    finally:
        if batch is not None:
            batch.cancel()
            await asyncio.wait((batch,))
        await source.aclose()
