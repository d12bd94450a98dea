"""The store of `memory://`: partitions with transactions, as a broker has them.

It is strict on purpose, so that code that works here works on Kafka. Records of an open transaction take
their offsets when they are written, hold back committed readers of their partition (last stable offset) and
lie below the high watermark. Commit and abort write a control marker that uses an offset. A commit is
acknowledged before its markers are written. A new writer of an id waits for them and aborts the open
transaction of the previous one. A fenced writer's records vanish, and it learns of it at its commit.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import LogTruncatedError
from noesium_stream.event.sealing.keys import KeyRing
from noesium_stream.log.embedded.group import MemberTenure
from noesium_stream.log.embedded.store import Bounds, Topic
from noesium_stream.log.embedded.wakeup import Signal
from noesium_stream.log.headers import CE_TYPE, TypeFilter, header_value, keeps_undeclared
from noesium_stream.log.members import tenure_ended
from noesium_stream.log.memory.group import GroupTable
from noesium_stream.log.port import Headers, Position
from noesium_stream.log.prepare import Prepared, headers_of_text
from noesium_stream.log.record import Decoder, Record
from noesium_stream.log.topics import TopicSpec

MOST_YIELDS: Final = 4
"""Largest number of event-loop turns in a seeded pause."""


class Txn:
    """A transaction: its records become visible when it is committed and its markers are written."""

    __slots__ = ("committed", "parts")

    def __init__(self) -> None:
        self.committed = False
        self.parts: set[tuple[str, int]] = set()


class Entry:
    """A record in a partition; a control marker if `record` is None."""

    __slots__ = ("commit", "offset", "record", "timestamp_ms", "txn")

    def __init__(
        self, offset: int, timestamp_ms: int, record: Prepared | None, txn: Txn | None, commit: Headers = ()
    ) -> None:
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.record = record
        self.txn = txn
        self.commit = commit


class Partition:
    """Entries by offset, the first retained offset, and the open transactions of a partition."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.first = 0
        self.end = 0
        self.open: dict[Txn, int] = {}
        self._last_ms = 0

    @property
    def stable(self) -> int:
        """The last stable offset: below it, every transaction has ended."""
        return min(self.open.values(), default=self.end)

    def put(self, now_ms: int, record: Prepared | None, txn: Txn | None, commit: Headers = ()) -> int:
        """Append one entry; its time never runs backwards."""
        offset = self.end
        if now_ms > self._last_ms:
            self._last_ms = now_ms
        self.entries.append(Entry(offset, self._last_ms, record, txn, commit))
        self.end = offset + 1
        return offset

    def truncate(self, before: int) -> None:
        """Drop entries below `before`."""
        self.first = max(self.first, min(before, self.end))
        del self.entries[: self.index(self.first)]

    def index(self, offset: int) -> int:
        """Index of the first entry at or after `offset`; entries follow each other without gaps."""
        return min(max(offset - self.entries[0].offset, 0), len(self.entries)) if self.entries else 0


