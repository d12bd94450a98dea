"""The partitions in a SQLite file: where they begin and end, reading them, and cutting them off.

Decision record: every partition has a table, whose key is the offset of a chunk's first record. The next
offset follows from the last key and its count, no row has to be kept for it, and of two processes that would
place their chunks at the same offset one violates the key, or, where the chunk in its way was truncated
meanwhile, the trigger. A chunk without data was removed, but keeps its place. With all partitions in one
table a commit would insert into the middle of a tree: it wrote 13 KB to the `-wal` file, at the end 5.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from noesium_stream.errors import EventStoreError, LogTruncatedError
from noesium_stream.log.embedded import Bounds, Topic
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.record import Decoder, Record
from noesium_stream.log.sqlite_chunk import ChunkDamagedError, repack, unpack
from noesium_stream.log.sqlite_file import corrupt, translate

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


@cache
def statements(slot: int) -> Statements:
    """The SQL of the partition with this number."""
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
    )


class Tail(NamedTuple):
    """Where a partition ended when this process last looked: next offset, time of the last record."""

    offset: int
    timestamp_ms: int


class Partitions:
    """Reads chunks; remembers the tails that it has seen, which only ever lag behind.

    Every commit of this process wakes all of its readers, and most find nothing: a partition is asked again
    only after another connection has committed (`others`), or where it is known to go on.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, decoder: Decoder) -> None:
        self.tails: dict[int, Tail] = {}
        self.gone: EventStoreError | None = None
        self._others = 0
        self._asked: dict[int, int] = {}
        self._path = path
        self._connection = connection
        self._decoder = decoder

    def tail(self, slot: int) -> Tail:
        """Where the partition ends now."""
        found = Tail(0, 0)
        for start, timestamp_ms, n, _ in self._chunks(statements(slot).last, MAX_OFFSET):
            found = Tail(start + n, timestamp_ms)
        if found != self.tails.get(slot):
            self._asked.pop(slot, None)
        return found

    def others(self) -> None:
        """Another connection has committed, anywhere."""
        self._others += 1

    def fetch(
        self, topic: Topic, partition: int, offset: int, limit: int, keep: TypeFilter | None
    ) -> tuple[list[Record], int]:
        """Records from `offset` on, chunk by chunk until there are `limit`, and the next offset to read."""
        if self.gone is not None:
            raise self.gone
        if offset > MAX_OFFSET:
            return [], offset
        slot = topic.slot + partition
        tail = self.tails.get(slot)
        if tail is None or offset != tail[0]:
            start = self._chunk_of(topic, partition, offset)
            return self._fetch(topic, partition, (start, offset), limit, keep)
        if self._asked.get(slot) == self._others:
            return [], offset
        return self._fetch(topic, partition, (offset, offset), limit, keep)

    def _fetch(
        self, topic: Topic, partition: int, place: tuple[int, int], limit: int, keep: TypeFilter | None
    ) -> tuple[list[Record], int]:
        """As `fetch`; `place` is where the chunk begins that holds the offset, and the offset."""
        start, offset = place
        slot, others = topic.slot + partition, self._others
        tail = self.tails.get(slot)
        records: list[Record] = []
        seen = 0
        try:
            rows = self._connection.execute(statements(slot).fetch, (start,))
            for start, timestamp_ms, n, data in map(_sound, rows):
                # Chunks leave no gaps: what is missing, or empty, was cut off since the last look.
                first = start if data else start + n
                if first > offset:
                    raise LogTruncatedError(topic.name, partition, offset, first)
                if data:
                    origin = (topic.name, partition, start, timestamp_ms)
                    records += unpack(data, origin, offset - start, keep, self._decoder)
                offset = start + n
                seen += n
                if seen >= limit:
                    return records, offset
                tail = Tail(offset, timestamp_ms)
        except ChunkDamagedError as error:
            place_name = f"{topic.name}/{partition} at {start}"
            raise corrupt(self._path, f"the records of {place_name} are damaged") from error
        except sqlite3.Error as error:
            raise translate(self._path, error) from error
        if tail is None and offset == 0:
            tail = Tail(0, 0)  # nothing was ever written: what was removed leaves its place behind
        if tail is not None:
            self.tails[slot] = tail
            self._asked[slot] = others
        return records, offset

    def _chunk_of(self, topic: Topic, partition: int, offset: int) -> int:
        """Where the chunk begins that holds `offset`; `offset` itself where none does yet."""
        start: int
        for start, _, n, size in self._chunks(statements(topic.slot + partition).last, offset):
            if start + n <= offset:
                return offset
            if not size:
                raise LogTruncatedError(topic.name, partition, offset, start + n)
            return start
        first = self.bounds(topic.slot + partition).first
        if offset < first:
            raise LogTruncatedError(topic.name, partition, offset, first)
        return offset

    def bounds(self, slot: int) -> Bounds:
        """First retained offset and high watermark of the partition."""
        for start, n, size in self._chunks(statements(slot).first):
            return Bounds(start + (0 if size else n), self.tail(slot).offset)
        return Bounds(0, 0)

    def size(self, topic: Topic) -> tuple[int, int]:
        """Records and bytes."""
        records = size = 0
        for slot in range(topic.slot, topic.slot + topic.partitions):
            [(more, larger)] = self.all(statements(slot).size)
            records, size = records + more, size + larger
        return records, size

    def younger(self, slot: int, limit_ms: int) -> int:
        """The offset after the last chunk that is older than `limit_ms`; only old ones are looked at."""
        after = 0
        while rows := self._chunks(statements(slot).oldest, after):
            for start, timestamp_ms, n in rows:
                if timestamp_ms >= limit_ms:
                    return after
                after = start + n
        return after

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
            # 1. The last chunk loses its records and keeps its place. 2. What lies before it goes.
            kept = execute(sql.last, (MAX_OFFSET,)).fetchone()[0]
            execute(sql.clear, (kept,))
        elif start < before and size:
            # The chunk that holds the boundary is laid out anew, from the boundary on.
            data = execute(sql.data, (start,)).fetchone()[0]
            rest = n - (before - start)
            execute(sql.cut, (before, rest, repack(data, before - start), start))
            kept = before
        execute(sql.remove, (kept,))

    def all(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query, its errors in this package's words."""
        if self.gone is not None:
            raise self.gone
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise translate(self._path, error) from error

    def _chunks(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """As `all`, of rows about chunks, which lack nothing in a sound file."""
        rows = self.all(sql, *values)
        if any(None in row for row in rows):
            raise corrupt(self._path, "a chunk's row lacks what every row has")
        return rows


def _sound(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row of a chunk, which lacks nothing in a sound file."""
    if None in row:
        raise ChunkDamagedError
    return row
