"""The shared part of the embedded backends: the port on top of a store in this process.

A store keeps records and implements transactions. This module routes, encodes, reads, tails and subscribes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import LogClosedError, LogTruncatedError, TopicNotFoundError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.embedded.group import Member, member_tenure
from noesium_stream.log.embedded.store import Bounds, Store, Topic, check_spec
from noesium_stream.log.headers import shared_filter
from noesium_stream.log.members import member_name
from noesium_stream.log.port import (
    Cursor,
    GroupShare,
    Handler,
    LogWriter,
    OnAssigned,
    Only,
    OnRevoked,
    Position,
    Subscription,
    Tenure,
    TopicInfo,
    TopicPartition,
    TopicShape,
    Types,
)
from noesium_stream.log.prepare import check_partition, partitions_to_read, prepare_append, signed
from noesium_stream.log.record import Decoder, Record
from noesium_stream.log.topics import TopicSpec, Topology, partition_of
from noesium_stream.log.trust import trusting
from noesium_stream.observability import events_emitted

FETCH_RECORDS: Final = 1000
"""Largest number of records of one partition that a reader fetches at a time."""


class EmbeddedLog:
    """An `EventLog` on a `Store`; see `noesium_stream.log.port` for all methods."""

    def __init__(
        self, url: str, topology: Topology, store: Store, codec: EnvelopeCodec, clock: Clock
    ) -> None:
        self._url = url
        self._topology = topology
        self._store = store
        self._codec = codec
        self._clock = clock
        self._pause = store.pause
        self._closed = False
        self._members: set[Member] = set()
        self._writers: list[LogWriter] = []

    @property
    def url(self) -> str:
        """See `EventLog.url`."""
        return self._url

    @property
    def topology(self) -> Topology:
        """See `EventLog.topology`."""
        return self._topology

    @property
    def store(self) -> Store:
        """The store of the log's records, for tools that inspect it. Write through the log."""
        return self._store

    @property
    def decoder(self) -> Decoder:
        """See `EventLog.decoder`."""
        return self._codec

    @property
    def catalogue(self) -> Catalogue:
        """See `EventLog.catalogue`."""
        return self._codec.catalogue

    async def append(self, envelopes: Sequence[EventEnvelope], *, topic: str | None = None) -> list[Position]:
        """See `EventLog.append`."""
        await self._begin()
        prepared = prepare_append(envelopes, topic, self._topology, self._codec)
        if not prepared:
            return []
        # 1. Everything is encoded: nothing can be refused any more. 2. Topics. 3. One transaction.
        counts = await self._partition_counts({record.topic for record in prepared})
        partitions = [partition_of(record[2], counts[record[0]]) for record in prepared]
        positions = await self._store.append(signed(prepared, self._codec, partitions), partitions)
        events_emitted.add(len(positions), {"noesium.log": self._url.partition(":")[0]})
        if self._pause is not None:
            await self._pause()
        return positions

    async def publish(self, envelope: EventEnvelope) -> Position:
        """See `EventLog.publish`."""
        return (await self.append((envelope,)))[0]

    async def append_each(self, envelopes: Sequence[EventEnvelope]) -> None:
        """See `EventLog.append_each`; one transaction costs less than one for each."""
        await self.append(envelopes)

    async def writer(self, writer_id: str, *, tenure: Tenure | None = None) -> LogWriter:
        """See `EventLog.writer`."""
        await self._begin()
        writer = await self._store.writer(writer_id, member_tenure(tenure))
        self._writers.append(writer)
        if self._pause is not None:
            await self._pause()
        return writer

    async def read(
        self,
        topic: str,
        cursor: Cursor,
        *,
        until: Cursor | None = None,
        types: Types = None,
        partitions: Only = None,
    ) -> AsyncIterator[Record]:
        """See `EventLog.read`."""
        async for batch in self.read_batches(topic, cursor, until=until, types=types, partitions=partitions):
            for record in batch:
                yield record

    async def read_batches(
        self,
        topic: str,
        cursor: Cursor,
        *,
        until: Cursor | None = None,
        types: Types = None,
        partitions: Only = None,
    ) -> AsyncIterator[Sequence[Record]]:
        """See `EventLog.read_batches`."""
        await self._begin()
        info = self._topic(topic)
        keep = None if types is None else shared_filter(frozenset(types))
        wanted = partitions_to_read(topic, info.partitions, cursor, until, partitions)
        positions = self._start(info, cursor, wanted)
        places = [(topic, partition) for partition in positions]
        changes = self._store.changes
        self._store.watch()
        taken = 0
        while True:
            seen, moved = changes.count, False
            for partition, offset in list(positions.items()):
                stop = None if until is None else until[partition]
                if stop is not None and offset >= stop:
                    del positions[partition]
                    continue
                records, after = self._store.fetch(info, partition, offset, FETCH_RECORDS, keep)
                if after == offset:
                    continue
                positions[partition], moved = after, True
                taken += after - offset
                if stop is not None and after > stop:
                    records = [record for record in records if record.offset < stop]
                if records:
                    await self._codec.know_keys_of(records)
                    yield records
                self._check_open()
            if not positions:
                return
            if not moved:
                taken = 0
                await changes.wait(seen, None, places)
            elif taken >= FETCH_RECORDS:
                # Yield to other tasks even if there is always more to read.
                taken = 0
                await asyncio.sleep(0)
            await self._begin()

    async def end(self, topic: str) -> dict[int, int]:
        """See `EventLog.end`."""
        return {partition: bounds.end for partition, bounds in enumerate(await self._bounds(topic))}

    async def beginning(self, topic: str) -> dict[int, int]:
        """See `EventLog.beginning`."""
        return {partition: bounds.first for partition, bounds in enumerate(await self._bounds(topic))}

    async def last_offset(self, topic: str) -> int:
        """See `EventLog.last_offset`."""
        return sum(bounds.end for bounds in await self._bounds(topic))

    async def read_by_correlation(self, correlation_id: str, topics: Sequence[str]) -> AsyncIterator[Record]:
        """See `EventLog.read_by_correlation`."""
        wanted = correlation_id.encode()
        for topic in topics:
            for partition, end in (await self.end(topic)).items():
                first = (await self.beginning(topic))[partition]
                async for record in self.read(topic, {partition: first}, until={partition: end}):
                    # Avro keeps text as it is: most records are ruled out without decoding.
                    if wanted in record.value and record.envelope.correlation_id == correlation_id:
                        yield record

    async def subscribe(
        self,
        group: str,
        topics: Sequence[str],
        handler: Handler,
        *,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
        types: Types = None,
    ) -> Subscription:
        """See `EventLog.subscribe`."""
        await self._begin()
        infos = {name: self._topic(name) for name in dict.fromkeys(topics)}
        keep = None if types is None else shared_filter(frozenset(types))
        store = self._store

        def fetch(tp: TopicPartition, offset: int, limit: int) -> tuple[Sequence[Record], int]:
            return store.fetch(infos[tp.topic], tp.partition, offset, limit, keep)

        def beginning(tp: TopicPartition) -> int:
            return store.bounds(infos[tp.topic], (tp.partition,))[0].first

        store.watch()

        def resolve(names: Sequence[str]) -> dict[str, int]:
            infos.update({name: self._topic(name) for name in names})
            return {name: infos[name].partitions for name in names}

        name = member_name(self._clock)
        coordinator = store.coordinator(group, name, list(infos.values()))
        member = Member(
            coordinator,
            store.unread,
            fetch,
            store.changes,
            trusting(handler, self._codec),
            on_assigned,
            on_revoked,
            beginning,
            resolve,
            name,
            group,
        )
        self._members.add(member)
        return member

    async def members(self, group: str) -> list[GroupShare]:
        """See `EventLog.members`."""
        self._check_open()
        return await self._store.members(group)

    async def dismiss(self, group: str, members: Collection[str]) -> None:
        """See `EventLog.dismiss`."""
        await self._begin()
        await self._store.dismiss(group, members)

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See `EventLog.ensure_topics`."""
        await self._begin()
        for spec in specs:
            check_spec(spec, self._store.topic(spec.name))
        await self._store.create([self._like(spec) for spec in specs])
        for spec in specs:
            check_spec(spec, self._store.topic(spec.name))

    async def topics(self) -> list[TopicInfo]:
        """See `EventLog.topics`."""
        await self._begin()
        prefix = self._topology.namespace + "."
        return [
            TopicInfo(topic.name, topic.partitions, *self._store.size(topic), topic.retention_ms)
            for topic in self._store.topics()
            if topic.name.startswith(prefix)
        ]

    async def layout(self) -> dict[str, TopicShape]:
        """See `EventLog.layout`."""
        await self._begin()
        prefix = self._topology.namespace + "."
        return {
            topic.name: TopicShape(topic.partitions, topic.uid)
            for topic in self._store.topics()
            if topic.name.startswith(prefix)
        }

    async def topic_id(self, topic: str) -> str:
        """See `EventLog.topic_id`."""
        self._check_open()
        return self._topic(topic).uid

    async def truncate(self, topic: str, before: Cursor) -> None:
        """See `EventLog.truncate`."""
        await self._begin()
        info = self._topic(topic)
        for partition in before:
            check_partition(topic, partition, info.partitions)
        for partition, offset in before.items():
            await self._store.truncate(info, partition, offset)

    async def close(self) -> None:
        """See `EventLog.close`."""
        if self._closed:
            return
        for member in self._members:
            await member.close()
        for writer in self._writers:
            await writer.close()
        self._closed = True
        self._store.changes.notify()
        await self._store.close()

    def _like(self, spec: TopicSpec) -> TopicSpec:
        if spec.like is None:
            return spec
        return replace(spec, retention_ms=self._topic(spec.like).retention_ms)

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"{self._url} is closed.", hint="Open it again with open_log.")

    async def _begin(self) -> None:
        """Refuse an operation on a closed log; let a scheduler interleave other tasks before it."""
        self._check_open()
        if self._pause is not None:
            await self._pause()
            self._check_open()

    def _topic(self, name: str) -> Topic:
        info = self._store.topic(name)
        if info is None:
            raise TopicNotFoundError(
                f"{self._url} has no topic {name}.",
                hint="It is made when the first event is appended to it, or by ensure_topics.",
            )
        return info

    async def _partition_counts(self, names: set[str]) -> dict[str, int]:
        known = {name: self._store.topic(name) for name in names}
        missing = [name for name, topic in known.items() if topic is None]
        if missing:
            await self._store.create([self._topology.spec(name) for name in missing])
        return {name: (topic or self._topic(name)).partitions for name, topic in known.items()}

    async def _bounds(self, topic: str) -> list[Bounds]:
        await self._begin()
        info = self._topic(topic)
        return self._store.bounds(info, range(info.partitions))

    def _start(self, info: Topic, cursor: Cursor, partitions: Collection[int]) -> dict[int, int]:
        """The start offsets, checked against what is retained."""
        starts = {}
        for partition, (first, _) in zip(partitions, self._store.bounds(info, partitions), strict=True):
            starts[partition] = start = cursor.get(partition, first)
            if start < first:
                raise LogTruncatedError(info.name, partition, start, first)
        return starts
