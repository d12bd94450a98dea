"""A member of a consumer group on Kafka: librdkafka on a thread, the owner's callbacks on the event loop.

The thread polls, hands a batch to the handler on the event loop, waits for it and then commits. Partitions
change hands inside `poll`, which waits for a running handler: a member that loses a partition has handled its
last record. A slow handler keeps its partitions: from `_POLL_AFTER_S` on they are paused while polling
continues. With many records available, the next batch is read while the current one is handled, and kept
until then. Records of partitions that were sought, lost or revoked meanwhile are removed from it. A handler
of small events takes a tenth less time this way.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from noesium_stream.errors import LogClosedError, LogUnavailableError
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.kafka.admin import KafkaAdmin
from noesium_stream.log.kafka.bounded_reader import BAD_BATCH, OUT_OF_RANGE, POLL_S, out_of_range
from noesium_stream.log.kafka.errors import ClientLog, translated
from noesium_stream.log.kafka.group.batch_reader import BatchReader
from noesium_stream.log.kafka.group.group_offsets import GroupOffsets
from noesium_stream.log.kafka.group.loop_calls import LoopCalls
from noesium_stream.log.kafka.group.member_config import member_config
from noesium_stream.log.kafka.group.positions import Positions
from noesium_stream.log.kafka.group.thread_requests import Requests
from noesium_stream.log.kafka.lost_client import LOOK_AFTER_S, is_lost
from noesium_stream.log.kafka.messages import Batch, Message
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.kafka.tenure import KafkaTenure
from noesium_stream.log.kafka.unpacking import say_passed_over
from noesium_stream.log.members import tenure_ended
from noesium_stream.log.port import Handler, OnAssigned, OnRevoked, TopicPartition
from noesium_stream.log.record import Decoder, Record

GOODBYE_S: Final = 2.0
"""Timeout for telling the brokers that a member leaves, after it has released everything. If they are
unavailable, others get its partitions when the session ends; its offset is only advice."""

_POLL_AFTER_S: Final = 10.0
_WAIT_S: Final = 0.1
_AHEAD_S: Final = 0.001
"""Wait for messages while a handler runs. It is not zero: to the client, a thread that waits for messages is
alive, however long a rebalance that waits for the handler takes."""


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
        self._settings = settings
        self._topics = list(topics)
        self._handler = handler
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._loop = asyncio.get_running_loop()
        self._closing = threading.Event()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._granted: set[TopicPartition] = set()
        self._unheard = False
        self._requests = Requests()
        self._calls = LoopCalls(self._loop, self._requests)
        self._positions = Positions()
        self._reader = BatchReader(keep, decoder, self._positions.offsets, self._check)
        self._busy: Future[Any] | None = None
        self._behind: dict[TopicPartition, int] = {}
        self._wanted: list[str] | None = None
        self._failure: BaseException | None = None
        self._unreadable: dict[TopicPartition, int] = {}
        self._config = member_config(settings, group, member)
        self._log = ClientLog()
        self._consumer = self._new_consumer()
        self._offsets = GroupOffsets(lambda: self._consumer, settings.bootstrap, self._closing)
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
        return self._positions.position(tp)

    def behind(self, tp: TopicPartition) -> int:
        """See `Subscription.behind`: up to the high watermark that the client knows."""
        return self._behind.get(tp, 0)

    def seek(self, starts: Mapping[TopicPartition, int]) -> None:
        """See `Subscription.seek`: until the thread has done it, such records are dropped."""
        self._positions.seek(starts)

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
        """The tenure of a partition; runs on the thread."""
        # 1. The membership. 2. Whether it has the partition: a member that lost it is told so before it can
        # be a member again.
        metadata = self._consumer.consumer_group_metadata()
        if tp not in self._granted:
            raise tenure_ended(tp, f"The member {self.member}")
        return KafkaTenure(tp, metadata, partial(self._offset_asked, tp))

    def _group_offset(self, tp: TopicPartition) -> int:
        """The group's next offset in this partition; runs on the thread."""
        known = self.position(tp)
        if known is not None:
            return known
        if tp not in self._granted:
            raise tenure_ended(tp, f"The member {self.member}")
        return self._offsets.offset(tp)

    def _offset_asked(self, tp: TopicPartition) -> int:
        """`_group_offset` for another thread; blocks."""
        try:
            return self._requests.ask(partial(self._group_offset, tp)).result()
        except LogClosedError as error:
            raise tenure_ended(tp, f"The member {self.member}") from error

    async def close(self) -> None:
        """See `Subscription.close`. `wait` raises the handler's error, not this method."""
        self._closing.set()
        # Called within a callback, it cannot wait: the thread waits for the end of that callback.
        if self._calls.inside():
            return
        while not self._done.done() and not self._unheard:
            held = self._holds
            await asyncio.wait((self._done,), timeout=_WAIT_S if held else GOODBYE_S)
            self._unheard = not (held or self._holds)  # it may have been assigned partitions meanwhile

    @property
    def _holds(self) -> bool:
        """Whether partitions are assigned to it, or are about to be, or are being revoked."""
        return bool(self._assigned) or self._calls.calling

    def _new_consumer(self) -> Consumer:
        return Consumer({**self._config, "error_cb": self._log.on_error}, logger=self._log)

    def _run(self) -> None:
        """The thread: from the first poll to leaving the group."""
        try:
            self._subscribe()
            ahead: Batch | None = None
            heard = time.monotonic()
            while not self._closing.is_set() and self._failure is None:
                self._obey()
                self._requests.serve()
                batch = ahead or self._reader.read(self._consumer, POLL_S, 0)
                if batch.read:
                    heard = time.monotonic()
                elif time.monotonic() - heard > LOOK_AFTER_S:
                    self._replace_if_lost()
                    heard = time.monotonic()
                ahead = self._take(batch)
                if self._log.refusal is not None:
                    # A starting broker may refuse what it accepts a moment later: ask once more.
                    self._log.refusal = None
                    self._calls.call(self._admin.still_let_in())
        except BaseException as error:
            self._failure = self._failure or error
        try:
            # The client finishes commits, calls callbacks and notifies the group, in this order.
            self._consumer.close()
        except BaseException as error:
            self._failure = self._failure or error
        self._requests.close()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish)

    def _replace_if_lost(self) -> None:
        """Join the group again with a new client, if this one has lost its cluster: see `lost_client`."""
        if not self._topics or not is_lost(self._consumer, self._settings, self._topics[0]):
            return
        if self._closing.is_set():
            return
        self._drop(frozenset(self._positions.offsets))
        self._consumer.close()
        self._consumer = self._new_consumer()
        self._subscribe()

    def _subscribe(self) -> None:
        if self._topics:
            self._consumer.subscribe(
                self._topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
            )
        else:
            self._consumer.unsubscribe()

    def _obey(self) -> None:
        """Carry out requests from the event loop: other offsets, other topics."""
        seeks = self._positions.take_seeks()
        for tp, offset in seeks.items():
            self._consumer.incremental_unassign([KafkaPartition(*tp)])
            self._consumer.incremental_assign([KafkaPartition(*tp, offset)])
        if seeks:
            self._reader.forget(seeks)
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
            self._done.exception()  # retrieved, so that asyncio does not warn if nobody waits

    def _take(self, batch: Batch) -> Batch | None:
        """Pass a batch to the handler, then commit it; return the batch that was read meanwhile, if any."""
        ahead: Batch | None = None
        after = self._positions.after = {TopicPartition(*at): offset for at, offset in batch.read.items()}
        if batch.records:
            self._behind = {tp: self._distance(tp, offset) for tp, offset in after.items()}
            self._busy = self._calls.start(self._handle(batch.records))
            try:
                if batch.full:
                    ahead = self._reader.read(self._consumer, _AHEAD_S, _AHEAD_S)
            finally:
                self._wait_for_handler()
        else:
            self._positions.advance()
        if after and self._failure is None:  # else a rebalance may have got the handler's error
            self._offsets.commit(after, wait=False)
        return ahead

    def _distance(self, tp: TopicPartition, offset: int) -> int:
        _, end = self._consumer.get_watermark_offsets(KafkaPartition(*tp), cached=True)
        return max(0, end - offset)

    def _wait_for_handler(self) -> None:
        """Wait for the handler; if it takes long, pause everything and poll meanwhile. Raises its error."""
        busy, paused = self._busy, False
        if busy is not None and not self._calls.wait(busy, _POLL_AFTER_S):
            while self._busy is not None and not busy.done():  # a rebalance waits for it, too
                assigned = self._consumer.assignment()
                if assigned:
                    self._consumer.pause(assigned)
                    paused = True
                message = self._consumer.poll(_WAIT_S)
                self._requests.serve()  # the handler may be waiting for just that
                if message is not None:
                    self._reader.hold(message)
            assigned = self._consumer.assignment() if paused else []
            if assigned:
                self._consumer.resume(assigned)
        self._settle()

    async def _handle(self, records: Sequence[Record]) -> None:
        records = self._positions.without_sought(records)
        if records:
            await self._handler(records)

    def _settle(self) -> None:
        """Wait for a running handler and count its batch as handled; raises its error."""
        busy, self._busy = self._busy, None
        if busy is None:
            return
        self._calls.wait(busy, None)
        busy.result()
        self._positions.advance()

    def _check(self, error: KafkaError, message: Message) -> None:
        """Raise errors that waiting cannot resolve."""
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            return None  # this process stood still for minutes: it has left, and rejoins with this poll
        partition = message.partition()
        if error.code() in OUT_OF_RANGE and partition is not None and partition >= 0:
            return self._out_of_range(TopicPartition(message.topic(), partition))
        if error.code() == BAD_BATCH and partition is not None and partition >= 0:
            return self._pass_over(TopicPartition(message.topic(), partition), message.offset())
        found = translated(error, self._bootstrap, f"reading {', '.join(self._topics)}")
        if not found.retriable:
            raise found
        return None

    def _pass_over(self, tp: TopicPartition, offset: int | None) -> None:
        """Continue behind a batch that cannot be unpacked, offset by offset: its last one is not known."""
        offsets = self._positions.offsets
        batch = self._reader.batch
        if tp not in offsets or offset is None or offset < 0 or tp in batch.passed:
            return  # what is told once more, before the client has moved, comes again if it is true
        self._settle()  # the batch before this one
        offset = max(offset, batch.read.get(tp, offsets[tp]))
        if self._unreadable.get(tp) != offset:
            self._unreadable[tp] = offset  # the client reads it once more, in case it was damaged on its way
            return
        say_passed_over(*tp, offset)
        batch.read[tp] = offset + 1
        batch.passed.add(tp)
        self._consumer.incremental_unassign([KafkaPartition(*tp)])
        self._consumer.incremental_assign([KafkaPartition(*tp, offset + 1)])

    def _out_of_range(self, tp: TopicPartition) -> None:
        """Continue reading where that is possible; the client does not do so by itself.

        Raises:
            LogTruncatedError, LogCorruptError: the next record is missing.
        """
        offsets = self._positions.offsets
        if tp not in offsets:
            return
        self._settle()  # reading continues after the handler's batch
        start = self._reader.batch.read.get(tp, offsets[tp])
        if start == OFFSET_STORED:  # the client has asked, and the group has no offset
            start = offsets[tp] = OFFSET_BEGINNING
        try:
            found = self._calls.call(out_of_range(self._admin, tp.topic, tp.partition, start))
        except LogUnavailableError as away:
            found = away
        if not found.retriable:
            raise found
        self._consumer.incremental_unassign([KafkaPartition(*tp)])
        self._consumer.incremental_assign([KafkaPartition(*tp, start)])

    def _assign(self, consumer: Consumer, parts: list[KafkaPartition]) -> None:
        """Handle new partitions: start where the owner says, else at the group's offset, else at the start.

        The owner comes first: the group's offset cannot be read while a transaction with it is open, and
        opening the writer ends that transaction.
        """
        try:
            tps = frozenset(TopicPartition(part.topic, part.partition) for part in parts)
            self._granted |= tps
            starts: dict[TopicPartition, int] = {}
            if self._on_assigned is not None and tps:
                starts.update(self._calls.call(self._on_assigned(tps)) or {})
            starts.update(self._offsets.starts([KafkaPartition(*tp) for tp in sorted(tps - starts.keys())]))
            self._positions.offsets.update({tp: starts[tp] for tp in tps})
            self._assigned = frozenset(self._positions.offsets)
            consumer.incremental_assign([KafkaPartition(tp.topic, tp.partition, starts[tp]) for tp in tps])
            if tps:
                # A partition that was revoked while paused during a slow handler comes back paused.
                consumer.resume([KafkaPartition(*tp) for tp in tps])
        except BaseException as error:
            # An error cannot be raised through a callback of librdkafka.
            self._failure = self._failure or error

    def _revoke(self, consumer: Consumer, parts: list[KafkaPartition]) -> None:
        """Handle revoked partitions: commit their offsets first, then tell the owner."""
        offsets = self._positions.offsets
        tps = frozenset(TopicPartition(part.topic, part.partition) for part in parts) & offsets.keys()
        try:
            self._settle()
            handled = {tp: offsets[tp] for tp in tps if offsets[tp] >= 0}
            if handled:
                # If the client is being closed, `close` waits for the commit, with a time limit.
                self._offsets.commit(handled, wait=not self._closing.is_set())
            self._drop(tps)
        except BaseException as error:
            self._failure = self._failure or error
        if parts:
            consumer.incremental_unassign(parts)

    def _lose(self, consumer: Consumer, parts: list[KafkaPartition]) -> None:
        """Handle lost partitions, which others hold already: commit nothing for them."""
        try:
            self._drop(frozenset(TopicPartition(part.topic, part.partition) for part in parts))
        except BaseException as error:
            self._failure = self._failure or error
        if parts:
            consumer.incremental_unassign(parts)

    def _drop(self, tps: frozenset[TopicPartition]) -> None:
        gone = tps & self._positions.offsets.keys()
        # A partition that comes back starts where its owner says, not after what was read before.
        self._reader.forget(gone)
        self._granted -= tps
        self._positions.drop(gone)
        if gone and self._on_revoked is not None:
            self._calls.calling = True  # set before the assignment looks empty
            self._assigned = frozenset(self._positions.offsets)
            self._calls.call(self._on_revoked(gone))
        self._assigned = frozenset(self._positions.offsets)
