"""Live tails of Kafka by aiokafka: they wake at once, need no thread and buffer only their last fetch.

A tail waits for a restarting broker. A broker that stays unavailable, or a deleted topic, ends the tail with
an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.errors import OffsetOutOfRangeError

from noesium_stream.errors import EventStoreError
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.kafka.admin import KafkaAdmin
from noesium_stream.log.kafka.aio_client import started
from noesium_stream.log.kafka.bounded_reader import BATCH, Patience, out_of_range
from noesium_stream.log.kafka.errors import translated_aio
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.kafka.unpacking import UnpackError, bound_aiokafka, say_passed_over
from noesium_stream.log.record import Decoder, Record, is_wanted

_WAKE_MS: Final = 200
_ONE_MS: Final = 200
_ONE_BY_ONE: Final = 200
_FETCH_WAIT_MS: Final = 50


class Tail:
    """Reads partitions of one topic without end, from given offsets."""

    def __init__(self, settings: KafkaSettings, admin: KafkaAdmin, decoder: Decoder, topic: str) -> None:
        self._settings = settings
        self._admin = admin
        self._decoder = decoder
        self._topic = topic
        self._starts: dict[TopicPartition, int] = {}
        self._failed: dict[TopicPartition, int] = {}

    async def batches(
        self, positions: dict[int, int], keep: TypeFilter | None, check: Callable[[], None]
    ) -> AsyncGenerator[list[Record]]:
        """Yield batches of the partitions in `positions` as they arrive; `check` may raise to end it.

        Raises:
            LogTruncatedError, TopicNotFoundError, LogUnavailableError, LogCorruptError
        """
        if not positions:
            return
        consumer = await started(self._consumer, self._admin, f"reading {self._topic}")
        try:
            consumer.assign([TopicPartition(self._topic, partition) for partition in positions])
            for partition, offset in positions.items():
                place = TopicPartition(self._topic, partition)
                consumer.seek(place, offset)
                self._starts[place] = offset
            idle = Patience(self._admin, self._topic)
            while True:
                found = await self._next(consumer)
                check()
                if found:
                    idle.reset()
                    for place, messages in found.items():
                        self._starts[place] = messages[-1].offset + 1
                        batch = self._records(messages, keep)
                        if batch:
                            yield batch
                else:
                    await idle.wait()
        finally:
            # `wait`, not `await`: with its broker unavailable it may end as cancelled, though nobody here is.
            stopping = asyncio.ensure_future(consumer.stop())
            await asyncio.wait([stopping])
            if not stopping.cancelled():
                stopping.exception()  # retrieved and dropped: the error that ended the reading counts

    def _consumer(self) -> AIOKafkaConsumer:
        bound_aiokafka()
        return AIOKafkaConsumer(
            **self._settings.aiokafka(),
            isolation_level="read_committed",
            auto_offset_reset="none",
            enable_auto_commit=False,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            max_partition_fetch_bytes=262_144,
            fetch_max_bytes=4_194_304,
        )

    async def _next(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, list[Any]]:
        try:
            return await consumer.getmany(timeout_ms=_WAKE_MS, max_records=BATCH)
        except UnpackError:
            return await self._past(consumer)
        except OffsetOutOfRangeError as error:
            (tp, offset), *_ = error.args[0].items()
            raise await out_of_range(self._admin, self._topic, tp.partition, offset) from error
        except AioKafkaError as error:
            raise self._translated(error) from error

    async def _past(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, list[Any]]:
        """Read some records of each partition, one by one, and past a batch that cannot be unpacked.

        The client drops what it has read before such a batch: everything starts where the last batch that was
        given out ends.
        """
        found: dict[TopicPartition, list[Any]] = {}
        for place, offset in self._starts.items():
            consumer.seek(place, offset)
        for place in self._starts:
            for _ in range(_ONE_BY_ONE):
                messages = await self._one(consumer, place)
                if not messages:
                    break
                found.setdefault(place, []).extend(messages)
        return found

    async def _one(self, consumer: AIOKafkaConsumer, place: TopicPartition) -> list[Any]:
        while True:
            try:
                read = await consumer.getmany(place, timeout_ms=_ONE_MS, max_records=1)
            except UnpackError:
                offset = await consumer.position(place)
                if self._failed.get(place) != offset:  # read once more, in case it was damaged on its way
                    self._failed[place] = offset
                    consumer.seek(place, offset)
                    continue
                say_passed_over(place.topic, place.partition, offset)
                consumer.seek(place, offset + 1)
            except AioKafkaError as error:
                raise self._translated(error) from error
            else:
                return list(read.get(place, ()))

    def _records(self, messages: Sequence[Any], keep: TypeFilter | None) -> list[Record]:
        records = []
        for message in messages:
            record = Record(
                message.topic,
                message.partition,
                message.offset,
                message.timestamp,
                message.key.decode(errors="replace") if message.key is not None else "",
                list(message.headers),
                message.value or b"",
                self._decoder,
            )
            if keep is None or is_wanted(record, keep):
                records.append(record)
        return records

    def _translated(self, error: AioKafkaError) -> EventStoreError:
        return translated_aio(error, self._settings.bootstrap, f"reading {self._topic}")
