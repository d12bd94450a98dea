"""The fenced writer on Kafka: a `LogWriter` on one transactional producer.

A writer never replaces its producer by itself: that would fence a writer that has taken over meanwhile. If
the producer is not usable any more, the next commit raises and the owner opens the writer again. So it is
after a commit for which no broker was available, as the client may be what is lost (see `lost_client`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from operator import itemgetter
from typing import Final, TypeVar

from noesium_stream.errors import (
    EventStoreError,
    FencedError,
    LogClosedError,
    LogUnavailableError,
    RecordTooLargeError,
)
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.log.kafka.errors import let_go
from noesium_stream.log.kafka.tenure import KafkaTenure
from noesium_stream.log.kafka.thread_call import to_its_end
from noesium_stream.log.kafka.too_large import too_large_for
from noesium_stream.log.kafka.transactional_producer import TransactionalProducer, UntoldError
from noesium_stream.log.port import Header, Outgoing, Position
from noesium_stream.log.prepare import Prepared, check_partition, commit_headers, prepare_outgoing
from noesium_stream.observability import events_emitted

T = TypeVar("T")
_PLACE_OF: Final[Callable[[Prepared], tuple[str, int]]] = itemgetter(0, 1)
Counts = Callable[[set[str]], Awaitable[dict[str, int]]]
"""Partition counts of topics; creates missing topics."""
Limits = Callable[[set[str]], Awaitable[Mapping[str, int]]]
"""The size limit of a write to each topic, in bytes."""
Forget = Callable[[set[str]], None]
"""Drops topics from the cache of those that exist."""


class KafkaWriter:
    """A `LogWriter` on Kafka; made by `KafkaLog.writer`."""

    def __init__(
        self,
        writer_id: str,
        producer: TransactionalProducer,
        epoch: int,
        codec: EnvelopeCodec,
        counts: Counts,
        executor: Executor,
        token: str,
        limits: Limits,
        forget: Forget,
        tenure: KafkaTenure | None = None,
    ) -> None:
        self.writer_id = writer_id
        self.epoch = epoch
        self.tells_positions = True
        self.producer = producer
        self._codec = codec
        self._counts = counts
        self._executor = executor
        self._token = token
        self._limits = limits
        self._forget = forget
        self.unproven = tenure
        self._commits = 0
        self._open: KafkaTransaction | None = None
        self._closed = False

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        """See `LogWriter.commit`."""
        self._check_open()
        if not self.producer.usable:
            raise self.given_up()
        prepared = await self.prepare(outgoing)
        try:
            if not self.tells_positions:
                try:
                    return await self._commit(prepared, told=False)
                except UntoldError:
                    pass  # aborted; a second attempt with delivery reports shows each record's error
            return await self._commit(prepared, told=True)
        except (LogUnavailableError, FencedError):
            # The client waits for a deleted topic as for a broker that is away. The next commit looks.
            self._forget({record.topic for record in prepared})
            raise
        except RecordTooLargeError as error:
            limits: Mapping[str, int] = {}
            with suppress(EventStoreError):  # this user may lack the right to ask
                limits = await self._limits({record.topic for record in prepared})
            found = too_large_for(prepared, limits, error)
            if found is error:
                raise
            raise found from error

    async def _commit(self, prepared: Sequence[Prepared], *, told: bool) -> list[Position]:
        transaction = self._begin()
        try:
            transaction.produce(prepared, told=told)
            return await transaction.commit()
        finally:
            await transaction.abort()

    async def begin(self) -> KafkaTransaction:
        """See `LogWriter.begin`."""
        return self._begin()

    def _begin(self) -> KafkaTransaction:
        self._check_open()
        if self._open is not None and not self._open.ended:
            raise LogClosedError(f"The writer {self.writer_id} has a transaction open.", hint="End it first.")
        self._commits += 1
        self._open = KafkaTransaction(self, f"{self._token}-{self._commits}")
        return self._open

    async def prepare(self, outgoing: Sequence[Outgoing]) -> list[Prepared]:
        """Encode and check all records; create missing topics."""
        self._check_open()
        prepared = prepare_outgoing(outgoing, self._codec)
        places = dict.fromkeys(map(_PLACE_OF, prepared))
        counts = await self._counts({topic for topic, _ in places})
        for topic, partition in places:
            check_partition(topic, partition, counts[topic])
        return prepared

    async def blocking(self, function: Callable[[], T]) -> T:
        """Run a call that waits for the broker on another thread, to its end even if cancelled."""
        return await to_its_end(self._executor, function)

    def serve(self) -> None:
        """Between transactions: run the client's callbacks."""
        if not self._closed and (self._open is None or self._open.ended):
            self.producer.serve()

    async def close(self) -> None:
        """See `LogWriter.close`."""
        if self._closed:
            return
        if self._open is not None:
            await self._open.abort()
        self._closed = True
        await self.blocking(self.producer.close)

    def given_up(self) -> EventStoreError:
        """The reason why the producer is not usable any more."""
        what = f"The writer {self.writer_id}"
        return self.producer.ended_by or let_go(what, "after a broken or missing connection")

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"The writer {self.writer_id} is closed.")


class KafkaTransaction:
    """A `Transaction` on Kafka. For the broker it begins with its first record."""

    def __init__(self, writer: KafkaWriter, commit_id: str) -> None:
        self.ended = False
        self._writer = writer
        self._commit_id = commit_id
        self._begun = False
        self._counts: dict[tuple[str, int], int] = {}

    async def write(self, outgoing: Sequence[Outgoing]) -> None:
        """See `Transaction.write`."""
        self._check_open()
        self.produce(await self._writer.prepare(outgoing))
        await self._writer.blocking(self._writer.producer.flush)

    def produce(self, prepared: Sequence[Prepared], *, told: bool = True) -> None:
        """Hand over prepared records; `told` as in `TransactionalProducer.produce`."""
        producer = self._writer.producer
        if not self._begun:
            if not producer.usable:
                raise self._writer.given_up()
            producer.begin()
            self._begun = True
        producer.produce(prepared, self._commit_headers(prepared), told=told)

    async def commit(self) -> list[Position]:
        """See `Transaction.commit`."""
        self._check_open()
        producer = self._writer.producer
        if not self._begun:
            # An empty commit asks the broker nothing; a fence that is already known is raised.
            self.ended = True
            if not producer.usable:
                raise self._writer.given_up()
            return []
        return await self._writer.blocking(self._commit)

    async def abort(self) -> None:
        """See `Transaction.abort`."""
        if self.ended:
            return
        self.ended = True
        if self._begun:
            await self._writer.blocking(self._writer.producer.abort)

    def _commit(self) -> list[Position]:
        writer = self._writer
        if writer.unproven is not None:
            writer.producer.prove(writer.unproven)
        positions = writer.producer.commit()
        writer.unproven = None
        self.ended = True  # here, because the caller may be cancelled meanwhile
        events_emitted.add(sum(self._counts.values()), {"noesium.log": "kafka"})
        return positions

    def _check_open(self) -> None:
        if self.ended:
            raise LogClosedError("The transaction has ended.")

    def _commit_headers(self, prepared: Sequence[Prepared]) -> Sequence[Header]:
        """`noesium_commit` of each record; in a transaction in parts, it counts the records so far."""
        return commit_headers(self._commit_id, list(map(_PLACE_OF, prepared)), self._counts)
