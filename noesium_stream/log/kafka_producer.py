"""One transactional producer of librdkafka: initialised, filled, committed; discarded when in doubt.

Decision record: producing is done on the caller's thread (it only copies into librdkafka's queue), and only
what waits for the broker is put on another one; so is beginning the next transaction, which the broker hears
nothing of, but for which the client's own thread is waited for. A commit whose acknowledgement did not come
plainly ends the producer: a copy of its EndTxn request may still be under way and, under the old transaction
protocol that librdkafka speaks (EndTxn version 1; the broker raises the epoch by itself from version 5 on),
would commit the first half of the *next* transaction of the same producer. So does one of an abort end the
first half of the next. A producer made anew has another epoch, which such a copy does not fit.

The client itself repeats an EndTxn whose connection broke, and says that all is well; only its log tells of
the break. Each break is told in its debug log of brokers alone: elsewhere not one of an idle connection, nor
one to a coordinator that is another now, nor within 30 s of one in the same words.

That is why no commit is ever seen in part. Who else holds the id has another epoch. A late EndTxn of this
producer meets one too, unless its transaction was ended plainly, and then there is no copy of it. A late
record is known by its number, and after an abort that left records under way by its epoch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from noesium_stream.errors import CommitUnknownError, EventStoreError, FencedError, LogClosedError
from noesium_stream.log.headers import headers_of_text
from noesium_stream.log.kafka_errors import (
    FENCED,
    FOR_GOOD,
    NO_MEMBER,
    PATIENCE_S,
    ClientLog,
    fenced,
    let_go,
    refused,
    translated,
    unavailable,
)
from noesium_stream.log.kafka_settings import KafkaSettings
from noesium_stream.log.kafka_tenure import KafkaTenure
from noesium_stream.log.port import Header, Position
from noesium_stream.log.prepare import Prepared

T = TypeVar("T")

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""After this the broker aborts what an owner left open: as long are readers of its partitions held back."""

_COMMIT_S: Final = TRANSACTION_TIMEOUT_MS / 1000 + 5
_INIT_TURN_S: Final = 1.0
_QUEUE_MESSAGES: Final = 1_000_000


class UntoldError(EventStoreError):
    """A record was not taken, nothing is committed, and nobody had asked to be told which and why."""


def called(function: Callable[..., T], *arguments: Any) -> T:
    """Call the client; what it raises is an exception.

    confluent-kafka also raises fatal errors as bare `KafkaError`s. Those are no exceptions: `except
    BaseException` does not catch them, an executor's thread dies of one, and who awaits it waits for ever.
    """
    try:
        return function(*arguments)
    except BaseException:
        raise
    except:  # noqa: E722
        error = sys.exc_info()[1]
        raise KafkaException(error) from None


