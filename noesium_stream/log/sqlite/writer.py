"""The transactional writer of the SQLite backend; the statement that commits checks its epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noesium_stream.clock import Clock
from noesium_stream.errors import FencedError, LogClosedError
from noesium_stream.log.embedded.group import MemberTenure
from noesium_stream.log.embedded.store import Topic
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.log.prepare import Encoder, Prepared, check_partition, prepare_outgoing
from noesium_stream.log.topics import TopicSpec, Topology
from noesium_stream.observability import events_emitted


class WriterFencedError(Exception):
    """The store's error for a writer whose epoch is over; the writer translates it for its user."""


class WriterStore(Protocol):
    """The parts of the store that a writer uses."""

    @property
    def codec(self) -> Encoder:
        """The codec that encodes and validates."""

    @property
    def clock(self) -> Clock:
        """The clock, which makes ids."""

    @property
    def topology(self) -> Topology:
        """The settings of topics."""

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""

    async def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create the missing topics."""

    async def write(
        self,
        records: Sequence[Prepared],
        commit_id: bytes,
        writer: tuple[int, int],
        tenure: MemberTenure | None = None,
    ) -> list[Position]:
        """Write all or none."""


class SqliteWriter:
    """A `LogWriter` on a SQLite file."""

    def __init__(
        self, store: WriterStore, writer_id: str, number: int, epoch: int, tenure: MemberTenure | None
    ) -> None:
        self.writer_id = writer_id
        self.epoch = epoch
        self.tells_positions = True
        self._store = store
        self._fence = (number, epoch)
        self._unproven = tenure
        self._prefix = store.clock.token(6)
        self._commits = 0
        self._open: SqliteTransaction | None = None
        self._closed = False

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        """See `LogWriter.commit`."""
        self._check_open()
        return await self.write(await self.prepare(outgoing))

    async def begin(self) -> SqliteTransaction:
        """See `LogWriter.begin`."""
        self._check_open()
        self._open = SqliteTransaction(self)
        return self._open

    async def prepare(self, outgoing: Sequence[Outgoing]) -> list[Prepared]:
        """Encode and check all records; then create missing topics."""
        prepared = prepare_outgoing(outgoing, self._store.codec)
        missing: dict[str, TopicSpec] = {}
        for name, partition in dict.fromkeys([record[:2] for record in prepared]):
            topic = self._store.topic(name)
            if topic is None:
                missing[name] = spec = self._store.topology.spec(name)
                check_partition(name, partition, spec.partitions)
            else:
                check_partition(name, partition, topic.partitions)
        if missing:
            await self._store.create(list(missing.values()))
        return prepared

    async def write(self, prepared: Sequence[Prepared]) -> list[Position]:
        """Write one commit.

        Raises:
            FencedError: a newer writer holds this id.
            TenureEndedError: the group has given the partition to another member.
        """
        if not prepared:
            return []
        self._commits += 1
        commit_id = f"{self._prefix}-{self._commits}".encode()
        try:
            positions = await self._store.write(prepared, commit_id, self._fence, self._unproven)
        except WriterFencedError as error:
            raise self._fenced() from error
        self._unproven = None
        events_emitted.add(len(positions), {"noesium.log": "sqlite"})
        return positions

    def _fenced(self) -> FencedError:
        return FencedError(
            f"The writer {self.writer_id} was fenced: a newer one holds its id.",
            hint="Nothing of this commit is on the log. Stop, or open the writer again.",
        )

    async def close(self) -> None:
        """See `LogWriter.close`."""
        if self._open is not None:
            await self._open.abort()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"The writer {self.writer_id} is closed.")
        if self._open is not None and not self._open.ended:
            raise LogClosedError(f"The writer {self.writer_id} has a transaction open.", hint="End it first.")


class SqliteTransaction:
    """A `Transaction` whose records stay in memory until the commit."""

    def __init__(self, writer: SqliteWriter) -> None:
        self.ended = False
        self._writer = writer
        self._staged: list[Prepared] = []

    async def write(self, outgoing: Sequence[Outgoing]) -> None:
        """See `Transaction.write`."""
        self._check_open()
        self._staged += await self._writer.prepare(outgoing)

    async def commit(self) -> list[Position]:
        """See `Transaction.commit`."""
        self._check_open()
        self.ended = True
        return await self._writer.write(self._staged)

    async def abort(self) -> None:
        """See `Transaction.abort`."""
        self.ended = True
        self._staged = []

    def _check_open(self) -> None:
        if self.ended:
            raise LogClosedError("The transaction has ended.")