class MemoryStore:
    """Topics of one process, shared by all logs of one name; see `Store`."""

    def __init__(self, clock: Clock, seed: int | None = None) -> None:
        self.changes = Signal()
        self.lock = threading.RLock()
        self.clock = clock
        self.subject_keys = KeyRing()
        self.groups: dict[str, GroupTable] = {}
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Txn] = {}
        self.logs = 0
        self._topics: dict[str, Topic] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._random = None if seed is None else random.Random(seed)
        self._markers: dict[Txn, asyncio.Task[None]] = {}

    def check(self, tenure: MemberTenure | None, what: str) -> None:
        """Raise `TenureEndedError` if the group has given the partition to another member."""
        if tenure is not None:
            group, member, tp, epoch = tenure
            if not self.groups.setdefault(group, GroupTable()).leaves(tp, member, epoch):
                raise tenure_ended(tp, what)

    async def pause(self) -> None:
        """Yield to other tasks for some turns, as many as the seed says."""
        if self._random is not None:
            for _ in range(self._random.randrange(MOST_YIELDS)):
                await asyncio.sleep(0)

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self._topics.get(name)

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return sorted(self._topics.values())

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create the missing topics."""
        with self.lock:
            for spec in specs:
                if spec.name not in self._topics:
                    topic = Topic(spec.name, spec.partitions, spec.retention_ms, self.clock.token(16), 0)
                    for number in range(spec.partitions):
                        self._partitions[spec.name, number] = Partition()
                    self._topics[spec.name] = topic

    def partition(self, topic: str, number: int) -> Partition:
        """One partition."""
        return self._partitions[topic, number]

    def append(self, records: Sequence[Prepared], partitions: Sequence[int]) -> list[Position]:
        """Write records outside of any transaction."""
        now_ms = self.clock.now_ms()
        with self.lock:
            positions = [
                Position(record.topic, number, self.partition(record.topic, number).put(now_ms, record, None))
                for record, number in zip(records, partitions, strict=True)
            ]
        self.changes.notify({position[:2] for position in positions})
        return positions

    def write(self, txn: Txn, records: Sequence[Prepared], commits: Sequence[Headers]) -> list[Position]:
        """Write records of an open transaction."""
        now_ms = self.clock.now_ms()
        positions = []
        with self.lock:
            for record, commit in zip(records, commits, strict=True):
                tp = record[:2]
                partition = self._partitions[tp]
                offset = partition.put(now_ms, record, txn, commit)
                if txn not in partition.open:
                    partition.open[txn] = offset
                    txn.parts.add(tp)
                positions.append(Position(*tp, offset))
        return positions

    def finish(self, txn: Txn, *, commit: bool) -> None:
        """End a transaction; under a seed its markers come later, partition by partition."""
        txn.committed = commit
        if self._random is None:
            self.write_markers(txn)
        elif txn.parts:
            self._markers[txn] = asyncio.get_running_loop().create_task(self._write_markers_later(txn))

    def write_markers(self, txn: Txn) -> None:
        """Write the missing markers of a transaction at once."""
        with self.lock:
            for tp in sorted(txn.parts):
                self._mark(txn, tp)
        self.changes.notify(txn.parts)

    async def markers_written(self) -> None:
        """Wait until no ended transaction has markers outstanding."""
        while self._markers:
            await asyncio.wait(list(self._markers.values()))

    async def _write_markers_later(self, txn: Txn) -> None:
        try:
            for tp in sorted(txn.parts):
                await self.pause()
                with self.lock:
                    self._mark(txn, tp)
                self.changes.notify((tp,))
        finally:
            self.write_markers(txn)
            del self._markers[txn]

    def _mark(self, txn: Txn, tp: tuple[str, int]) -> None:
        partition = self._partitions[tp]
        if txn in partition.open:
            partition.put(self.clock.now_ms(), None, txn)
            del partition.open[txn]

    def fetch(
        self, topic: str, number: int, offset: int, limit: int, keep: TypeFilter | None, decoder: Decoder
    ) -> tuple[list[Record], int]:
        """Committed records from `offset` on, and the next offset to read."""
        partition = self._partitions[topic, number]
        if offset >= partition.end:
            return [], offset  # every commit wakes every reader, and most find nothing
        with self.lock:
            if offset < partition.first:
                raise LogTruncatedError(topic, number, offset, partition.first)
            stable = partition.stable
            start = partition.index(offset)
            entries = partition.entries[start : start + limit]
        records: list[Record] = []
        for entry in entries:
            if entry.offset >= stable:
                return records, max(offset, stable)
            record = entry.record
            if record is None or (entry.txn is not None and not entry.txn.committed):
                continue
            if keep is None or _wanted(record, keep, decoder):
                records.append(_record(topic, number, entry, record, decoder))
        return records, entries[-1].offset + 1 if entries else max(offset, stable)

    def bounds(self, topic: Topic, partitions: Iterable[int]) -> list[Bounds]:
        """First retained offset and high watermark of these partitions."""
        found = [self.partition(topic.name, number) for number in partitions]
        return [Bounds(partition.first, partition.end) for partition in found]

    def size(self, topic: Topic) -> tuple[int, int]:
        """The number of records (aborted ones included, markers not) and their bytes."""
        partitions = [self.partition(topic.name, number) for number in range(topic.partitions)]
        records = [entry.record for partition in partitions for entry in partition.entries if entry.record]
        return len(records), sum(len(record.key) + len(record.text) + len(record.value) for record in records)

    def truncate(self, topic: Topic, number: int, before: int) -> None:
        """Remove records below `before`."""
        with self.lock:
            self.partition(topic.name, number).truncate(before)
        self.changes.notify(((topic.name, number),))


def _wanted(record: Prepared, keep: TypeFilter, decoder: Decoder) -> bool:
    event_type = record.text.partition("\n")[0]
    if event_type:
        return keep.keeps_name(event_type)
    value = header_value(record.extra, CE_TYPE)
    if value is not None:
        return keep.keeps(value)
    return keeps_undeclared(keep, record.value, decoder.decode_unchecked)


def _record(topic: str, number: int, entry: Entry, record: Prepared, decoder: Decoder) -> Record:
    headers = partial(_headers, record.text, record.extra, entry.commit)
    return Record(topic, number, entry.offset, entry.timestamp_ms, record.key, headers, record.value, decoder)


def _headers(text: str, extra: Headers, commit: Headers) -> list[tuple[str, bytes]]:
    return [*(headers_of_text(text.encode()) if text else ()), *extra, *commit]
