"""`sqlite:///path`: a log in one file, durable, for several processes.

Decision record: a commit is one row per partition (a chunk of records). One statement writes it, finds its
own offsets and judges the writer's epoch. SQL runs on the event loop: a commit takes 20 µs
(`synchronous=NORMAL`) to 150 µs (`FULL`), a hop to a thread costs more. Transactions in parts are staged in
memory until their commit, so that they hold back nobody.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from noesium_stream.clock import Clock
from noesium_stream.errors import LogCorruptError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.sealing.key_folder import KeyFolder
from noesium_stream.log.embedded.group import Coordinator, MemberTenure
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.embedded.store import Topic
from noesium_stream.log.embedded.wakeup import Place, Signal
from noesium_stream.log.members import tenure_ended
from noesium_stream.log.port import GroupShare, LogWriter, Position
from noesium_stream.log.prepare import Prepared
from noesium_stream.log.sqlite.chunk import by_partition, pack, pack_one
from noesium_stream.log.sqlite.file import Unsynced, connect, corrupt, is_busy, patiently, translate
from noesium_stream.log.sqlite.group import SqliteCoordinator, drop_members, group_shares, is_held
from noesium_stream.log.sqlite.packing import Packer
from noesium_stream.log.sqlite.read import Partitions, Tail, statements
from noesium_stream.log.sqlite.wake import OpenFile, Waker
from noesium_stream.log.sqlite.writer import SqliteWriter, WriterFencedError
from noesium_stream.log.topics import TopicSpec, Topology
from noesium_stream.log.url import LogUrl

# Half the cost of calling the class: this runs once per record.
_position: Final = cast(Callable[[tuple[str, int, int]], Position], partial(tuple.__new__, Position))
RETAIN_EVERY_MS: Final = 60_000
T = TypeVar("T")
Insert = tuple[str, tuple[Any, ...]]
"""A statement that inserts a chunk, and its parameters."""


async def open_sqlite(url: LogUrl, topology: Topology, codec: EnvelopeCodec, clock: Clock) -> EmbeddedLog:
    """Open the file; create it (and its folder) if it does not exist.

    Raises:
        LogUrlError: a parameter is unknown or has an invalid value.
        LogUnavailableError, LogFullError, LogCorruptError: see `file.connect`.
    """
    url.check_parameters({"synchronous"})
    synchronous = url.choice("synchronous", {"FULL", "NORMAL"}, "FULL")
    path = file_of(url)
    connection = await patiently(path, lambda: connect(path, synchronous))
    try:
        # Group state is advisory: it need not survive a power cut, and must not cost a flush.
        groups = await patiently(path, lambda: connect(path, "NORMAL"))
    except BaseException:
        connection.close()
        raise
    if codec.sealer.keys is None:
        codec.sealer.keys = KeyFolder(keys_of(path), clock)
    store = SqliteStore(path, connection, groups, codec, clock, topology)
    await store.retain()
    return EmbeddedLog(str(url), topology, store, codec, clock)


def keys_of(path: Path) -> Path:
    """The folder of the keys of a log's data subjects, if no other one is configured."""
    return path.with_name(f"{path.name}.keys")


def file_of(url: LogUrl) -> Path:
    """The path that a URL names; with three slashes it is relative to the current folder."""
    return Path(url.path[1:]).expanduser().absolute()


