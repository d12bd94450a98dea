"""The partitions in a SQLite file: bounds, reads and truncation.

Decision record: every partition has a table, whose key is the offset of a chunk's first record. The next
offset follows from the last key and its count, so no row has to be kept for it. If two processes place their
chunks at the same offset, one violates the key, or, if the conflicting chunk was truncated meanwhile, the
trigger. A chunk without data was removed, but keeps its place. With all partitions in one table a commit
would insert into the middle of a tree: it wrote 13 KB to the `-wal` file, at the end 5. A row's data is a
chunk or, later, a block of chunks, whose time is that of the last one (`packing`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from noesium_stream.errors import EventStoreError, LogCorruptError, LogTruncatedError
from noesium_stream.log.embedded.store import Bounds, Topic
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.port import TopicPartition
from noesium_stream.log.record import Decoder, Record
from noesium_stream.log.sqlite.block import Part, cut_row, is_block, unpack_block
from noesium_stream.log.sqlite.chunk import ChunkDamagedError, unpack, unpack_body
from noesium_stream.log.sqlite.file import corrupt, translate

MAX_OFFSET: Final = (1 << 63) - 1


class Statements(NamedTuple):
    """The SQL of one partition's table."""

    create: str
    guard: str
    append: str
    commit: str
    fetch: str
    last: str
    first: str
    size: str
    oldest: str
    data: str
    clear: str
    cut: str
    remove: str
    block: str
    between: str


@cache
def statements(slot: int) -> Statements:
    """The SQL of the partition with this slot number."""
    table = f"chunk_{slot}"
    return Statements(
        create=f"CREATE TABLE {table}"
        "(id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL)",
        guard=f"CREATE TRIGGER {table}_at_end BEFORE INSERT ON {table} "
        f"WHEN EXISTS(SELECT 1 FROM {table} WHERE id > NEW.id) "
        "BEGIN SELECT RAISE(ABORT, 'not at the end of the partition'); END",
        append=f"INSERT INTO {table}(id, ts, n, data) VALUES(?, ?, ?, ?)",
        commit=f"INSERT INTO {table}(id, ts, n, data) "
        "SELECT ?1, ?2, ?3, ?4 FROM writer WHERE id = ?5 AND epoch = ?6",
        fetch=f"SELECT id, ts, n, data FROM {table} WHERE id >= ? ORDER BY id",
        last=f"SELECT id, ts, n, length(data) FROM {table} WHERE id <= ? ORDER BY id DESC LIMIT 1",
        first=f"SELECT id, n, length(data) FROM {table} ORDER BY id LIMIT 1",
        size="SELECT coalesce(sum(n), 0), coalesce(sum(length(data)), 0) "
        f"FROM {table} WHERE length(data) > 0",
        oldest=f"SELECT id, ts, n FROM {table} WHERE id >= ? ORDER BY id LIMIT 100",
        data=f"SELECT data FROM {table} WHERE id = ?",
        clear=f"UPDATE {table} SET data = x'' WHERE id = ?",
        cut=f"UPDATE {table} SET id = ?, n = ?, data = ? WHERE id = ?",
        remove=f"DELETE FROM {table} WHERE id < ?",
        block=f"UPDATE {table} SET ts = ?, n = ?, data = ? WHERE id = ?",
        between=f"DELETE FROM {table} WHERE id > ? AND id < ?",
    )


class Tail(NamedTuple):
    """A partition's end when this process last looked: next offset, time of the last record."""

    offset: int
    timestamp_ms: int


