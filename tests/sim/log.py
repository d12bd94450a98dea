"""A process's log in a simulated world: `EmbeddedLog` over a store that asks the broker by requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from noesium_stream.errors import (
    CommitUnknownError,
    FencedError,
    LogClosedError,
    LogFullError,
    LogUnavailableError,
    TenureEndedError,
)
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard.catalogue import standard_catalogue
from noesium_stream.log.embedded.group import Claim, Coordinator, MemberTenure, Plan, shares
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.embedded.store import Bounds, Topic
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.memory.group import GroupTable
from noesium_stream.log.port import (
    GroupShare,
    Headers,
    LogWriter,
    Outgoing,
    Position,
    TopicPartition,
    Transaction,
)
from noesium_stream.log.prepare import Prepared, check_partition, commit_header, prepare_outgoing
from noesium_stream.log.record import Decoder, Record
from noesium_stream.log.topics import TopicSpec, Topology
from tests.sim.broker import SESSION_S, Link, NoAnswerError
from tests.sim.clock import SimClock

CODEC: Final = EnvelopeCodec(standard_catalogue())
"""One for all: an agent's own events are the same in all worlds."""

BEAT_S: Final = 2.0
"""Longer than elsewhere, and short enough for a session: signs of life are half of what happens."""


class Remembered:
    """A decoder of those who only look on, at the same records: each is decoded once for all of them.

    Workers decode for themselves, as they do elsewhere.
    """

    def __init__(self) -> None:
        self._events: dict[bytes, EventEnvelope] = {}
        self.decode_unchecked = CODEC.decode_unchecked
        self.upcast = CODEC.upcast
        self.record_verifier = CODEC.record_verifier

    def decode(self, data: bytes) -> EventEnvelope:
        event = self._events.get(data)
        if event is None:
            event = self._events[data] = CODEC.decode(data)
        return event


def sim_log(link: Link, clock: SimClock, topology: Topology, decoder: Decoder = CODEC) -> EmbeddedLog:
    """What a process at the end of `link` opens as its log."""
    return EmbeddedLog("memory://sim", topology, SimStore(link, clock, topology, decoder), CODEC, clock)


