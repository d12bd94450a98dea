"""Bounded reads of Kafka: a new consumer reads committed records up to given offsets, then closes.

Decision record: the end is a high watermark, because committed events of others may lie beyond the last
stable offset while a transaction is open. A partition is done when the consumer's position reaches the end:
the position moves over control markers and aborted tails by itself. The end-of-partition event is no proof
(it fires at the last stable offset), but the offset that it carries is a position like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from noesium_stream.errors import EventStoreError, LogCorruptError, LogTruncatedError
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.kafka.admin import KafkaAdmin
from noesium_stream.log.kafka.errors import ClientLog, translated, unavailable
from noesium_stream.log.kafka.lost_client import is_lost
from noesium_stream.log.kafka.messages import EOF, Message, Sieve, sieve, to_record
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.kafka.unpacking import say_passed_over
from noesium_stream.log.port import Cursor
from noesium_stream.log.record import Decoder, Record

BATCH: Final = 500
POLL_S: Final = 0.1
_ASK_AFTER_S: Final = 5.0
BAD_BATCH: Final = KafkaError._BAD_COMPRESSION
OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


def consumer_config(settings: KafkaSettings, group: str) -> dict[str, Any]:
    """Settings of every consumer: small queues, a short back-off, no skipped offsets, no topic creation."""
    return {
        **settings.confluent(),
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": 50,
        "fetch.queue.backoff.ms": 10,
        "queued.max.messages.kbytes": 16_384,
        "enable.partition.eof": True,
    }


def reader_of(topic: str) -> str:
    """The group that readers of a topic name, `NAMESPACE.reader`.

    They never join it, but the client looks for its coordinator, and that takes a right on brokers with ACLs.
    """
    return f"{topic.partition('.')[0]}.reader"


class BoundedReader:
    """Reads partitions of one topic from `start` to `until`; for a single use."""

    def __init__(
        self, settings: KafkaSettings, admin: KafkaAdmin, executor: Executor, decoder: Decoder, topic: str
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._executor = executor
        self._decoder = decoder
        self._topic = topic
        self._starts: dict[int, int] = {}
        self._stops: dict[int, int] = {}
        self._passed: set[int] = set()
        self._failed: dict[int, int] = {}
        self.positions: dict[int, int] = {}

    async def batches(
        self, cursor: Cursor, until: Cursor, keep: TypeFilter | None, check: Callable[[], None]
    ) -> AsyncGenerator[list[Record]]:
        """Yield batches until every partition of `until` is read that far; `check` may raise to end it.

        Raises:
            LogTruncatedError, TopicNotFoundError, LogUnavailableError, LogCorruptError
        """
        self._stops = {p: stop for p, stop in until.items() if cursor.get(p, 0) < stop}
        self._starts = {p: cursor.get(p, OFFSET_BEGINNING) for p in self._stops}
        if not self._stops:
            return
        log = ClientLog()
        wanted = sieve(keep, self._decoder)
        consumer = self._consumer(log)
        try:
            await self._assign(consumer)
            idle = Patience(self._admin, self._topic)
            while self._stops:
                messages: list[Message] = consumer.consume(BATCH, 0)
                if not messages:
                    messages = await self._blocking(poll_batch, consumer, idle.poll_s())
                check()
                taken = len(messages)
                if taken:
                    idle.reset()
                    batch = await self._records(messages, wanted)
                    if batch:
                        yield batch
                await self._move_on(consumer)
                if log.refusal is not None:
                    log.refusal = None
                    await self._admin.still_let_in()
                if taken < BATCH:
                    self._look(consumer)
                    if await idle.wait() and await self._blocking(
                        is_lost, consumer, self._settings, self._topic
                    ):
                        await self._blocking(consumer.close)
                        consumer = self._consumer(log)
                        await self._assign(consumer)
        finally:
            await asyncio.shield(self._blocking(consumer.close))

    def _consumer(self, log: ClientLog) -> Consumer:
        config = {**consumer_config(self._settings, reader_of(self._topic)), "error_cb": log.on_error}
        return Consumer(config, logger=log)

    async def _lost(self, consumer: Consumer) -> bool:
        found: bool = await self._blocking(is_lost, consumer, self._settings, self._topic)
        return found

    async def _assign(self, consumer: Consumer) -> None:
        """Start where each partition that is not done was read to."""
        starts = {p: self.positions.get(p, self._starts[p]) for p in self._stops}
        if OFFSET_BEGINNING in starts.values():
            await self._blocking(self._learn_leaders, consumer)
        consumer.assign([TopicPartition(self._topic, p, start) for p, start in starts.items()])

    def _learn_leaders(self, consumer: Consumer) -> None:
        """Load the topic's metadata into the client: 5 ms instead of 500.

        If librdkafka is told to start at the beginning of a partition whose leader it does not know yet, it
        waits half a second before it looks again. If this call fails, it still does.
        """
        with suppress(KafkaException):
            consumer.list_topics(self._topic, _ASK_AFTER_S)

    async def _records(self, messages: list[Message], wanted: Sieve | None) -> list[Record]:
        """The records of wanted messages; empties `messages`, so that the rest and its headers die young."""
        records: list[Record] = []
        stops, positions = self._stops, self.positions
        messages.reverse()
        while messages:
            message = messages.pop()
            partition, offset = message.partition(), message.offset()
            error = message.error()
            if error is not None:
                if error.code() == BAD_BATCH and offset is not None and offset >= 0:
                    self._pass_over(partition, offset)
                    continue
                if error.code() != EOF:
                    raise await self._failure(error, partition)
            else:
                stop = stops.get(partition)
                if (
                    stop is not None
                    and offset < stop
                    and (wanted is None or wanted.keeps(message, message.value() or b""))
                ):
                    records.append(to_record(message, self._decoder))
                offset += 1
            positions[partition] = offset
            if offset >= stops.get(partition, offset + 1):
                del stops[partition]
        return records

    async def _move_on(self, consumer: Consumer) -> None:
        """Start again behind what was passed over."""
        if self._passed and self._stops:
            await self._assign(consumer)
        self._passed.clear()

    def _pass_over(self, partition: int, offset: int) -> None:
        """Go on behind a batch that cannot be unpacked, offset by offset: its last one is not known."""
        if partition in self._passed:
            return  # told once more, before the reader has moved
        offset = max(offset, self.positions.get(partition, 0))
        if self._failed.get(partition) != offset:
            # The client reads it once more, in case it was damaged on its way.
            self._failed[partition] = offset
            return
        say_passed_over(self._topic, partition, offset)
        self.positions[partition] = offset + 1
        self._passed.add(partition)
        if offset + 1 >= self._stops.get(partition, offset + 2):
            del self._stops[partition]

    def _look(self, consumer: Consumer) -> None:
        """Update positions: they move over markers and aborted records without a message."""
        if not self._stops:
            return
        for tp in consumer.position([TopicPartition(self._topic, p) for p in self._stops]):
            # The client's position may be from before a new start.
            if tp.offset >= self.positions.get(tp.partition, 0):
                self.positions[tp.partition] = tp.offset
                if tp.offset >= self._stops[tp.partition]:
                    del self._stops[tp.partition]

    async def _failure(self, error: KafkaError, partition: int | None) -> EventStoreError:
        if error.code() in OUT_OF_RANGE and partition is not None and partition >= 0:
            wanted_offset = self.positions.get(partition, self._starts.get(partition, 0))
            return await out_of_range(self._admin, self._topic, partition, wanted_offset)
        return translated(error, self._settings.bootstrap, f"reading {self._topic}")

    async def _blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


class Patience:
    """Idle behaviour of a reader: it checks now and then whether the topic and the cluster still exist."""

    def __init__(self, admin: KafkaAdmin, topic: str) -> None:
        self._admin = admin
        self._topic = topic
        self._since = time.monotonic()

    def reset(self) -> None:
        """Note that a message came."""
        self._since = time.monotonic()

    def poll_s(self) -> float:
        """How long to wait for a message; short at first, because a marker at the end is not a message."""
        return min(POLL_S, 0.005 + (time.monotonic() - self._since) / 10)

    async def wait(self) -> bool:
        """Handle a poll without messages; return whether there was none for so long that this has checked.

        Raises:
            TopicNotFoundError, LogUnavailableError
        """
        if time.monotonic() - self._since <= _ASK_AFTER_S:
            return False
        await self._admin.existing(self._topic)
        self.reset()
        return True


def poll_batch(
    consumer: Consumer, timeout_s: float = POLL_S, more_s: float = 0, *, most: int = BATCH
) -> list[Message]:
    """The first message within a short wait, and those that follow within another, up to a limit. Blocks."""
    first = consumer.poll(timeout_s)
    if first is None:
        return []
    rest: list[Message] = consumer.consume(most - 1, more_s)
    rest.insert(0, first)
    return rest


async def out_of_range(admin: KafkaAdmin, topic: str, partition: int, wanted_offset: int) -> EventStoreError:
    """The error for an offset that the client reports as out of range.

    The client also reports this when a broker that comes back cannot tell where the beginning is (a negative
    offset), or which epoch an offset belongs to; then the error is retriable.
    """
    first = (await admin.offsets(topic, OffsetSpec.earliest())).get(partition, 0)
    if 0 <= wanted_offset < first:
        return LogTruncatedError(topic, partition, wanted_offset, first)
    end = (await admin.offsets(topic, OffsetSpec.latest())).get(partition, 0)
    if wanted_offset <= end:
        reason = f"{topic}/{partition} cannot be read from {max(wanted_offset, first)} on, which is there"
        return unavailable(admin.bootstrap, reason=reason)
    return LogCorruptError(
        f"{topic}/{partition}: offset {wanted_offset} lies beyond the end of the partition.",
        hint="The topic was made anew, or its broker has lost data. Read it from the beginning.",
    )
