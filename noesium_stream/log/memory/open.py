"""`memory://`: a log in this process, as strict as a broker. With `?seed=N` the seed decides how operations
interleave. `memory://name` is shared by all that open this name, until the last one closes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import FencedError, LogClosedError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.log.embedded.group import Coordinator, MemberTenure, shares
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.embedded.store import Bounds, Topic
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.memory.group import GroupTable, MemoryCoordinator
from noesium_stream.log.memory.store import MemoryStore, Txn
from noesium_stream.log.port import GroupShare, Headers, LogWriter, Outgoing, Position, TopicPartition
from noesium_stream.log.prepare import Prepared, check_partition, commit_header, prepare_outgoing
from noesium_stream.log.record import Record
from noesium_stream.log.topics import TopicSpec, Topology
from noesium_stream.log.url import LogUrl
from noesium_stream.observability import events_emitted

_shared: Final[dict[str, MemoryStore]] = {}


async def open_memory(url: LogUrl, topology: Topology, codec: EnvelopeCodec, clock: Clock) -> EmbeddedLog:
    """Open the log of this name, or a new one without a name.

    Raises:
        LogUrlError: a parameter is unknown or has an invalid value.
    """
    url.check_parameters({"seed"})
    store = _shared.get(url.name)
    if store is None:
        store = MemoryStore(clock, url.whole_number("seed", 0, 2**63 - 1))
        if url.name:
            _shared[url.name] = store
    store.logs += 1
    if codec.sealer.keys is None:
        codec.sealer.keys = store.subject_keys
    return EmbeddedLog(str(url), topology, _Opened(store, url.name, topology, codec), codec, clock)


class _Opened:
    """One log's view of a shared store; see `Store`."""

    def __init__(self, store: MemoryStore, name: str, topology: Topology, codec: EnvelopeCodec) -> None:
        self.changes = store.changes
        self.pause = store.pause
        self.topic = store.topic
        self.topics = store.topics
        self.watch = _nothing
        self.shared = store
        self._name = name
        self._topology = topology
        self._codec = codec

    async def create(self, specs: Sequence[TopicSpec]) -> None:
        self.shared.create(specs)

    async def append(self, records: Sequence[Prepared], partitions: Sequence[int]) -> list[Position]:
        return self.shared.append(records, partitions)

    def fetch(
        self, topic: Topic, partition: int, offset: int, limit: int, keep: TypeFilter | None
    ) -> tuple[list[Record], int]:
        return self.shared.fetch(topic.name, partition, offset, limit, keep, self._codec)

    def unread(self, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        return [tp for tp, offset in positions.items() if offset < self.shared.partition(*tp).end]

    def bounds(self, topic: Topic, partitions: Iterable[int]) -> list[Bounds]:
        return self.shared.bounds(topic, partitions)

    def size(self, topic: Topic) -> tuple[int, int | None]:
        return self.shared.size(topic)

    async def truncate(self, topic: Topic, partition: int, before: int) -> None:
        self.shared.truncate(topic, partition, before)

    async def writer(self, writer_id: str, tenure: MemberTenure | None) -> LogWriter:
        return await MemoryWriter.open(self.shared, writer_id, tenure, self._topology, self._codec)

    def coordinator(self, group: str, member: str, topics: Sequence[Topic]) -> Coordinator:
        coordinator = MemoryCoordinator(self.shared.groups.setdefault(group, GroupTable()), member, topics)
        self.changes.notify()
        return coordinator

    async def members(self, group: str) -> list[GroupShare]:
        table = self.shared.groups.get(group) or GroupTable()
        return shares(table.members, table.owners)

    async def dismiss(self, group: str, members: Collection[str]) -> None:
        table = self.shared.groups.get(group)
        if table is not None:
            table.drop(members)
            self.changes.notify()

    async def close(self) -> None:
        await self.shared.markers_written()
        self.shared.logs -= 1
        if self.shared.logs == 0:
            _shared.pop(self._name, None)


def _nothing() -> None:
    """Do nothing: all changes of this store are made in this process, so there is nothing to watch."""


class MemoryWriter:
    """A `LogWriter` on a `MemoryStore`."""

    def __init__(
        self,
        store: MemoryStore,
        writer_id: str,
        epoch: int,
        tenure: MemberTenure | None,
        topology: Topology,
        codec: EnvelopeCodec,
    ) -> None:
        self.writer_id = writer_id
        self.epoch = epoch
        self.tells_positions = True
        self._tenure = tenure
        self._proven = False
        self.store = store
        self.codec = codec
        self._topology = topology
        self._prefix = store.clock.token(6)
        self._commits = 0
        self._open: MemoryTransaction | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        store: MemoryStore,
        writer_id: str,
        tenure: MemberTenure | None,
        topology: Topology,
        codec: EnvelopeCodec,
    ) -> MemoryWriter:
        """Fence the holder of this id, abort its open transaction, wait for markers; then begin."""
        store.check(tenure, f"The writer {writer_id}")
        epoch = store.epochs[writer_id] = store.epochs.get(writer_id, 0) + 1
        left = store.open.pop(writer_id, None)
        if left is not None:
            store.write_markers(left)
        await store.markers_written()
        return cls(store, writer_id, epoch, tenure, topology, codec)

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        """See `LogWriter.commit`."""
        transaction = await self.begin()
        try:
            # One commit is written at once, and its headers give its record count.
            await transaction.write(outgoing)
            return await transaction.commit()
        finally:
            await transaction.abort()

    async def begin(self) -> MemoryTransaction:
        """See `LogWriter.begin`."""
        if self._closed:
            raise LogClosedError(f"The writer {self.writer_id} is closed.")
        if self._open is not None and not self._open.ended:
            raise LogClosedError(f"The writer {self.writer_id} has a transaction open.", hint="End it first.")
        await self.store.pause()
        await self.store.markers_written()
        self._commits += 1
        self._open = MemoryTransaction(self, f"{self._prefix}-{self._commits}")
        return self._open

    def prepare(self, outgoing: Sequence[Outgoing]) -> list[Prepared]:
        """Encode and check all records; create missing topics."""
        prepared = prepare_outgoing(outgoing, self.codec)
        missing: dict[str, TopicSpec] = {}
        for name, partition in dict.fromkeys(record[:2] for record in prepared):
            topic = self.store.topic(name)
            if topic is None:
                missing[name] = self._topology.spec(name)
            check_partition(name, partition, (topic or missing[name]).partitions)
        if missing:
            self.store.create(list(missing.values()))
        return prepared

    @property
    def fenced(self) -> bool:
        """Whether a newer writer of this id was opened."""
        return self.store.epochs[self.writer_id] != self.epoch

    def check(self) -> None:
        """Raise `FencedError` or `TenureEndedError` if it may not commit; the tenure is checked only once."""
        if self.fenced:
            raise FencedError(
                f"The writer {self.writer_id} was fenced: a newer one holds its id.",
                hint="Nothing of this commit is on the log. Stop, or open the writer again.",
            )
        if not self._proven:
            self.store.check(self._tenure, f"The writer {self.writer_id}")
            self._proven = True

    async def close(self) -> None:
        """See `LogWriter.close`."""
        if self._open is not None:
            await self._open.abort()
        self._closed = True


