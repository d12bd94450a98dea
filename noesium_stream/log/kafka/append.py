"""Appends to Kafka: a single envelope plainly and idempotently, several in a transaction, all or none.

Decision record: a single envelope goes through aiokafka (3 ms, no transaction: one record is atomic by
itself). Batches share one transactional producer of this process. Calls that wait while a transaction commits
go into the next one together (group commit: a transaction of 500 records costs twice that of one). If a
shared transaction fails, its calls are retried one by one, so that only the guilty one gets the error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError

from noesium_stream.errors import (
    CommitUnknownError,
    EventStoreError,
    LogClosedError,
    LogUnavailableError,
    TopicNotFoundError,
)
from noesium_stream.log.kafka.admin import KafkaAdmin
from noesium_stream.log.kafka.aio_client import started
from noesium_stream.log.kafka.errors import PATIENCE_S, translated_aio
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.kafka.thread_call import to_its_end
from noesium_stream.log.kafka.transactional_producer import TransactionalProducer
from noesium_stream.log.port import Position
from noesium_stream.log.prepare import Prepared, headers_of_text

T = TypeVar("T")
IsThere = Callable[[Position], Awaitable[bool]]
"""Whether a committed record lies at a position."""
Deleted = Callable[[Iterable[str]], Awaitable[list[str]]]
"""Those of the topics that do not exist any more."""

GROUP_RECORDS: Final = 10_000
"""A shared transaction accepts no further call once it has this many records."""

_REQUEST_TIMEOUT_MS: Final = 15_000
PUBLISH_S: Final = 30.0
"""Timeout for the acknowledgement of a single envelope; a restarting broker is back by then."""

_CLOSE_TIMEOUT_S: Final = 2.0


class Publisher:
    """Appends single envelopes, by aiokafka on the event loop."""

    def __init__(self, settings: KafkaSettings, admin: KafkaAdmin) -> None:
        self._settings = settings
        self._admin = admin
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    async def publish(self, record: Prepared) -> Position:
        """Append one record; its partition is given.

        Raises:
            LogUnavailableError, RecordTooLargeError, TopicNotFoundError: it was not written.
            CommitUnknownError: it was sent, and the broker has not acknowledged it in time.
        """
        return (await self.publish_each((record,)))[0]

    async def publish_each(self, records: Sequence[Prepared]) -> list[Position]:
        """Append records in order, each by itself; after an error some of them may be there.

        Raises:
            LogUnavailableError, RecordTooLargeError, TopicNotFoundError: a record was not written.
            CommitUnknownError: they were sent, and the broker has not acknowledged all of them in time.
        """
        what = f"an append to {records[0].topic}"
        try:
            producer = self._producer or await self._start(what)
            sending = []
            for topic, partition, key, text, extra, value in records:
                headers = [*headers_of_text(text.encode()), *extra]
                sending.append(await producer.send(topic, value, key.encode(), partition, headers=headers))
        except AioKafkaError as error:
            raise translated_aio(error, self._settings.bootstrap, what) from error
        try:
            # aiokafka's idempotent producer resends a record for as long as the producer lives.
            async with asyncio.timeout(PUBLISH_S):
                sent = await asyncio.gather(*sending)
        except (TimeoutError, AioKafkaError) as error:
            found = translated_aio(error, self._settings.bootstrap, what)
            if not found.retriable:
                raise found from error
            raise CommitUnknownError(
                f"{what}: not acknowledged by the broker in {PUBLISH_S:.0f} s; it may be on the log or not.",
                hint="Append the same event again: handlers and runs count a repeated event_id once.",
            ) from error
        return [Position(one.topic, one.partition, one.offset) for one in sent]

    async def close(self) -> None:
        """Close the client; acknowledged records stay."""
        self._closed = True
        async with self._starting:
            if self._producer is not None:
                # aiokafka's idempotent producer tries for ever to send its queue. A record that is not
                # acknowledged by now was cancelled by its caller, who knows that it may not be there.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                        await self._producer.stop()

    async def _start(self, what: str) -> AIOKafkaProducer:
        async with self._starting:
            if self._closed:
                raise LogClosedError("the log is closed.")
            if self._producer is None:
                self._producer = await started(self._make, self._admin, what)
            return self._producer

    def _make(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            **self._settings.aiokafka(),
            acks="all",
            enable_idempotence=True,
            compression_type="zstd",  # a lone record takes 2 µs more than with lz4, and 0.8 of its bytes
            max_request_size=1_048_588,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )


@dataclass(slots=True)
class _Call:
    """One call of `append`; `alone` is set once it has to be retried by itself."""

    records: Sequence[Prepared]
    done: asyncio.Future[list[Position]]
    alone: bool = False


class Appender:
    """Appends batches, all or none, by a transactional producer that all calls of this log share."""

    def __init__(
        self,
        settings: KafkaSettings,
        transactional_id: str,
        executor: Executor,
        is_there: IsThere,
        deleted: Deleted,
    ) -> None:
        self._settings = settings
        self._id = transactional_id
        self._executor = executor
        self._is_there = is_there
        self._deleted = deleted
        self._waiting: list[_Call] = []
        self._worker: asyncio.Task[None] | None = None
        self._producer: TransactionalProducer | None = None
        self._closed = False

    async def append(self, records: Sequence[Prepared]) -> list[Position]:
        """Append all or none; partitions are given.

        Raises:
            LogUnavailableError, RecordTooLargeError, TopicNotFoundError: nothing was written.
        """
        call = _Call(records, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="noesium kafka appender")
        return await call.done

    def serve(self) -> None:
        """Between transactions: handle the client's callbacks."""
        if self._producer is not None and (self._worker is None or self._worker.done()):
            self._producer.serve()

    async def close(self) -> None:
        """Finish open calls, then close the producer."""
        self._closed = True
        if self._worker is not None:
            await asyncio.wait((self._worker,))
        if self._producer is not None:
            await self._blocking(self._producer.close)

    async def _work(self) -> None:
        """Commit group after group until no call waits."""
        while self._waiting:
            group = self._next_group()
            try:
                positions = await self._commit([record for call in group for record in call.records])
            except EventStoreError as error:
                self._failed(group, error)
            except BaseException as error:
                for call in group + self._waiting:
                    if not call.done.done():
                        call.done.set_exception(error)
                raise
            else:
                self._hand_out(group, positions)

    def _next_group(self) -> list[_Call]:
        """The calls for the next transaction; drops those that were cancelled before it."""
        waiting, self._waiting = [call for call in self._waiting if not call.done.cancelled()], []
        group: list[_Call] = []
        size = 0
        for call in waiting:
            if group and (call.alone or group[0].alone or size + len(call.records) > GROUP_RECORDS):
                self._waiting.append(call)
            else:
                group.append(call)
                size += len(call.records)
        return group

    def _failed(self, group: list[_Call], error: EventStoreError) -> None:
        """Fail a single call with the error; retry each call of a larger group by itself."""
        if len(group) == 1 or isinstance(error, CommitUnknownError) or error.retriable:
            for call in group:
                if not call.done.done():
                    call.done.set_exception(error)
            return
        for call in group:
            call.alone = True
        self._waiting = group + self._waiting

    @staticmethod
    def _hand_out(group: list[_Call], positions: list[Position]) -> None:
        start = 0
        for call in group:
            end = start + len(call.records)
            if not call.done.done():
                call.done.set_result(positions[start:end])
            start = end

    async def _commit(self, records: list[Prepared]) -> list[Position]:
        """Commit one transaction; retry for a while if a broker is unavailable and nothing was written."""
        if not records:
            return []
        deadline = time.monotonic() + PATIENCE_S
        while True:
            producer = await self._usable()
            try:
                producer.begin()
                producer.produce(records)
                return await self._blocking(producer.commit)
            except CommitUnknownError as error:
                return await self._settle(producer, error)
            except EventStoreError as error:
                await self._blocking(producer.abort)
                if not isinstance(error, LogUnavailableError):
                    raise
                # The client waits for a topic that was deleted as for a broker that is away.
                if gone := await self._deleted(record.topic for record in records):
                    raise TopicNotFoundError(f"an append: there is no topic {gone[0]} any more.") from error
                if time.monotonic() > deadline:
                    raise

    async def _settle(self, producer: TransactionalProducer, unknown: CommitUnknownError) -> list[Position]:
        """Find out the outcome of a commit that was not acknowledged.

        1. Open a new producer of the same id: once it is initialised, the old transaction has ended one way
           or the other, and no late copy of a request can change that.
        2. Look whether its first record is there.
        """
        positions = producer.positions()
        try:
            await self._usable()
            there = await self._is_there(positions[0])
        except EventStoreError as error:
            raise unknown from error
        if there:
            return positions
        raise LogUnavailableError("the broker did not finish an append; nothing of it was written.")

    async def _usable(self) -> TransactionalProducer:
        if self._closed and self._producer is None:
            raise LogClosedError("the log is closed.")
        if self._producer is not None and not self._producer.usable:
            old, self._producer = self._producer, None
            await self._blocking(old.close)
        if self._producer is None:
            producer = TransactionalProducer(self._settings, self._id, "an append")
            await self._blocking(producer.init)
            self._producer = producer
        return self._producer

    async def _blocking(self, function: Callable[[], T]) -> T:
        return await to_its_end(self._executor, function)