class SimStore:
    """See `noesium_stream.log.embedded.log.Store`."""

    scheme = "memory"

    def __init__(self, link: Link, clock: SimClock, topology: Topology, decoder: Decoder) -> None:
        self._link = link
        self._decoder = decoder
        self._clock = clock
        self._topology = topology
        self._store = link.broker.store
        self.changes = self._store.changes
        self.topic = self._store.topic
        self.topics = self._store.topics

    async def pause(self) -> None:
        chance = self._link.chance.random()
        if chance < 0.3:
            await asyncio.sleep(chance * 0.01)

    def watch(self) -> None:
        """All changes are told."""

    async def create(self, specs: Sequence[TopicSpec]) -> None:
        if any(self._store.topic(spec.name) is None for spec in specs):
            await self._link.call(lambda: self._store.create(specs))

    async def append(self, records: Sequence[Prepared], partitions: Sequence[int]) -> list[Position]:
        try:
            positions: list[Position] = await self._link.call(
                lambda: self._store.append(records, partitions), fills=True
            )
        except NoAnswerError as error:
            raise CommitUnknownError("no answer: it may be on the simulated log") from error
        return positions

    def fetch(
        self, topic: Topic, partition: int, offset: int, limit: int, keep: TypeFilter | None
    ) -> tuple[list[Record], int]:
        link = self._link
        if link.cut:
            return [], offset
        if link.chance.random() < 0.3:
            limit = 1 + link.chance.randrange(min(limit, 8))
        return self._store.fetch(topic.name, partition, offset, limit, keep, self._decoder)

    def unread(self, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        return list(positions)

    def bounds(self, topic: Topic, partitions: Iterable[int]) -> list[Bounds]:
        if self._link.cut:
            raise LogUnavailableError("no connection to the simulated broker")
        return self._store.bounds(topic, partitions)

    def size(self, topic: Topic) -> tuple[int, int | None]:
        return self._store.size(topic)

    async def truncate(self, topic: Topic, partition: int, before: int) -> None:
        await self._link.call(lambda: self._store.truncate(topic, partition, before))

    async def writer(self, writer_id: str, tenure: MemberTenure | None) -> LogWriter:
        epoch = await self._link.call(lambda: self._link.broker.open_writer(writer_id))
        return SimWriter(self._link, writer_id, epoch, self._clock.token(6), self, tenure)

    def coordinator(self, group: str, member: str, topics: Sequence[Topic]) -> Coordinator:
        return SimCoordinator(self._link, group, member, {topic.name: topic.partitions for topic in topics})

    async def members(self, group: str) -> list[GroupShare]:
        table = self._store.groups.get(group) or GroupTable()
        return shares(table.members, table.owners)

    async def close(self) -> None:
        """Nothing is held."""

    def check(self, prepared: Sequence[Prepared]) -> list[TopicSpec]:
        """Refuse partitions that are not there; return the topics that are missing."""
        missing: dict[str, TopicSpec] = {}
        for name, partition in dict.fromkeys(record[:2] for record in prepared):
            topic = self._store.topic(name)
            if topic is None:
                missing[name] = self._topology.spec(name)
            check_partition(name, partition, (topic or missing[name]).partitions)
        return list(missing.values())


class SimWriter:
    """A `LogWriter` by requests: what goes elsewhere, what goes to the last topic, the end of it."""

    def __init__(
        self,
        link: Link,
        writer_id: str,
        epoch: int,
        token: str,
        store: SimStore,
        tenure: MemberTenure | None,
    ) -> None:
        self.writer_id = writer_id
        self.epoch = epoch
        self._link = link
        self._token = token
        self._store = store
        self._tenure = tenure
        self._proven = tenure is None
        self._commits = 0
        self._closed = False

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        if self._closed:
            raise LogClosedError(f"The writer {self.writer_id} is closed.")
        prepared = prepare_outgoing(outgoing, CODEC)
        missing = self._store.check(prepared)
        work = asyncio.ensure_future(self._commit(prepared, missing))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait((work,))
            raise

    async def _commit(self, prepared: Sequence[Prepared], missing: Sequence[TopicSpec]) -> list[Position]:
        link, broker = self._link, self._link.broker
        self._commits += 1
        headers = _commit_headers(f"{self._token}-{self._commits}", prepared)
        positions: list[Position] = []
        try:
            if missing:
                await self._store.create(missing)
            for first, after in _parts(prepared):
                part = prepared[first:after], headers[first:after]
                positions += await link.call(
                    lambda part=part: broker.write(self.writer_id, self.epoch, *part), fills=True
                )
            if not self._proven:
                await link.call(lambda: broker.prove(self._tenure))
        except (LogUnavailableError, LogFullError, TenureEndedError) as error:
            await self._abort(error)
            raise
        try:
            await link.call(lambda: broker.end(self.writer_id, self.epoch, True))
        except LogUnavailableError as error:
            # Also where the end was not sent: the transaction is open, and only a new writer may end it.
            raise CommitUnknownError("no answer: it may be on the simulated log") from error
        self._proven = True
        return positions

    async def _abort(self, why: Exception) -> None:
        if isinstance(why, NoAnswerError):
            # What was sent may still come, after an abort too: this writer is of no use any more.
            raise FencedError("a part of the commit was not acknowledged; nothing of it is visible") from why
        try:
            await self._link.call(lambda: self._link.broker.end(self.writer_id, self.epoch, False))
        except LogUnavailableError as error:
            raise FencedError("the transaction cannot be aborted; nothing of it is visible") from error

    async def begin(self) -> Transaction:
        raise NotImplementedError("owners commit in one go")

    async def close(self) -> None:
        self._closed = True


def _parts(prepared: Sequence[Prepared]) -> list[tuple[int, int]]:
    """Where a commit is cut: in front of the records of its last topic."""
    if not prepared:
        return []
    last = prepared[-1].topic
    cut = next(index for index, record in enumerate(prepared) if record.topic == last)
    return [(0, len(prepared))] if cut == 0 else [(0, cut), (cut, len(prepared))]


def _commit_headers(commit_id: str, prepared: Sequence[Prepared]) -> list[Headers]:
    places = [record[:2] for record in prepared]
    indexes: dict[tuple[str, int], int] = {}
    headers: list[Headers] = []
    for place in places:
        index = indexes.get(place, 0)
        indexes[place] = index + 1
        headers.append((commit_header(commit_id, index, places.count(place)),))
    return headers


class SimCoordinator:
    """A member of a group with a session; what it believes to hold may be another's by now."""

    beat_s: float | None = BEAT_S

    def __init__(self, link: Link, group: str, member: str, topics: Mapping[str, int]) -> None:
        self._link = link
        self._group = group
        self._member = member
        self._topics = dict(topics)
        self._seen: int | None = -1
        self._heard: int | None = 0
        self._held: Mapping[TopicPartition, Claim] = {}
        self._renewed_s = link.broker.loop.time()

    def hurry(self) -> None:
        return  # a link that is cut answers so, and soon

    def changed(self) -> bool:
        return self._seen != self._heard or (bool(self._held) and self._lost)

    @property
    def _lost(self) -> bool:
        return self._link.broker.loop.time() - self._renewed_s > SESSION_S

    async def poll(self) -> Plan:
        sent_s = self._link.broker.loop.time()
        try:
            generation, held, leaving = await self._ask("poll", self._topics)
        except LogUnavailableError:
            if self._lost:
                self._held = {}  # as a Kafka consumer that has heard nothing for a session
            return Plan(self._held, frozenset())
        self._renewed_s = sent_s
        self._seen = self._heard = generation
        self._held = held
        return Plan(held, leaving)

    async def beat(self) -> None:
        sent_s = self._link.broker.loop.time()
        try:
            generation = await self._ask("beat")
        except LogUnavailableError:
            return
        self._heard = generation
        if generation is not None:
            self._renewed_s = sent_s
        if self.changed():
            self._link.broker.store.changes.notify()

    def holds(self, claims: Mapping[TopicPartition, Claim]) -> bool:
        return all(tp in self._held for tp in claims)

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, int]]) -> None:
        await self._tell("commit_offsets", offsets)

    async def follow(self, topics: Mapping[str, int]) -> None:
        self._topics = dict(topics)
        self._seen = -1

    async def release(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        self._held = {tp: claim for tp, claim in self._held.items() if tp not in gone}
        try:
            await self._ask("release", gone)
        except LogUnavailableError:
            self._seen = -1  # it may still be this member's: to be asked for again, as a Kafka consumer does

    async def leave(self) -> None:
        await self._tell("leave")

    async def _ask(self, name: str, *args: Any) -> Any:
        work = getattr(self._link.broker, name)
        return await self._link.call(lambda: work(self._group, self._member, *args))

    async def _tell(self, name: str, *args: Any) -> None:
        with suppress(LogUnavailableError):  # its session ends it
            await self._ask(name, *args)