class TransactionalProducer:
    """A producer of one transactional id; not to be used from two threads at once.

    `what` names it in errors. `usable` is False once it may not begin another transaction.
    """

    def __init__(self, settings: KafkaSettings, transactional_id: str, what: str) -> None:
        self.what = what
        self.usable = True
        self._given_up = False
        self._begun_ahead = False
        self._begun_s = time.monotonic()
        self._bootstrap = settings.bootstrap
        self._log = ClientLog()
        self._fatal: EventStoreError | None = None
        self._failed: KafkaError | None = None
        self._offsets: dict[tuple[str, int], list[int]] = {}
        self._records: list[Prepared] = []
        self._told = True
        config: dict[str, Any] = {
            **settings.confluent(),
            "error_cb": self._log.on_error,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": "lz4",
            # A flush before each commit ends the lingering at once: it only gathers what is being produced.
            "linger.ms": 5,
            "retry.backoff.ms": 5,
            "queue.buffering.max.messages": _QUEUE_MESSAGES,
            "message.max.bytes": 1_048_588,
            "debug": "broker",  # the one place where each broken connection is told
        }
        self._client: Producer | None = Producer(config, logger=self._log)

    @property
    def ended_by(self) -> EventStoreError | None:
        """What made this producer useless, if it is known."""
        return self._fatal

    @property
    def _producer(self) -> Producer:
        if self._client is None:
            raise LogClosedError(f"{self.what} is closed.")
        return self._client

    def init(self) -> None:
        """Fence the holder of this id, abort what it left open, wait until that is settled. Blocks.

        `give_up` ends it within `_INIT_TURN_S`.

        Raises:
            LogUnavailableError: no broker answers, or it does not let us in.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                # In short turns: what the client notices meanwhile is told between them.
                called(self._producer.init_transactions, _INIT_TURN_S)
                break
            except KafkaException as error:
                self.serve()
                if self._log.refusal is not None:
                    raise refused(self._bootstrap, self._log.refusal.str()) from error
                code = error.args[0].code()
                # The broker is still ending what the previous holder left open: that passes.
                passing = error.args[0].retriable() or code == KafkaError.CONCURRENT_TRANSACTIONS
                if not passing or self._given_up or time.monotonic() > deadline:
                    raise translated(error, self._bootstrap, f"opening {self.what}") from error
        self.serve()
        self._begin_ahead()

    def give_up(self) -> None:
        """Nobody waits for `init` any more; from any thread."""
        self._given_up = True

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            FencedError, EventStoreError: this producer has ended.
        """
        if self._fatal is None:
            self.serve()
        if self._fatal is not None:
            raise self._fatal
        self._begun_s = time.monotonic()
        self._failed = None
        self._offsets = {}
        self._records = []
        self._told = True
        begun, self._begun_ahead = self._begun_ahead, False
        if begun:
            return
        try:
            called(self._producer.begin_transaction)
        except KafkaException as error:
            raise self._translated(error) from error

    def _begin_ahead(self) -> None:
        """Begin the next transaction now, on this thread; the broker hears of it with its first record.

        What speaks against it is left for `begin` to tell.
        """
        if self.usable and self._fatal is None:
            with suppress(KafkaException):
                called(self._producer.begin_transaction)
                self._begun_ahead = True

    def produce(
        self, records: Sequence[Prepared], headers: Sequence[Header] | None = None, *, told: bool = True
    ) -> None:
        """Hand over records; after the headers of each comes its one of `headers`. Partitions are given.

        Unless all of the transaction are `told` the client says of none where it lies, or what is wrong with
        it: it asks for the interpreter at each record that it tells of, for a millisecond where the event
        loop is at work.

        Raises:
            RecordTooLargeError, LogUnavailableError, FencedError: the transaction can only be aborted.
        """
        produce = self._producer.produce
        self._told = self._told and told
        on_delivery = self._delivered if told else None
        if told:
            self._records.extend(records)
        ends: Iterable[Header | None] = repeat(None, len(records)) if headers is None else headers
        for (topic, partition, key, text, extra, value), end in zip(records, ends, strict=True):
            all_headers: list[Any] = [*headers_of_text(text.encode()), *extra]
            if end is not None:
                all_headers.append(end)
            try:
                produce(topic, value, key, partition, on_delivery, headers=all_headers)
            except BufferError:
                self._wait_for_room()
                produce(topic, value, key, partition, on_delivery, headers=all_headers)
            except KafkaException as error:
                raise self._translated(error) from error

    def prove(self, tenure: KafkaTenure) -> None:
        """Let the transaction commit only if the group still leaves a partition to a member. Blocks.

        Raises:
            TenureEndedError, LogUnavailableError, FencedError: the transaction can only be aborted.
        """
        if not tenure.visible:
            raise tenure.ended(self.what)
        offset = KafkaPartition(*tenure.partition, tenure.offset())
        try:
            called(self._producer.send_offsets_to_transaction, [offset], tenure.metadata, _COMMIT_S)
        except (KafkaException, SystemError) as error:
            self.serve()
            cause = self._cause(error)
            if cause.code() in NO_MEMBER:
                raise tenure.ended(self.what) from error
            raise self._translated(cause) from error

    def flush(self) -> None:
        """Return when all that was produced lies in its partitions. Blocks.

        Raises:
            LogUnavailableError, RecordTooLargeError, FencedError: the transaction can only be aborted.
        """
        if self._fatal is not None:
            raise self._fatal
        try:
            left = called(self._producer.flush, _COMMIT_S)
        except (KafkaException, SystemError) as error:
            raise self._translated(self._cause(error)) from error
        if self._failed is not None:
            raise self._translated(self._failed)
        if left:
            raise unavailable(self._bootstrap, _COMMIT_S, f"{self.what}: {left} records are not acknowledged")

    def commit(self) -> list[Position]:
        """Commit; the position of each record in the order produced, none where that is not told. Blocks.

        Raises:
            UntoldError: a record was not taken; nothing was committed.
            FencedError: somebody else holds the id; nothing is visible.
            CommitUnknownError: the outcome is not known; the producer is of no use any more.
            EventStoreError: nothing was committed; the transaction is to be aborted.
        """
        self.flush()  # else a failed flush and a commit of unknown outcome could not be told apart
        try:
            called(self._producer.commit_transaction, _COMMIT_S)
        except (KafkaException, SystemError) as error:
            self.serve()
            raise self._judged(self._cause(error)) from error
        self.serve()
        if not self._plain():
            self.usable = False
        self._begin_ahead()
        return self.positions() if self._told else []

    def abort(self) -> None:
        """Abort; harmless where there is nothing to abort. Blocks.

        A failure ends the producer, and so does an abort that was not plainly acknowledged: a copy of its
        EndTxn would abort the first half of the next transaction.
        """
        if self._fatal is not None:
            return
        try:
            called(self._producer.abort_transaction, TRANSACTION_TIMEOUT_MS / 1000)
        except (KafkaException, SystemError) as error:
            self.usable = False
            if self._cause(error).code() in FENCED:
                self._fatal = fenced(self.what)
        self.serve()
        if not self._plain():
            self.usable = False

    def _plain(self) -> bool:
        """Whether no copy of a request of this transaction can be under way any more, once it has ended."""
        return self._log.disturbed_s < self._begun_s

    def serve(self) -> None:
        """Take what librdkafka has to tell, so that it does not pile up while nothing is committed."""
        try:
            called(self._producer.poll, 0)
        except (KafkaException, SystemError) as error:
            self._translated(self._cause(error))

    def close(self) -> None:
        """Let go, without waiting for anything. Blocks for some milliseconds."""
        self.usable = False
        client, self._client = self._client, None
        if client is not None:
            # Not `close`, which aborts first, waits for that and warns on standard error when it fails: the
            # owner has aborted, or it does not matter. The last reference gone, the client is destroyed.
            client.purge()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = self._failed or error
            return
        place = (message.topic(), message.partition())
        offsets = self._offsets.get(place)  # type: ignore[arg-type]
        if offsets is None:
            offsets = self._offsets[place] = []  # type: ignore[index]
        offsets.append(message.offset())  # type: ignore[arg-type]

    def _cause(self, error: KafkaException | SystemError) -> KafkaError:
        """What librdkafka says.

        confluent-kafka raises a fatal error from whatever call serves callbacks next, and a SystemError where
        another callback follows; then the client is asked again, which costs nothing, as it has ended.
        """
        if isinstance(error, SystemError) and isinstance(error.__cause__, KafkaException):
            error = error.__cause__
        if isinstance(error, SystemError):
            try:
                called(self._producer.begin_transaction)
            except KafkaException as again:
                error = again
            else:
                raise error
        cause: KafkaError = error.args[0]
        return cause

    def _judged(self, error: KafkaError) -> EventStoreError:
        """What a failed commit means."""
        if isinstance(translated(error, self._bootstrap, self.what), FOR_GOOD):
            return self._translated(error)  # nothing is gained by asking again what became of it
        # EndTxn may be answered with "unknown error", which says nothing about what became of the commit.
        if error.txn_requires_abort() and error.code() != KafkaError.UNKNOWN:
            if error.code() == KafkaError._INCONSISTENT and not self._told:
                return UntoldError(f"{self.what}: a record was not taken ({error.str()}).")
            return self._translated(self._failed or error)
        if error.code() in FENCED and self._plain():
            return self._translated(error)
        # Fenced after a disturbance may be the answer to a repetition of a commit that was carried out.
        self.usable = False
        self._fatal = CommitUnknownError(
            f"{self.what}: the broker has not said whether the commit is done ({error.str()}).",
            hint="Open the writer again and read what is there.",
        )
        return self._fatal

    def _translated(self, error: KafkaException | KafkaError) -> EventStoreError:
        """This package's error; the first fatal one is kept, for later ones say less."""
        if self._fatal is not None:
            return self._fatal
        kafka_error: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
        found = translated(kafka_error, self._bootstrap, self.what)
        ended = kafka_error.fatal() or kafka_error.code() == KafkaError.INVALID_TXN_STATE
        if ended and type(found) is EventStoreError:
            # What a broker says of a transaction that it has ended by itself, while it was not heard: a new
            # producer of this id can go on.
            found = let_go(self.what, f"({kafka_error.name()}: {kafka_error.str()})")
        if kafka_error.fatal() or isinstance(found, (FencedError, *FOR_GOOD)):
            self.usable = False
            self._fatal = found
        return found

    def positions(self) -> list[Position]:
        """Where the records of the transaction lie, in the order produced, once they are all delivered.

        Deliveries of a partition are told in order: the records take their offsets one after the other.
        """
        rest = {place: iter(offsets) for place, offsets in self._offsets.items()}
        return [Position(r.topic, r.partition, next(rest[r.topic, r.partition])) for r in self._records]

    def _wait_for_room(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self._producer) >= _QUEUE_MESSAGES // 2:
            called(self._producer.poll, 0.05)
            if time.monotonic() > deadline:
                raise unavailable(self._bootstrap, PATIENCE_S, f"{self.what}: the queue is full")