class Partitions:
    """Reads chunks; caches the tails that it has seen, which can only lag behind.

    Every commit of this process wakes all of its readers, and most find nothing. So a partition is queried
    again only after another connection has committed (`others`), or if it is known to have more records.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, decoder: Decoder) -> None:
        self.topics: dict[str, Topic] = {}
        self.tails: dict[int, Tail] = {}
        self.gone: EventStoreError | None = None
        self._others = 0
        self._asked: dict[int, int] = {}
        self._path = path
        self._connection = connection
        self._decoder = decoder

    def tail(self, slot: int) -> Tail:
        """The current end of the partition."""
        found = Tail(0, 0)
        for start, timestamp_ms, n, _ in self._chunks(statements(slot).last, MAX_OFFSET):
            found = Tail(start + n, timestamp_ms)
        if found != self.tails.get(slot):
            self._asked.pop(slot, None)
        return found

    def others(self) -> None:
        """Note that another connection has committed, to any partition."""
        self._others += 1

    def unread(self, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """The partitions that may have records from these offsets on."""
        if self.gone is not None:
            raise self.gone
        tails, asked, others = self.tails, self._asked, self._others
        found = []
        for tp, offset in positions.items():
            topic, partition = tp
            slot = self.topics[topic].slot + partition
            tail = tails.get(slot)
            if tail is None or offset != tail[0] or asked.get(slot) != others:
                found.append(tp)
        return found

    def fetch(
        self, topic: Topic, partition: int, offset: int, limit: int, keep: TypeFilter | None
    ) -> tuple[list[Record], int]:
        """Records from `offset` on, chunk by chunk until there are `limit`, and the next offset to read."""
        if self.gone is not None:
            raise self.gone
        if offset > MAX_OFFSET:
            return [], offset
        slot, others = topic.slot + partition, self._others
        tail = self.tails.get(slot)
        if tail is not None and offset == tail[0] and self._asked.get(slot) == others:
            return [], offset
        records: list[Record] = []
        start, wanted = offset, offset + limit
        try:
            for row in self._rows(topic, partition, offset):
                start, timestamp_ms, n, _ = row
                records += self._records(topic, partition, row, offset, keep)
                offset = start + n
                if offset >= wanted:
                    return records, offset
                tail = Tail(offset, timestamp_ms)
        except ChunkDamagedError as error:
            raise self._damaged(f"{topic.name}/{partition} at {start}", error) from error
        except sqlite3.Error as error:
            raise translate(self._path, error) from error
        if tail is None and offset == 0:
            tail = Tail(0, 0)  # nothing was ever written: removed chunks keep their place
        if tail is not None:
            self.tails[slot] = tail
            self._asked[slot] = others
        return records, offset

    def _records(
        self, topic: Topic, partition: int, row: tuple[Any, ...], offset: int, keep: TypeFilter | None
    ) -> list[Record]:
        """The wanted records of one chunk from `offset` on."""
        if None in row:
            raise ChunkDamagedError  # in a sound file a chunk's row is complete
        start, timestamp_ms, n, data = row
        # Chunks leave no gaps: a missing or empty one was truncated since the last look.
        first = start if data else start + n
        if first > offset:
            raise LogTruncatedError(topic.name, partition, offset, first)
        if data and is_block(data):
            return self._records_of_block(topic, partition, row, offset, keep)
        origin = (topic.name, partition, start, timestamp_ms)
        return unpack(data, origin, offset - start, keep, self._decoder) if data else []

    def _records_of_block(
        self, topic: Topic, partition: int, row: tuple[Any, ...], offset: int, keep: TypeFilter | None
    ) -> list[Record]:
        """The wanted records of a block from `offset` on, chunk by chunk."""
        start, _, n, data = row
        end, records = start + n, list[Record]()
        for timestamp_ms, count, body in unpack_block(data):
            if start + count > offset:
                origin = (topic.name, partition, start, timestamp_ms)
                records += unpack_body(body, origin, offset - start, keep, self._decoder)
            start += count
        if start != end:
            raise ChunkDamagedError
        return records

    def _damaged(self, place_name: str, error: ChunkDamagedError) -> LogCorruptError:
        what = error.args[0] if error.args else "are damaged"
        return corrupt(self._path, f"the records of {place_name} {what}")

    def _rows(self, topic: Topic, partition: int, offset: int) -> Iterator[tuple[Any, ...]]:
        """The rows of the chunks, from the one that holds `offset` on."""
        slot = topic.slot + partition
        rows = self._connection.execute(statements(slot).fetch, (offset,))
        first = rows.fetchone()
        if first is not None and first[0] == offset:  # the usual case: readers go from chunk to chunk
            return chain((first,), rows)
        tail = self.tails.get(slot)
        if first is None and tail is not None and offset == tail[0]:
            return iter(())
        start = self._chunk_of(topic, partition, offset)
        return iter(self._connection.execute(statements(slot).fetch, (start,)))

    def _chunk_of(self, topic: Topic, partition: int, offset: int) -> int:
        """The start of the chunk that holds `offset`; `offset` itself if no chunk holds it yet."""
        start: int
        for start, _, n, size in self._chunks(statements(topic.slot + partition).last, offset):
            if start + n <= offset:
                return offset
            if not size:
                raise LogTruncatedError(topic.name, partition, offset, start + n)
            return start
        [(first, _)] = self.bounds(topic, (partition,))
        if offset < first:
            raise LogTruncatedError(topic.name, partition, offset, first)
        return offset

    def bounds(self, topic: Topic, partitions: Iterable[int]) -> list[Bounds]:
        """First retained offset and high watermark of these partitions."""
        found = []
        for slot in (topic.slot + partition for partition in partitions):
            bounds = Bounds(0, 0)
            for start, n, size in self._chunks(statements(slot).first):
                bounds = Bounds(start + (0 if size else n), self.tail(slot).offset)
            found.append(bounds)
        return found

    def size(self, topic: Topic) -> tuple[int, int]:
        """The number of records, and bytes."""
        records = size = 0
        for slot in range(topic.slot, topic.slot + topic.partitions):
            [(more, larger)] = self.all(statements(slot).size)
            records, size = records + more, size + larger
        return records, size

    def younger(self, slot: int, limit_ms: int) -> int:
        """The offset after the last chunk that is older than `limit_ms`; reads old chunks only."""
        after = 0
        while rows := self._chunks(statements(slot).oldest, after):
            for start, timestamp_ms, n in rows:
                if timestamp_ms >= limit_ms:
                    return self._younger_in(slot, start, limit_ms)
                after = start + n
        return after

    def _younger_in(self, slot: int, start: int, limit_ms: int) -> int:
        """As `younger`, within the row at `start`, whose last chunk is not older."""
        for (data,) in self._chunks(statements(slot).data, start):
            if is_block(data):
                for timestamp_ms, n, _ in self._parts_of(slot, start, data):
                    if timestamp_ms >= limit_ms:
                        break
                    start += n
        return start

    def _parts_of(self, slot: int, start: int, data: bytes) -> list[Part]:
        try:
            return unpack_block(data)
        except ChunkDamagedError as error:
            raise self._damaged(f"chunk_{slot} at {start}", error) from error

    def truncate(self, slot: int, before: int) -> None:
        """Remove the records below `before`; part of a transaction that the caller has begun."""
        execute, sql = self._connection.execute, statements(slot)
        end = self.tail(slot).offset
        before = max(0, min(before, end))
        rows = execute(sql.last, (before,)).fetchall()
        if not rows:
            return
        [(start, _, n, size)] = rows
        kept = start
        if before == end:
            # 1. The last chunk loses its records and keeps its place. 2. Delete the chunks before it.
            kept = execute(sql.last, (MAX_OFFSET,)).fetchone()[0]
            execute(sql.clear, (kept,))
        elif start < before and size:
            # Lay out the chunk that holds the boundary anew, from the boundary on.
            data = execute(sql.data, (start,)).fetchone()[0]
            rest = n - (before - start)
            execute(sql.cut, (before, rest, self._cut(slot, start, data, before - start), start))
            kept = before
        execute(sql.remove, (kept,))

    def _cut(self, slot: int, start: int, data: bytes, drop: int) -> bytes:
        try:
            return cut_row(data, drop)
        except ChunkDamagedError as error:
            raise self._damaged(f"chunk_{slot} at {start}", error) from error

    def all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query; translates SQLite's errors."""
        if self.gone is not None:
            raise self.gone
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise translate(self._path, error) from error

    def _chunks(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """As `all`, for rows about chunks, which are complete in a sound file."""
        rows = self.all(sql, *values)
        if any(None in row for row in rows):
            raise corrupt(self._path, "a chunk's row lacks what every row has")
        return rows
