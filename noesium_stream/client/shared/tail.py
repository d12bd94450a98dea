"""Live readers of partitions that all who wait in this process share.

A run's handle waits for records of one key in one partition, and hundreds of them may wait at once. With a
reader each, the broker would send every record hundreds of times: one reader per partition reads for all, and
hands each record to those who wait for its key.

- Whoever begins below the shared reader's place takes what lies between from what the reader still has, or
  reads it by itself: nobody waits while others catch up.
- Whoever does not take its records is cut off at a bound, and reads them by itself later: nobody is held up,
  and nothing piles up.
- A reader for which nobody waits is closed after a while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from itertools import chain
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from noesium_stream.client.shared.answers import SharedAnswers
from noesium_stream.clock import SystemClock
from noesium_stream.errors import CorruptRecordError, EventStoreError, LogClosedError, LogTruncatedError
from noesium_stream.event.standard import RequestForwarded
from noesium_stream.log.headers import CE_TYPE, TypeFilter, header_value, shared_filter
from noesium_stream.log.port import EventLog, TopicPartition, Types
from noesium_stream.log.record import Record, is_wanted

IDLE_S: Final = 5.0
"""How long a shared reader outlives the last one who waits, in seconds: the next run starts soon."""
MAX_WAITING: Final = 1_000
"""Records that wait for one who does not take them."""
MAX_WAITING_BYTES: Final = 4 * 2**20
RECENT: Final = 10_000
"""Records that a shared reader still has: many come while a command is appended."""
RECENT_BYTES: Final = 8 * 2**20
BACK: Final = 1_000
"""Offsets that a shared reader may begin before the end."""

T = TypeVar("T")
_FORWARDED: Final = RequestForwarded.TYPE.encode()


class SharedTails:
    """The shared readers of one log; get it by `shared_tails`."""

    def __init__(self) -> None:
        self._tails: dict[TopicPartition, _Tail] = {}
        self._ends = SharedAnswers[dict[int, int]](SystemClock().monotonic, 0.0)

    async def follow(
        self, log: EventLog, place: TopicPartition, key: str, first: int, types: Types = None
    ) -> AsyncGenerator[Record, None]:
        """Yield the records of a key from an offset on, in order, each once, and wait for new ones.

        A forwarding of a run's command (`request.forwarded`) counts to the run's key, too.

        Raises:
            LogTruncatedError: retention has removed what comes next.
            TopicNotFoundError, LogUnavailableError, LogCorruptError
        """
        async with aclosing(self.follow_batches(log, place, key, first, types)) as batches:
            async for batch in batches:
                for record in batch:
                    yield record

    async def follow_batches(
        self, log: EventLog, place: TopicPartition, key: str, first: int, types: Types = None
    ) -> AsyncGenerator[Sequence[Record], None]:
        """As `follow`, in batches as they arrive."""
        keep = None if types is None else shared_filter(frozenset(types))
        while True:
            tail = await self._tail(log, place, first)
            with tail.joined(key, keep) as waiter:
                try:
                    async with aclosing(tail.between(first, waiter.since, key, keep, types)) as missed:
                        async for batch in missed:
                            first = batch[-1].offset + 1
                            yield batch
                    first = max(first, waiter.since)
                    async for batch in waiter:
                        fresh = [record for record in batch if record.offset >= first]
                        if fresh:
                            first = fresh[-1].offset + 1
                            yield fresh
                except LogTruncatedError:
                    # Perhaps another one had begun too far back.
                    if first < (await log.beginning(place.topic))[place.partition]:
                        raise

    async def end(self, log: EventLog, place: TopicPartition) -> int:
        """An offset that lies not above the end of the partition; calls at the same time share one request.

        Raises:
            TopicNotFoundError, LogUnavailableError
        """
        tail = self._tails.get(place)
        if tail is not None and not tail.ended:
            return tail.position
        ends = await self._ends.get(place.topic, partial(log.end, place.topic))
        return ends[place.partition]

    async def _tail(self, log: EventLog, place: TopicPartition, first: int) -> _Tail:
        tail = self._tails.get(place)
        if tail is None or tail.ended:
            end = await self.end(log, place)
            tail = self._tails.get(place)  # another one may have been faster
        if tail is None or tail.ended:
            start = first if 0 <= end - first <= BACK else end
            tail = self._tails[place] = _Tail(log, place, start, self._leave)
        return tail

    def _leave(self, tail: _Tail) -> None:
        if self._tails.get(tail.place) is tail:
            del self._tails[tail.place]

    async def close(self) -> None:
        """End all readers; who still waits is told that the log is closed by the log itself."""
        tails = list(self._tails.values())
        for tail in tails:
            tail.stop()
        await asyncio.gather(*(tail.task for tail in tails), return_exceptions=True)


class _Tail:
    """One shared reader.

    Attributes:
        position: the next offset that it will hand out.
        ended: whether it hands out nothing any more.
    """

    def __init__(
        self, log: EventLog, place: TopicPartition, start: int, leave: Callable[[_Tail], None]
    ) -> None:
        self.place = place
        self.position = start
        self.ended = False
        self._log = log
        self._floor = start
        self._recent: deque[tuple[Record, tuple[str, ...]]] = deque()
        self._recent_of: dict[str, deque[Record]] = {}
        self._recent_bytes = 0
        self._waiters: dict[str, list[_Waiter]] = {}
        self._leave = leave
        self._closing: asyncio.TimerHandle | None = None
        self.task = asyncio.create_task(self._read(), name=f"follow {place.topic}/{place.partition}")

    @contextmanager
    def joined(self, key: str, keep: TypeFilter | None) -> Iterator[_Waiter]:
        """A waiter that gets every record of the key from `position` on."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        waiter = _Waiter(self.position, keep)
        self._waiters.setdefault(key, []).append(waiter)
        try:
            yield waiter
        finally:
            alike = self._waiters[key]
            alike.remove(waiter)
            if not alike:
                del self._waiters[key]
            if not self._waiters and not self.ended:
                self._closing = asyncio.get_running_loop().call_later(IDLE_S, self.stop)

    async def between(
        self, first: int, until: int, key: str, keep: TypeFilter | None, types: Types
    ) -> AsyncGenerator[Sequence[Record], None]:
        """Yield the records of a key between two offsets, the second of which was handed out to all."""
        if first >= until:
            return
        if first >= self._floor:
            recent = (one for one in self._recent_of.get(key, ()) if first <= one.offset < until)
            if found := [record for record in recent if _wanted(record, keep)]:
                yield found
            return
        topic, partition = self.place
        source = self._log.read_batches(
            topic, {partition: first}, until={partition: until}, types=types, partitions=(partition,)
        )
        async with closing(source) as batches:
            async for batch in batches:
                if found := [record for record in batch if key in _keys(record)]:
                    yield found

    def stop(self) -> None:
        """End at once."""
        self.ended = True
        self._leave(self)
        self.task.cancel()

    async def _read(self) -> None:
        topic, partition = self.place
        source = self._log.read_batches(topic, {partition: self.position}, partitions=(partition,))
        error: BaseException = LogClosedError("the log is closed.")
        try:
            async with closing(source) as batches:
                async for batch in batches:
                    self._take(batch)
        except Exception as failure:
            error = failure
            if not isinstance(failure, EventStoreError) and not self._waiters:
                raise
        finally:
            self.ended = True
            self._leave(self)
            for waiter in chain.from_iterable(self._waiters.values()):
                waiter.fail(error)

    def _take(self, batch: Sequence[Record]) -> None:
        waiters, recent, recent_of = self._waiters, self._recent, self._recent_of
        for record in batch:
            keys = _keys(record)
            for key in keys:
                for waiter in waiters.get(key, ()):
                    waiter.put(record)
                recent_of.setdefault(key, deque()).append(record)
            recent.append((record, keys))
            self._recent_bytes += len(record.value)
        self.position = batch[-1].offset + 1
        while len(recent) > RECENT or self._recent_bytes > RECENT_BYTES:
            gone, keys = recent.popleft()
            self._recent_bytes -= len(gone.value)
            self._floor = gone.offset + 1
            for key in keys:
                recent_of[key].popleft()
                if not recent_of[key]:
                    del recent_of[key]