class SqliteStore:
    """Topics in a SQLite file; see `Store`."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        groups: sqlite3.Connection,
        codec: EnvelopeCodec,
        clock: Clock,
        topology: Topology,
    ) -> None:
        self.path = path
        self.changes = Signal()
        self.codec = codec
        self.clock = clock
        self.topology = topology
        self.connection = connection
        self._groups = groups
        self._parts = Partitions(path, connection, codec)
        self._topics = self._parts.topics
        self.pause: Final = None
        self.fetch = self._parts.fetch
        self.unread = self._parts.unread
        self.bounds = self._parts.bounds
        self.size = self._parts.size
        self._file = OpenFile(path)
        self._waker = Waker(path, connection, self.changes, self._parts.others, self._look_for_file)
        self.tell = self._waker.tell
        self.watch = self._waker.start
        self._order = asyncio.Lock()
        self._now_ms = self._retain_at_ms = 0
        self._pieces = Unsynced(connection)
        self._packer = Packer(connection, self._pieces, clock)

    def _look_for_file(self) -> None:
        """Check that the file still exists; if not, tell all readers, because nothing would ever come."""
        try:
            self._file.require()
        except LogCorruptError as error:
            self._parts.gone = error
            self.changes.notify()

    def topic(self, name: str) -> Topic | None:
        """The topic of this name; its properties never change."""
        topic = self._topics.get(name)
        if topic is None:
            row = self._parts.all(
                "SELECT name, partitions, retention_ms, uid, slot FROM topic WHERE name = ?", name
            )
            if row:
                topic = self._topics[name] = Topic(*row[0])
        return topic

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        rows = self._parts.all("SELECT name, partitions, retention_ms, uid, slot FROM topic ORDER BY name")
        return [Topic(*row) for row in rows]

    async def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create the missing topics, all or none."""
        if any(self.topic(spec.name) is None for spec in specs):
            await self.transact(lambda: self._create(specs))

    def _create(self, specs: Sequence[TopicSpec]) -> None:
        execute = self.connection.execute
        for spec in specs:
            if execute("SELECT 1 FROM topic WHERE name = ?", (spec.name,)).fetchone():
                continue
            slot = execute("SELECT coalesce(max(slot + partitions), 1) FROM topic").fetchone()[0]
            execute(
                "INSERT INTO topic(name, partitions, retention_ms, uid, slot) VALUES(?, ?, ?, ?, ?)",
                (spec.name, spec.partitions, spec.retention_ms, self.clock.token(16), slot),
            )
            for number in range(spec.partitions):
                sql = statements(slot + number)
                execute(sql.create)
                execute(sql.guard)

    async def append(self, records: Sequence[Prepared], partitions: Sequence[int]) -> list[Position]:
        """Write all or none, each record into the partition given for it."""
        self._file.require()
        if len(records) == 1:
            positions = [await self._write_one(records[0], partitions[0], b"", None)]
        else:
            positions = await self._write_many(records, partitions, b"", None)
        if self._now_ms >= self._retain_at_ms:
            await self.retain()
        return positions

    async def write(
        self,
        records: Sequence[Prepared],
        commit_id: bytes,
        writer: tuple[int, int],
        tenure: MemberTenure | None = None,
    ) -> list[Position]:
        """Write all or none as `writer` (id and epoch); under a tenure only while it lasts.

        Raises:
            WriterFencedError: the writer's epoch is over.
            TenureEndedError: the group has given the partition to another member.
            LogFullError, LogUnavailableError, LogCorruptError: nothing was written.
        """
        self._file.require()
        if len(records) == 1 and tenure is None:
            return [await self._write_one(records[0], records[0][1], commit_id, writer)]
        return await self._write_many(records, [record[1] for record in records], commit_id, writer, tenure)

    async def _write_one(
        self, record: Prepared, partition: int, commit_id: bytes, writer: tuple[int, int] | None
    ) -> Position:
        """Write a single record; inlined, because a step waits for it."""
        topic = record[0]
        slot = self._slot(topic, partition)
        data = pack_one(record, commit_id)
        tail = self._parts.tails.get(slot)
        if tail is not None and not self._order.locked():
            offset, last_ms = tail
            now_ms = self._now_ms = self.clock.now_ms()
            row = (offset, now_ms if now_ms > last_ms else last_ms, 1, data)
            try:
                if writer is None:
                    target = self._pieces if topic == self.topology.stream else self.connection
                    target.execute(statements(slot).append, row)
                elif self.connection.execute(statements(slot).commit, row + writer).rowcount != 1:
                    raise WriterFencedError
            except sqlite3.Error as error:
                # A taken offset or a lock: use the patient way. Anything else is an error.
                if not isinstance(error, sqlite3.IntegrityError) and not is_busy(error):
                    raise translate(self.path, error) from error
            else:
                self._parts.tails[slot] = Tail(offset + 1, row[1])
                self._packer.wrote(slot, len(data))
                self.tell(((topic, partition),))
                return Position(topic, partition, offset)
        [offset] = await self._insert([(slot, 1, data)], writer, ((topic, partition),))
        return Position(topic, partition, offset)

    async def _write_many(
        self,
        records: Sequence[Prepared],
        partitions: Sequence[int],
        commit_id: bytes,
        writer: tuple[int, int] | None,
        tenure: MemberTenure | None = None,
    ) -> list[Position]:
        """Write records of several partitions: a chunk for each, in one transaction."""
        parts = by_partition(records, partitions)
        chunks, owners = [], []
        for place, indices in parts.items():
            part = records if len(parts) == 1 else [records[index] for index in indices]
            for n, data in pack(part, commit_id):
                chunks.append((self._slot(*place), n, data))
                owners.append(place)
        first: dict[tuple[str, int], int] = {}
        for place, offset in zip(owners, await self._insert(chunks, writer, parts, tenure), strict=True):
            first.setdefault(place, offset)
        positions: list[Position | None] = [None] * len(records)
        for (topic, partition), indices in parts.items():
            for offset, index in enumerate(indices, first[topic, partition]):
                positions[index] = _position((topic, partition, offset))
        return cast(list[Position], positions)

    async def _insert(
        self,
        chunks: list[tuple[int, int, bytes]],
        writer: tuple[int, int] | None,
        places: Collection[Place],
        tenure: MemberTenure | None = None,
    ) -> list[int]:
        """Commit chunks (slot, records, data) to these partitions; return each one's first offset.

        The offsets are those that this process expects to be next. If another process was faster, the key
        exists already, and the whole commit is repeated with the true offsets.
        """
        now_ms = self._now_ms = self.clock.now_ms()
        while True:
            rows, tails = self._place(chunks, now_ms, writer)
            try:
                if len(rows) == 1 and tenure is None:
                    pieces = all(topic == self.topology.stream for topic, _ in places)
                    written = await self._execute(*rows[0], pieces)
                else:
                    written = await self.transact(partial(self._execute_all, rows, tenure))
            except sqlite3.IntegrityError:
                for slot in tails:
                    self._parts.tails.pop(slot, None)
                continue
            if not written:
                raise WriterFencedError
            self._parts.tails.update(tails)
            for slot, _, data in chunks:
                self._packer.wrote(slot, len(data))
            self.tell(places)
            return [row[0] for _, row in rows]

    def _place(
        self, chunks: list[tuple[int, int, bytes]], now_ms: int, writer: tuple[int, int] | None
    ) -> tuple[list[Insert], dict[int, Tail]]:
        """The statements that insert the chunks, and the resulting tails of the partitions."""
        rows: list[Insert] = []
        tails: dict[int, Tail] = {}
        for slot, n, data in chunks:
            offset, last_ms = tails.get(slot) or self._parts.tails.get(slot) or self._parts.tail(slot)
            timestamp_ms = now_ms if now_ms > last_ms else last_ms
            row = (offset, timestamp_ms, n, data)
            sql = statements(slot)
            rows.append((sql.append, row) if writer is None else (sql.commit, row + writer))
            tails[slot] = Tail(offset + n, timestamp_ms)
        return rows, tails

    async def _execute(self, sql: str, row: tuple[Any, ...], pieces: bool) -> bool:
        """Run one statement that is a whole commit; it waits only while another process writes."""
        if not self._order.locked():
            try:
                return (self._pieces if pieces else self.connection).execute(sql, row).rowcount == 1
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise translate(self.path, error) from error
        async with self._order:
            return await patiently(self.path, lambda: self.connection.execute(sql, row).rowcount == 1)

    def _execute_all(self, rows: list[Insert], tenure: MemberTenure | None) -> bool:
        """Run all statements of a commit in a transaction; the first row shows whether it is fenced."""
        self._check(tenure)
        return all(self.connection.execute(sql, row).rowcount == 1 for sql, row in rows)

    def _check(self, tenure: MemberTenure | None) -> None:
        if tenure is not None and not is_held(self.connection, tenure):
            raise tenure_ended(tenure.partition, f"The member {tenure.member} of {tenure.group}")

    async def transact(self, work: Callable[[], T]) -> T:
        """Call `work` in one transaction, as soon as no other process writes.

        Raises:
            LogFullError, LogUnavailableError: nothing was written.
        """

        def whole() -> T:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                result = work()
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
            return result

        async with self._order:
            return await patiently(self.path, whole)

    async def truncate(self, topic: Topic, partition: int, before: int) -> None:
        """Remove records below `before`; the last chunk stays, possibly empty: it holds the next offset."""
        await self.transact(lambda: self._parts.truncate(topic.slot + partition, before))
        self.tell()

    async def retain(self) -> None:
        """Remove records past their topic's retention: when opening, then with appends, once a minute."""
        now_ms = self.clock.now_ms()
        self._retain_at_ms = now_ms + RETAIN_EVERY_MS
        for topic in self.topics():
            if topic.retention_ms is not None:
                for number, bounds in enumerate(self.bounds(topic, range(topic.partitions))):
                    before = self._parts.younger(topic.slot + number, now_ms - topic.retention_ms)
                    if before > bounds.first:
                        await self.truncate(topic, number, before)

    async def writer(self, writer_id: str, tenure: MemberTenure | None) -> LogWriter:
        """Open a writer: its epoch is one more than the last."""
        sql = (
            "INSERT INTO writer(name, epoch) VALUES(?, 1) ON CONFLICT(name) DO UPDATE SET epoch = epoch + 1 "
            "RETURNING id, epoch"
        )
        self._file.require()

        def count_up() -> tuple[int, int]:
            self._check(tenure)
            [(number, epoch)] = self.connection.execute(sql, (writer_id,)).fetchall()
            return number, epoch

        return SqliteWriter(self, writer_id, *await self.transact(count_up), tenure)

    def coordinator(self, group: str, member: str, topics: Sequence[Topic]) -> Coordinator:
        """A new member's view of a group."""
        return SqliteCoordinator(self.path, self._groups, self.clock, self._waker, group, member, topics)

    async def members(self, group: str) -> list[GroupShare]:
        """See `EventLog.members`."""
        now_ms = self.clock.now_ms()
        return await patiently(self.path, lambda: group_shares(self.path, self._groups, group, now_ms))

    async def dismiss(self, group: str, members: Collection[str]) -> None:
        """See `EventLog.dismiss`."""
        await self.transact(lambda: drop_members(self.connection, group, members))
        self.tell()

    async def close(self) -> None:
        """Close the file."""
        self._waker.close()
        self._packer.close()
        self._groups.close()
        self.connection.close()

    def _slot(self, topic: str, partition: int) -> int:
        info = self._topics.get(topic) or self.topic(topic)
        if info is None:
            raise corrupt(self.path, f"the topic {topic} is gone")
        return info[4] + partition
