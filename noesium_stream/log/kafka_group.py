"""A member of a consumer group on Kafka: librdkafka on a thread, the owner's callbacks on the event loop.

The thread polls, hands a batch to the handler on the event loop, waits for it and then commits. Partitions
change hands inside `poll`, where a handler that is at work is waited for: whoever loses one has handled its
last record. A handler that takes long keeps its partitions: from `_POLL_AFTER_S` on they are paused and
polling goes on beside it. Where many records are there the next batch is read while one is handled, and kept
until then; what is sought, lost or given up meanwhile is left out of it. A handler of small events takes a
tenth less time so.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from noesium_stream.errors import EventStoreError, LogClosedError, LogUnavailableError
from noesium_stream.log.group import tenure_ended
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.kafka_admin import KafkaAdmin
from noesium_stream.log.kafka_errors import PATIENCE_S, ClientLog, translated
from noesium_stream.log.kafka_message import Batch, Message, sieve
from noesium_stream.log.kafka_reader import OUT_OF_RANGE, POLL_S, consumer_config, out_of_range, poll_batch
from noesium_stream.log.kafka_requests import Requests
from noesium_stream.log.kafka_settings import KafkaSettings
from noesium_stream.log.kafka_tenure import KafkaTenure
from noesium_stream.log.port import Handler, OnAssigned, OnRevoked, TopicPartition
from noesium_stream.log.record import Decoder, Record

SESSION_MS: Final = 6_000
"""A member that is not heard of for so long has no partitions any more."""

HEARTBEAT_MS: Final = 1_000

GOODBYE_S: Final = 2.0
"""How long a member that has let go of all it had waits for brokers to hear of it. Those that are away leave
its partitions to others when the session ends; its offset is only advice."""

ASKING_S: Final = 5.0
"""For so long it is asked where the group is, while a partition is being assigned."""

_POLL_AFTER_S: Final = 10.0
_WAIT_S: Final = 0.1
_AHEAD_S: Final = 0.001
"""What is read beside a handler is waited for as long. It is not nothing: for the client, who waits for
messages is alive, however long a rebalance takes in which the handler is waited for."""
_MOST: Final = 1_000
"""Messages that are taken at once: to change over to the handler takes as long as to fold 50 events."""
_MOST_SIFTED: Final = 5_000
_SIFTED_AT_ONCE: Final = 200
"""What is not wanted dies young: messages in the memory of those before them take two thirds of the time."""
# Half a million keys folded from eight partitions take +35 MB, +42 with twice as much fetched from each at
# once; the defaults took +170 MB at the same speed.
_PREFETCH: Final = {
    "queued.max.messages.kbytes": 4_096,
    "queued.min.messages": 5_000,
    "fetch.message.max.bytes": 131_072,
    "fetch.max.bytes": 2_097_152,
    "fetch.queue.backoff.ms": 2,
}


class KafkaSubscription:
    """A `Subscription` on Kafka."""

    def __init__(
        self,
        settings: KafkaSettings,
        admin: KafkaAdmin,
        group: str,
        member: str,
        topics: Sequence[str],
        decoder: Decoder,
        handler: Handler,
        on_assigned: OnAssigned | None,
        on_revoked: OnRevoked | None,
        keep: TypeFilter | None,
    ) -> None:
        self.member: Final = member
        self._bootstrap = settings.bootstrap
        self._admin = admin
        self._topics = list(topics)
        self._decoder = decoder
        self._handler = handler
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._sieve = sieve(keep, decoder)
        self._most, self._at_once = (_MOST, _MOST) if keep is None else (_MOST_SIFTED, _SIFTED_AT_ONCE)
        self._loop = asyncio.get_running_loop()
        self._closing = threading.Event()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._inside: set[asyncio.Task[Any]] = set()
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._granted: set[TopicPartition] = set()
        self._calling = False
        self._unheard = False
        self._requests = Requests()
        self._positions: dict[TopicPartition, int] = {}
        self._busy: Future[Any] | None = None
        self._after: dict[TopicPartition, int] = {}
        """The offsets behind the batch that is handled now, of partitions that have not gone since."""
        self._behind: dict[TopicPartition, int] = {}
        self._held: list[Message] = []
        self._batch = Batch((), self._check)
        """What is read now, and not handed over yet."""
        self._seeks: dict[TopicPartition, int] = {}
        self._seeking = threading.Lock()
        self._wanted: list[str] | None = None
        self._failure: BaseException | None = None
        config = {
            **consumer_config(settings, group),
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "client.id": member,
            **_PREFETCH,
        }
        self._log = ClientLog()
        self._consumer = Consumer({**config, "error_cb": self._log.on_error}, logger=self._log)
        self._thread = threading.Thread(target=self._run, name=f"noesium group {group}", daemon=True)
        self._thread.start()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """See `Subscription.assignment`."""
        return self._assigned

    async def wait(self) -> None:
        """See `Subscription.wait`."""
        await asyncio.shield(self._done)

    def position(self, tp: TopicPartition) -> int | None:
        """See `Subscription.position`."""
        with self._seeking:
            found = self._seeks.get(tp, self._positions.get(tp, OFFSET_BEGINNING))
        return found if found >= 0 else None

    def behind(self, tp: TopicPartition) -> int:
        """See `Subscription.behind`: up to the high watermark that the client has heard of."""
        return self._behind.get(tp, 0)

    def seek(self, starts: Mapping[TopicPartition, int]) -> None:
        """See `Subscription.seek`: until the thread has done it, such records are left out."""
        with self._seeking:
            self._seeks.update({tp: offset for tp, offset in starts.items() if tp in self._positions})

    def change_topics(self, topics: Sequence[str]) -> None:
        """See `Subscription.change_topics`."""
        self._wanted = list(dict.fromkeys(topics))

    async def tenure(self, tp: TopicPartition) -> KafkaTenure:
        """See `Subscription.tenure`."""
        try:
            return await asyncio.wrap_future(self._requests.ask(partial(self._tenure, tp)))
        except LogClosedError as error:
            raise tenure_ended(tp, f"The member {self.member}") from error

    def _tenure(self, tp: TopicPartition) -> KafkaTenure:
        """On the thread."""
        # 1. The membership. 2. Whether it has the partition: who has lost it is told so before it can be a
        # member again.
        metadata = self._consumer.consumer_group_metadata()
        if tp not in self._granted:
            raise tenure_ended(tp, f"The member {self.member}")
        return KafkaTenure(tp, metadata, partial(self._offset_asked, tp))

    def _group_offset(self, tp: TopicPartition) -> int:
        """Where the group goes on in this partition; on the thread."""
        known = self.position(tp)
        if known is not None:
            return known
        try:
            [part] = self._committed([KafkaPartition(*tp)])
            if part.offset >= 0:
                return int(part.offset)
            return int(self._consumer.get_watermark_offsets(KafkaPartition(*tp), timeout=PATIENCE_S)[0])
        except KafkaException as error:
            raise translated(error, self._bootstrap, f"asking where the group is in {tp.topic}") from error

    def _starts(self, parts: Sequence[KafkaPartition]) -> dict[TopicPartition, int]:
        """Where the group begins to read; on the thread. Brokers that are away are not waited for."""
        try:
            found = self._committed(parts, ASKING_S) if parts else []
        except LogUnavailableError:
            # The client asks for them itself, for as long as it takes.
            return {TopicPartition(part.topic, part.partition): OFFSET_STORED for part in parts}
        return {
            TopicPartition(part.topic, part.partition): part.offset if part.offset >= 0 else OFFSET_BEGINNING
            for part in found
        }

    def _committed(
        self, parts: Sequence[KafkaPartition], patience_s: float = PATIENCE_S
    ) -> list[KafkaPartition]:
        """The group's offsets; on the thread. A broker that comes up may not know yet that it keeps them.

        Raises:
            LogUnavailableError: nobody has told them within that time.
        """
        deadline = time.monotonic() + patience_s
        while True:
            try:
                found: list[KafkaPartition] = self._consumer.committed(list(parts), timeout=patience_s)
                failed = next((part.error for part in found if part.error is not None), None)
                if failed is None:
                    return found
                raise KafkaException(failed)
            except KafkaException as error:
                what = f"asking where the group is in {parts[0].topic}"
                told = translated(error, self._bootstrap, what)
                if not told.retriable or self._closing.is_set() or time.monotonic() > deadline:
                    raise told from error
            self._closing.wait(_WAIT_S)

    def _offset_asked(self, tp: TopicPartition) -> int:
        """`_group_offset` for another thread; blocks."""
        try:
            return self._requests.ask(partial(self._group_offset, tp)).result()
        except LogClosedError as error:
            raise tenure_ended(tp, f"The member {self.member}") from error

    async def close(self) -> None:
        """See `Subscription.close`. What the handler raised is `wait`'s to tell."""
        self._closing.set()
        # From within a callback it is the end of that callback that the thread is waiting for.
        if asyncio.current_task() in self._inside:
            return
        while not self._done.done() and not self._unheard:
            held = self._holds
            await asyncio.wait((self._done,), timeout=_WAIT_S if held else GOODBYE_S)
            self._unheard = not (held or self._holds)  # it may have been given something meanwhile

    @property
    def _holds(self) -> bool:
        """Whether it has partitions, or is about to have, or is giving them up."""
        return bool(self._assigned) or self._calling

    def _run(self) -> None:
        """The thread: from the first poll to the last goodbye."""
        try:
            self._subscribe()
            ahead: Batch | None = None
            while not self._closing.is_set() and self._failure is None:
                self._obey()
                self._requests.serve()
                ahead = self._take(ahead or self._read(POLL_S, 0))
                if self._log.refusal is not None:
                    # A broker that comes up may refuse what it accepts a moment later: ask once more.
                    self._log.refusal = None
                    self._call(self._admin.still_let_in())
        except BaseException as error:
            self._failure = self._failure or error
        try:
            # Commits are done, callbacks are called, the others are told: in this order, by the client.
            self._consumer.close()
        except BaseException as error:
            self._failure = self._failure or error
        self._requests.close()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish)

    def _subscribe(self) -> None:
        if self._topics:
            self._consumer.subscribe(
                self._topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
            )
        else:
            self._consumer.unsubscribe()

    def _obey(self) -> None:
        """Do what was asked for from the event loop meanwhile: other offsets, other topics."""
        with self._seeking:
            seeks, self._seeks = self._seeks, {}
            self._positions.update(seeks)
        for tp, offset in seeks.items():
            self._held = [m for m in self._held if (m.topic(), m.partition()) != tp]
            self._consumer.incremental_unassign([KafkaPartition(*tp)])
            self._consumer.incremental_assign([KafkaPartition(*tp, offset)])
        if seeks:
            self._batch.forget(seeks)
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._topics = wanted
            self._subscribe()

    def _finish(self) -> None:
        if self._done.done():
            return
        if self._failure is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(self._failure)
            self._done.exception()  # asked for here: nobody has to wait, and asyncio shall not complain

    def _read(self, first_s: float, more_s: float) -> Batch:
        """What is wanted of the messages that came, some at a time until none is left or many are read.

        Args:
            first_s: how long a message is waited for.
            more_s: the same for each of the messages after it.
        """
        batch = self._batch = Batch(self._positions, self._check)
        held, self._held = self._held, []
        left = self._most
        messages = held or poll_batch(self._consumer, first_s, more_s, most=self._at_once)
        while messages:
            batch.take(messages, self._sieve, self._decoder)
            count = len(messages)
            left -= count
            batch.full = left <= 0 or len(batch.records) >= _MOST
            if held or count < self._at_once or batch.full:
                break
            messages.clear()  # before others are made, in their memory
            messages = self._consumer.consume(self._at_once, more_s)
        return batch

    def _take(self, batch: Batch) -> Batch | None:
        """Hand a batch to the handler, then commit it; returns the one that was read meanwhile, if any."""
        ahead: Batch | None = None
        self._after = {TopicPartition(*at): offset for at, offset in batch.read.items()}
        if batch.records:
            self._behind = {tp: self._distance(tp, offset) for tp, offset in self._after.items()}
            self._busy = self._submit(self._handle(batch.records))
            try:
                if batch.full:
                    ahead = self._read(_AHEAD_S, _AHEAD_S)
            finally:
                self._wait_for_handler()
        else:
            self._positions.update(self._after)
        if self._after and self._failure is None:  # else it may be the handler's, told to a rebalance
            self._commit(self._after, wait=False)
        return ahead

    def _distance(self, tp: TopicPartition, offset: int) -> int:
        _, end = self._consumer.get_watermark_offsets(KafkaPartition(*tp), cached=True)
        return max(0, end - offset)

    def _wait_for_handler(self) -> None:
        """Where it takes long, poll beside it with everything paused; raises what it raised."""
        busy, paused = self._busy, False
        if busy is not None and not self._wait(busy, _POLL_AFTER_S):
            while self._busy is not None and not busy.done():  # a rebalance waits for it, too
                assigned = self._consumer.assignment()
                if assigned:
                    self._consumer.pause(assigned)
                    paused = True
                message = self._consumer.poll(_WAIT_S)
                self._requests.serve()  # the handler may be waiting for just that
                if message is not None:
                    self._held.append(message)
            assigned = self._consumer.assignment() if paused else []
            if assigned:
                self._consumer.resume(assigned)
        self._settle()

    async def _handle(self, records: Sequence[Record]) -> None:
        if self._seeks:
            records = [r for r in records if TopicPartition(r.topic, r.partition) not in self._seeks]
        if records:
            await self._handler(records)

    def _settle(self) -> None:
        """Wait for the handler, if it runs, and count its batch as handled; raises what it raised."""
        busy, self._busy = self._busy, None
        if busy is None:
            return
        self._wait(busy, None)
        busy.result()
        self._positions.update(self._after)

    def _check(self, error: KafkaError, message: Message) -> None:
        """Raise what cannot be waited for."""
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            return None  # this process stood still for minutes: it has left, and joins again with this poll
        partition = message.partition()
        if error.code() in OUT_OF_RANGE and partition is not None and partition >= 0:
            return self._out_of_range(TopicPartition(message.topic(), partition))
        found = translated(error, self._bootstrap, f"reading {', '.join(self._topics)}")
        if not found.retriable:
            raise found
        return None

    def _out_of_range(self, tp: TopicPartition) -> None:
        """Read on where that is possible: the client does not do so by itself.

        Raises:
            LogTruncatedError, LogCorruptError: what is next is not there.
        """
        if tp not in self._positions:
            return
        self._settle()  # what is read beside a handler begins behind what it has
        start = self._batch.read.get(tp, self._positions[tp])
        if start == OFFSET_STORED:  # the client has asked, and the group has none
            start = self._positions[tp] = OFFSET_BEGINNING
        try:
            found = self._call(out_of_range(self._admin, tp.topic, tp.partition, start))
        except LogUnavailableError as away:
            found = away
        if not found.retriable:
            raise found
        self._consumer.incremental_unassign([KafkaPartition(*tp)])
        self._consumer.incremental_assign([KafkaPartition(*tp, start)])

    def _commit(self, offsets: Mapping[TopicPartition, int], *, wait: bool) -> None:
        """Tell the group; a commit that comes too late is no harm (at least once)."""
        parts = [KafkaPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        try:
            if wait:
                self._consumer.commit(offsets=parts, asynchronous=False)
            else:
                self._consumer.commit(offsets=parts, asynchronous=True)
        except KafkaException as error:
            if error.args[0].code() in (
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.GROUP_AUTHORIZATION_FAILED,
            ):
                raise translated(error, self._bootstrap, "committing the group's offsets") from error

    def _assign(self, consumer: Consumer, parts: list[KafkaPartition]) -> None:
        """New partitions: ask the owner where to start, else the group, else at the beginning.

        The owner comes first: the group's offset cannot be told while a transaction with it is open, and he
        who opens the writer ends that.
        """
        try:
            tps = frozenset(TopicPartition(part.topic, part.partition) for part in parts)
            self._granted |= tps
            starts: dict[TopicPartition, int] = {}
            if self._on_assigned is not None and tps:
                starts.update(self._call(self._on_assigned(tps)) or {})
            starts.update(self._starts([KafkaPartition(*tp) for tp in sorted(tps - starts.keys())]))
            self._positions.update({tp: starts[tp] for tp in tps})
            self._assigned = frozenset(self._positions)
            consumer.incremental_assign([KafkaPartition(tp.topic, tp.partition, starts[tp]) for tp in tps])
            if tps:
                # One that went while it was paused beside a slow handler comes back paused.
                consumer.resume([KafkaPartition(*tp) for tp in tps])
        except BaseException as error:
            # A callback of librdkafka has nobody to raise to.
            self._failure = self._failure or error

    def _revoke(self, consumer: Consumer, parts: list[KafkaPartition]) -> None:
        """Partitions that go: their offsets are committed first, then the owner is told."""
        tps = frozenset(TopicPartition(part.topic, part.partition) for part in parts) & self._positions.keys()
        try:
            self._settle()
            handled = {tp: self._positions[tp] for tp in tps if self._positions[tp] >= 0}
            if handled:
                # Of a client that is being closed `close` waits for it, and that not without an end.
                self._commit(handled, wait=not self._closing.is_set())
            self._drop(tps)
        except BaseException as error:
            self._failure = self._failure or error
        if parts:
            consumer.incremental_unassign(parts)

    def _lose(self, consumer: Consumer, parts: list[KafkaPartition]) -> None:
        """Partitions that others have already: nothing of them may be committed."""
        try:
            self._drop(frozenset(TopicPartition(part.topic, part.partition) for part in parts))
        except BaseException as error:
            self._failure = self._failure or error
        if parts:
            consumer.incremental_unassign(parts)

    def _drop(self, tps: frozenset[TopicPartition]) -> None:
        gone = tps & self._positions.keys()
        # One that comes back begins where its owner says, not behind what was read before.
        self._held = [m for m in self._held if (m.topic(), m.partition()) not in gone]
        self._batch.forget(gone)
        self._granted -= tps
        with self._seeking:
            for tp in gone:
                del self._positions[tp]
                self._seeks.pop(tp, None)
                self._after.pop(tp, None)
        if gone and self._on_revoked is not None:
            self._calling = True  # before it looks as if nothing were held
            self._assigned = frozenset(self._positions)
            self._call(self._on_revoked(gone))
        self._assigned = frozenset(self._positions)

    def _call(self, callback: Awaitable[Any]) -> Any:
        """Run a callback of the owner on the event loop and wait; raises what it raises."""
        self._calling = True
        try:
            future = self._submit(callback)
            self._wait(future, None)
            return future.result()
        finally:
            self._calling = False

    def _submit(self, callback: Awaitable[Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(self._entered(callback), self._loop)

    def _wait(self, future: Future[Any], timeout_s: float | None) -> bool:
        """Whether it is done within the time (None: as long as it takes, or the event loop lives)."""
        begun, waited = time.monotonic(), 0.0
        while not future.done():
            if timeout_s is not None and waited >= timeout_s:
                return False
            if self._loop.is_closed():
                raise EventStoreError("the event loop of a subscription was closed.")
            self._requests.wait(future, _WAIT_S)
            waited = time.monotonic() - begun
        return True

    async def _entered(self, callback: Awaitable[Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._inside.add(task)
        try:
            return await callback
        finally:
            self._inside.discard(task)