class _Waiter:
    """The records for one who waits: iterates over them, and ends when it was cut off.

    Args:
        since: the offset from which on it gets them.
        keep: which types; None: all.
    """

    def __init__(self, since: int, keep: TypeFilter | None) -> None:
        self.since = since
        self._keep = keep
        self._records: list[Record] = []
        self._bytes = 0
        self._cut_off = False
        self._error: BaseException | None = None
        self._changed = asyncio.Event()

    def put(self, record: Record) -> None:
        """Give it a record of its key."""
        if self._cut_off or not _wanted(record, self._keep):
            return
        self._records.append(record)
        self._bytes += len(record.value)
        self._cut_off = len(self._records) >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """Let it end with an error, after the records that it has."""
        self._error = error
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[Sequence[Record]]:
        while True:
            if self._records:
                batch, self._records, self._bytes = self._records, [], 0
                yield batch
                continue
            if self._cut_off:
                return
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()


def _wanted(record: Record, keep: TypeFilter | None) -> bool:
    return keep is None or is_wanted(record, keep)


def _keys(record: Record) -> tuple[str, ...]:
    """The keys of those for whom it is: its own, and that of the run whose command it hands on."""
    if header_value(record.raw_headers, CE_TYPE) != _FORWARDED:
        return (record.key,)
    try:
        return record.key, str(record.unchecked.payload["run_id"])
    except CorruptRecordError:
        return (record.key,)


@asynccontextmanager
async def closing(source: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close a reader on exit, even early: it holds a consumer, which must not wait for the collector."""
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()


_TAILS: WeakKeyDictionary[EventLog, SharedTails] = WeakKeyDictionary()


def shared_tails(log: EventLog) -> SharedTails:
    """The shared readers of a log in this process."""
    found = _TAILS.get(log)
    if found is None:
        found = _TAILS[log] = SharedTails()
    return found
