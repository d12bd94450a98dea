"""`kafka://host:port[,host:port]`: the log on Apache Kafka.

Clients: confluent-kafka (librdkafka) for transactions, bounded reads, groups and admin; aiokafka, on the
event loop, for single envelopes and live tails. Blocking calls run on threads of the log's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Final
from weakref import WeakSet

from confluent_kafka.admin import OffsetSpec

from noesium_stream.clock import Clock
from noesium_stream.errors import EventStoreError, LogClosedError, TopicNotFoundError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.headers import shared_filter
from noesium_stream.log.kafka.admin import KafkaAdmin
from noesium_stream.log.kafka.append import Appender, Publisher
from noesium_stream.log.kafka.bounded_reader import BoundedReader
from noesium_stream.log.kafka.coordinator import producer_epoch
from noesium_stream.log.kafka.errors import quiet_loggers, refused
from noesium_stream.log.kafka.group.subscription import KafkaSubscription
from noesium_stream.log.kafka.settings import KafkaSettings, kafka_settings
from noesium_stream.log.kafka.tail import Tail
from noesium_stream.log.kafka.tenure import KafkaTenure
from noesium_stream.log.kafka.thread_call import to_its_end
from noesium_stream.log.kafka.token import TokenError
from noesium_stream.log.kafka.transactional_producer import TransactionalProducer
from noesium_stream.log.kafka.writer import KafkaWriter
from noesium_stream.log.members import TENURE_HINT, member_name
from noesium_stream.log.port import (
    Cursor,
    GroupShare,
    Handler,
    OnAssigned,
    Only,
    OnRevoked,
    Position,
    Tenure,
    TopicInfo,
    TopicShape,
    Types,
)
from noesium_stream.log.prepare import Prepared, partitions_to_read, prepare_append, signed
from noesium_stream.log.record import Decoder, Record
from noesium_stream.log.topics import TopicSpec, Topology, partition_of
from noesium_stream.log.trust import trusting
from noesium_stream.log.url import LogUrl

_Write = Callable[[list[Prepared]], Awaitable[list[Position]]]
_THREADS: Final = 64
_SERVE_EVERY_S: Final = 1.0
_PREPARE_AT_ONCE: Final = 1_000


async def open_kafka(url: LogUrl, topology: Topology, codec: EnvelopeCodec, clock: Clock) -> KafkaLog:
    """Open the log on the Kafka at `url`, once it answers.

    Raises:
        LogUrlError: a parameter is unknown or has an invalid value.
        LogUnavailableError: no broker answers within ten seconds, or it refuses this client.
    """
    quiet_loggers()
    settings = kafka_settings(url)
    if settings.tokens is not None:
        try:
            await settings.tokens.token()
        except TokenError as error:
            raise refused(settings.bootstrap, str(error)) from error
    log = KafkaLog(url, settings, topology, codec, clock)
    try:
        await log.admin.probe()
    except BaseException:
        await log.close()
        raise
    return log


class KafkaLog:
    """An `EventLog` on Kafka; see `noesium_stream.log.port` for all methods."""

    def __init__(
        self, url: LogUrl, settings: KafkaSettings, topology: Topology, codec: EnvelopeCodec, clock: Clock
    ) -> None:
        self._url = str(url)
        self._settings = settings
        self._topology = topology
        self._codec = codec
        self._clock = clock
        self._closed = False
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="noesium kafka")
        self.admin = KafkaAdmin(settings, self._executor)
        self._publisher = Publisher(settings, self.admin)
        token = clock.token(8)
        self._appender = Appender(
            settings,
            f"{topology.namespace}.append.{token}",
            self._executor,
            self._is_committed,
            self.admin.forget_deleted,
        )
        self._writers: WeakSet[KafkaWriter] = WeakSet()
        self._subscriptions: list[KafkaSubscription] = []
        self._making = asyncio.Lock()
        self._serving = asyncio.create_task(self._serve(), name="noesium kafka log")

    @property
    def url(self) -> str:
        """See `EventLog.url`."""
        return self._url

    @property
    def topology(self) -> Topology:
        """See `EventLog.topology`."""
        return self._topology

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
        self._check_open()
        return await self._append(await self._prepared(envelopes, topic), self._write)

    async def publish(self, envelope: EventEnvelope) -> Position:
        """See `EventLog.publish`."""
        return (await self.append((envelope,)))[0]

    async def append_each(self, envelopes: Sequence[EventEnvelope]) -> None:
        """See `EventLog.append_each`: the client sends them in few requests."""
        self._check_open()
        await self._append(await self._prepared(envelopes, None), self._publisher.publish_each)

    async def writer(self, writer_id: str, *, tenure: Tenure | None = None) -> KafkaWriter:
        """See `EventLog.writer`."""
        self._check_open()
        what = f"The writer {writer_id}"
        proof = _kafka_tenure(tenure, what)
        transactional_id = f"{self._topology.namespace}.writer.{writer_id}"
        producer = TransactionalProducer(self._settings, transactional_id, what)
        try:
            await to_its_end(self._executor, producer.init, producer.give_up)
            epoch = await producer_epoch(self._settings, transactional_id, f"opening {what}")
            self._check_open()
        except BaseException:
            try:
                await to_its_end(self._executor, producer.close)
            except RuntimeError:
                producer.close()  # the log was closed meanwhile: its threads have ended
            raise
        writer = KafkaWriter(
            writer_id,
            producer,
            epoch,
            self._codec,
            self._counts,
            self._executor,
            self._clock.token(6),
            self.admin.limits,
            self.admin.forget,
            proof,
        )
        self._writers.add(writer)
        return writer

    async def read(
        self,
        topic: str,
        cursor: Cursor,
        *,
        until: Cursor | None = None,
        types: Types = None,
        partitions: Only = None,
    ) -> AsyncGenerator[Record]:
        """See `EventLog.read`."""
        async with aclosing(
            self.read_batches(topic, cursor, until=until, types=types, partitions=partitions)
        ) as batches:
            async for batch in batches:
                # Release each record with the next one: objects that die young cost the collector nothing.
                batch.reverse()
                while batch:
                    yield batch.pop()

    async def read_batches(
        self,
        topic: str,
        cursor: Cursor,
        *,
        until: Cursor | None = None,
        types: Types = None,
        partitions: Only = None,
    ) -> AsyncGenerator[list[Record]]:
        """See `EventLog.read_batches`."""
        self._check_open()
        count = await self.admin.existing(topic)
        wanted = partitions_to_read(topic, count, cursor, until, partitions)
        keep = None if types is None else shared_filter(frozenset(types))
        if until is None:
            first = {} if set(wanted) <= cursor.keys() else await self.beginning(topic)
            positions = {p: cursor[p] if p in cursor else first[p] for p in wanted}
            tail = Tail(self._settings, self.admin, self._codec, topic)
            source = tail.batches(positions, keep, self._check_open)
        else:
            stops = {partition: until[partition] for partition in wanted}
            source = self._reader(topic).batches(cursor, stops, keep, self._check_open)
        async with aclosing(source) as batches:
            async for batch in batches:
                await self._codec.know_keys_of(batch)
                yield batch

    async def end(self, topic: str) -> dict[int, int]:
        """See `EventLog.end`."""
        self._check_open()
        return await self.admin.offsets(topic, OffsetSpec.latest())

    async def beginning(self, topic: str) -> dict[int, int]:
        """See `EventLog.beginning`."""
        self._check_open()
        return await self.admin.offsets(topic, OffsetSpec.earliest())

    async def last_offset(self, topic: str) -> int:
        """See `EventLog.last_offset`."""
        return sum((await self.end(topic)).values())

    async def read_by_correlation(self, correlation_id: str, topics: Sequence[str]) -> AsyncGenerator[Record]:
        """See `EventLog.read_by_correlation`."""
        wanted = correlation_id.encode()
        for topic in topics:
            for partition, end in sorted((await self.end(topic)).items()):
                async with aclosing(self.read(topic, {}, until={partition: end})) as records:
                    async for record in records:
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
    ) -> KafkaSubscription:
        """See `EventLog.subscribe`."""
        self._check_open()
        for topic in topics:
            await self.admin.existing(topic)
        subscription = KafkaSubscription(
            self._settings,
            self.admin,
            f"{self._topology.namespace}.{group}",
            member_name(self._clock),
            list(dict.fromkeys(topics)),
            self._codec,
            trusting(handler, self._codec),
            on_assigned,
            on_revoked,
            None if types is None else shared_filter(frozenset(types)),
        )
        self._subscriptions.append(subscription)
        return subscription

    async def members(self, group: str) -> list[GroupShare]:
        """See `EventLog.members`."""
        self._check_open()
        return await self.admin.members(f"{self._topology.namespace}.{group}")

    async def dismiss(self, group: str, members: Collection[str]) -> None:
        """See `EventLog.dismiss`."""
        self._check_open()
        await self.admin.dismiss(f"{self._topology.namespace}.{group}", members)

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See `EventLog.ensure_topics`."""
        self._check_open()
        async with self._making:
            await self.admin.ensure(specs, exact=True)

    async def topics(self) -> list[TopicInfo]:
        """See `EventLog.topics`."""
        self._check_open()
        return await self.admin.infos(f"{self._topology.namespace}.")

    async def layout(self) -> dict[str, TopicShape]:
        """See `EventLog.layout`."""
        self._check_open()
        return await self.admin.layout(f"{self._topology.namespace}.")

    async def topic_id(self, topic: str) -> str:
        """See `EventLog.topic_id`."""
        self._check_open()
        return await self.admin.topic_id(topic)

    async def truncate(self, topic: str, before: Cursor) -> None:
        """See `EventLog.truncate`."""
        self._check_open()
        await self.admin.truncate(topic, before)

    async def close(self) -> None:
        """See `EventLog.close`."""
        if self._closed:
            return
        self._closed = True
        self._serving.cancel()
        await asyncio.gather(*(subscription.close() for subscription in self._subscriptions))
        await asyncio.gather(*(writer.close() for writer in list(self._writers)))
        await self._appender.close()
        await self._publisher.close()
        self.admin.close()
        self._executor.shutdown(wait=False)

    async def _prepared(self, envelopes: Sequence[EventEnvelope], topic: str | None) -> list[Prepared]:
        """Encode all events; yields to other tasks during a large batch."""
        if len(envelopes) <= _PREPARE_AT_ONCE:
            return prepare_append(envelopes, topic, self._topology, self._codec)
        prepared: list[Prepared] = []
        for start in range(0, len(envelopes), _PREPARE_AT_ONCE):
            part = envelopes[start : start + _PREPARE_AT_ONCE]
            prepared += prepare_append(part, topic, self._topology, self._codec)
            await asyncio.sleep(0)
        return prepared

    async def _append(self, prepared: Sequence[Prepared], write: _Write) -> list[Position]:
        """Place encoded records, which nothing can refuse any more, and write them."""
        if not prepared:
            return []
        topics = {record.topic for record in prepared}
        try:
            return await write(self._placed(prepared, await self._counts(topics)))
        except TopicNotFoundError:
            # Deleted since its last use: create it anew, once.
            self.admin.forget(topics)
            return await write(self._placed(prepared, await self._counts(topics)))

    def _placed(self, prepared: Sequence[Prepared], counts: dict[str, int]) -> list[Prepared]:
        placed = [
            Prepared(name, partition_of(key, counts[name]), key, text, extra, value)
            for name, _, key, text, extra, value in prepared
        ]
        return signed(placed, self._codec)

    async def _write(self, placed: list[Prepared]) -> list[Position]:
        if len(placed) == 1:
            return [await self._publisher.publish(placed[0])]
        return await self._appender.append(placed)

    async def _counts(self, topics: set[str]) -> dict[str, int]:
        """Partition counts; a topic that this process has not used yet is checked, or created."""
        unknown = [topic for topic in sorted(topics) if self.admin.known(topic) is None]
        if unknown:
            async with self._making:
                await self.admin.ensure([self._topology.spec(topic) for topic in unknown], exact=False)
        return {topic: self.admin.known(topic) or await self.admin.existing(topic) for topic in topics}

    async def _is_committed(self, position: Position) -> bool:
        """Whether a committed record lies at this position."""
        topic, partition, offset = position
        source = self._reader(topic).batches({partition: offset}, {partition: offset + 1}, None, _fine)
        async with aclosing(source) as batches:
            async for _ in batches:
                return True
        return False

    def _reader(self, topic: str) -> BoundedReader:
        return BoundedReader(self._settings, self.admin, self._executor, self._codec, topic)

    async def _serve(self) -> None:
        """Serve idle producers, whose callbacks would pile up."""
        while True:
            await asyncio.sleep(_SERVE_EVERY_S)
            self._appender.serve()
            for writer in list(self._writers):
                writer.serve()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"{self._url} is closed.", hint="Open it again with open_log.")


def _kafka_tenure(tenure: Tenure | None, what: str) -> KafkaTenure | None:
    """Check that a tenure is of this backend and may still last, and return it.

    Raises:
        TenureEndedError: the member itself knows that the tenure has ended.
        EventStoreError: another backend made it.
    """
    if tenure is None:
        return None
    if not isinstance(tenure, KafkaTenure):
        raise EventStoreError(f"{type(tenure).__name__} is no tenure of a Kafka.", hint=TENURE_HINT)
    if not tenure.visible:
        raise tenure.ended(what)
    return tenure


def _fine() -> None:
    """The check of a reader that nobody closes."""