class MemoryTransaction:
    """A `Transaction` on a `MemoryStore`: its records lie in the partitions from `write` on."""

    def __init__(self, writer: MemoryWriter, commit_id: str) -> None:
        self.ended = False
        self._writer = writer
        self._commit_id = commit_id
        self._txn = Txn()
        self._positions: list[Position] = []
        self._counts: dict[tuple[str, int], int] = {}

    async def write(self, outgoing: Sequence[Outgoing]) -> None:
        """See `Transaction.write`."""
        self._check_open()
        writer, store = self._writer, self._writer.store
        prepared = writer.prepare(outgoing)
        await store.pause()
        if writer.fenced:
            return
        store.open[writer.writer_id] = self._txn
        self._positions += store.write(self._txn, prepared, self._commit_headers(prepared))
        await store.pause()

    async def commit(self) -> list[Position]:
        """See `Transaction.commit`."""
        self._check_open()
        writer, store = self._writer, self._writer.store
        await store.pause()
        writer.check()  # if this raises, the transaction has to be aborted
        self.ended = True
        store.open.pop(writer.writer_id, None)
        store.finish(self._txn, commit=True)
        events_emitted.add(len(self._positions), {"noesium.log": "memory"})
        await store.pause()
        return self._positions

    async def abort(self) -> None:
        """See `Transaction.abort`."""
        if self.ended:
            return
        self.ended = True
        writer, store = self._writer, self._writer.store
        if not writer.fenced:
            store.open.pop(writer.writer_id, None)
            store.finish(self._txn, commit=False)
        await store.pause()

    def _check_open(self) -> None:
        if self.ended:
            raise LogClosedError("The transaction has ended.")

    def _commit_headers(self, prepared: Sequence[Prepared]) -> list[Headers]:
        """`noesium_commit` of each record; in a transaction in parts, it counts the records so far."""
        places = [record[:2] for record in prepared]
        if not self._counts and len(set(places)) == 1:  # the case of nearly every commit of an owner
            self._counts[places[0]] = count = len(places)
            return [(commit_header(self._commit_id, index, count),) for index in range(count)]
        before, counts = self._counts.copy(), self._counts
        for place in places:
            counts[place] = counts.get(place, 0) + 1
        headers: list[Headers] = []
        for place in places:
            index = before.get(place, 0)
            before[place] = index + 1
            headers.append((commit_header(self._commit_id, index, counts[place]),))
        return headers
