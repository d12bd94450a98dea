"""One transactional producer of librdkafka: initialised, filled, committed; discarded when in doubt.

Decision record: the caller's thread produces (this only copies into librdkafka's queue), and only calls that
wait for the broker run on another thread. Beginning the next transaction also runs there: the broker is not
involved, but the call waits for the client's own thread. A commit without a plain acknowledgement ends the
producer. A copy of its EndTxn request may still be under way. Under the old transaction protocol that
librdkafka speaks (EndTxn version 1; from version 5 on the broker raises the epoch by itself), that copy would
commit the first half of the *next* transaction of the same producer. A copy of an abort would likewise end
the first half of the next one. A new producer has another epoch, which such a copy does not match.

The client itself repeats an EndTxn whose connection broke, and reports success; only its log mentions the
break. Only its debug log of brokers reports each break: other logs omit those of idle connections, those to a
former coordinator, and repetitions in the same words within 30 s.

This is why no commit is ever seen in part. Another holder of the id has another epoch. A late EndTxn of this
producer meets another epoch too, unless its transaction ended plainly, and then there is no copy of it. A
late record is detected by its number, and, after an abort that left records under way, by its epoch.
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

from noesium_stream.errors import (
    CommitUnknownError,
    EventStoreError,
    FencedError,
    LogClosedError,
    LogUnavailableError,
)
from noesium_stream.log.kafka.errors import (
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
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.kafka.tenure import KafkaTenure
from noesium_stream.log.port import Header, Position
from noesium_stream.log.prepare import Prepared, headers_of_text

T = TypeVar("T")

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""After this the broker aborts an open transaction; until then it holds back readers of its partitions."""

_COMMIT_S: Final = TRANSACTION_TIMEOUT_MS / 1000 + 5
_INIT_TURN_S: Final = 1.0
_QUEUE_MESSAGES: Final = 1_000_000
_UNSPECIFIC: Final = frozenset({KafkaError._FATAL, KafkaError._STATE})
"""All that `produce` says once the transaction has failed beside it; the client keeps the reason."""

_ENDED: Final = frozenset({KafkaError.INVALID_TXN_STATE, *_UNSPECIFIC})
"""Errors of a transaction that cannot commit, by a client that cannot begin another."""


class UntoldError(EventStoreError):
    """A record was rejected and nothing is committed; delivery reports were off, so the reason is unknown."""


def called(function: Callable[..., T], *arguments: Any) -> T:
    """Call the client; make sure that it raises real exceptions.

    confluent-kafka also raises fatal errors as bare `KafkaError`s. Those are no exceptions: `except
    BaseException` does not catch them, they kill an executor's thread, and the caller that awaits it waits
    for ever.
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

    `what` names it in errors. `usable` becomes False once it may not begin another transaction: also when a
    transaction found no broker available, as the client may be what has lost touch (see `lost_client`).
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
            "compression.type": "zstd",  # a step's records take 0.76 of their bytes in lz4, a bulk's 0.65
            # A flush before each commit ends the lingering at once: it only gathers records meanwhile.
            "linger.ms": 5,
            "retry.backoff.ms": 5,
            "queue.buffering.max.messages": _QUEUE_MESSAGES,
            "message.max.bytes": 1_048_588,
            "debug": "broker",  # the only log that reports each broken connection
        }
        self._client: Producer | None = Producer(config, logger=self._log)

    @property
    def ended_by(self) -> EventStoreError | None:
        """The error that ended this producer, if it is known."""
        return self._fatal

    @property
    def _producer(self) -> Producer:
        if self._client is None:
            raise LogClosedError(f"{self.what} is closed.")
        return self._client

    def init(self) -> None:
        """Fence the holder of this id, abort its open transaction, wait until that is settled. Blocks.

        `give_up` ends it within `_INIT_TURN_S`.

        Raises:
            LogUnavailableError: no broker answers, or it refuses this client.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                # In short turns: between them the client reports what it noticed.
                called(self._producer.init_transactions, _INIT_TURN_S)
                break
            except KafkaException as error:
                self.serve()
                if self._log.refusal is not None:
                    raise refused(self._bootstrap, self._log.refusal.str()) from error
                code = error.args[0].code()
                # The broker is still ending the previous holder's transaction: that passes.
                passing = error.args[0].retriable() or code == KafkaError.CONCURRENT_TRANSACTIONS
                if not passing or self._given_up or time.monotonic() > deadline:
                    raise translated(error, self._bootstrap, f"opening {self.what}") from error
        self.serve()
        self._begin_ahead()

    def give_up(self) -> None:
        """Stop `init`; may be called from any thread."""
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

        `begin` reports any error.
        """
        if self.usable and self._fatal is None:
            with suppress(KafkaException):
                called(self._producer.begin_transaction)
                self._begun_ahead = True

    def produce(
        self, records: Sequence[Prepared], headers: Sequence[Header] | None = None, *, told: bool = True
    ) -> None:
        """Hand over records, each with its own entry of `headers` appended. Partitions are given.

        Unless all records of the transaction are `told`, the client reports neither their positions nor their
        errors. For each report it needs the interpreter, which takes a millisecond while the event loop is
        busy.

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
                try:
                    produce(topic, value, key, partition, on_delivery, headers=all_headers)
                except BufferError:
                    self._wait_for_room()
                    produce(topic, value, key, partition, on_delivery, headers=all_headers)
            except KafkaException as error:
                raise self._translated(error) from error

    def prove(self, tenure: KafkaTenure) -> None:
        """Let the transaction commit only if the group still leaves a partition to the member. Blocks.

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
        """Return when all produced records lie in their partitions. Blocks.

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
            self.usable = False
            raise unavailable(self._bootstrap, _COMMIT_S, f"{self.what}: {left} records are not acknowledged")

    def commit(self) -> list[Position]:
        """Commit; return the position of each record in the order produced, none without reports. Blocks.

        Raises:
            UntoldError: a record was rejected; nothing was committed.
            FencedError: another writer holds the id; nothing is visible.
            CommitUnknownError: the outcome is unknown; the producer cannot be used any more.
            EventStoreError: nothing was committed; the transaction is to be aborted.
        """
        self.flush()  # else a failed flush could not be told from a commit of unknown outcome
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
        """Abort; harmless if there is no transaction. Blocks.

        A failure ends the producer, and so does an abort without a plain acknowledgement: a copy of its
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
        """Whether no copy of a request of this transaction can be under way once it has ended."""
        return self._log.disturbed_s < self._begun_s

    def serve(self) -> None:
        """Run librdkafka's callbacks, so that they do not pile up while nothing is committed."""
        try:
            called(self._producer.poll, 0)
        except (KafkaException, SystemError) as error:
            self._translated(self._cause(error))

    def close(self) -> None:
        """Release the client without waiting for requests. Blocks for some milliseconds."""
        self.usable = False
        client, self._client = self._client, None
        if client is not None:
            # Not `close`, which aborts first, waits for that and warns on standard error when it fails: the
            # owner has aborted, or it does not matter. Dropping the last reference destroys the client.
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
        """The `KafkaError` behind an exception.

        confluent-kafka raises a fatal error from any call that next serves callbacks, and a SystemError if
        another callback follows. Then this asks the client again, which costs nothing, as it has ended.
        """
        if isinstance(error, SystemError) and isinstance(error.__cause__, KafkaException):
            error = error.__cause__
        if isinstance(error, SystemError):
            found = self._state_error()
            if found is None:
                raise error
            return found
        cause: KafkaError = error.args[0]
        return cause

    def _state_error(self) -> KafkaError | None:
        """Why the client cannot begin a transaction now; None: it can, and has. The broker is not asked."""
        try:
            called(self._producer.begin_transaction)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            return cause
        return None

    def _judged(self, error: KafkaError) -> EventStoreError:
        """The meaning of a failed commit."""
        if isinstance(translated(error, self._bootstrap, self.what), FOR_GOOD):
            return self._translated(error)  # asking again for the outcome gains nothing
        # EndTxn may be answered with "unknown error", which says nothing about the commit's outcome.
        if error.txn_requires_abort() and error.code() != KafkaError.UNKNOWN:
            if error.code() == KafkaError._INCONSISTENT and not self._told:
                return UntoldError(f"{self.what}: a record was not taken ({error.str()}).")
            return self._translated(self._failed or error)
        if error.code() in FENCED and self._plain():
            return self._translated(error)
        # Fenced after a disturbance may be the answer to the repetition of a commit that succeeded.
        self.usable = False
        self._fatal = CommitUnknownError(
            f"{self.what}: the broker has not said whether the commit is done ({error.str()}).",
            hint="Open the writer again and read what is there.",
        )
        return self._fatal

    def _translated(self, error: KafkaException | KafkaError) -> EventStoreError:
        """This package's error; keeps the first fatal one, because later ones say less."""
        if self._fatal is not None:
            return self._fatal
        kafka_error: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
        if kafka_error.code() in _UNSPECIFIC:
            kafka_error = self._state_error() or kafka_error
        found = translated(kafka_error, self._bootstrap, self.what)
        ended = kafka_error.fatal() or kafka_error.code() in _ENDED
        if ended and type(found) is EventStoreError:
            # The broker's error for a transaction that it ended by itself while this client was silent: a new
            # producer of this id can continue.
            found = let_go(self.what, f"({kafka_error.name()}: {kafka_error.str()})")
        if kafka_error.fatal() or isinstance(found, (FencedError, *FOR_GOOD)):
            self.usable = False
            self._fatal = found
        elif isinstance(found, LogUnavailableError):
            self.usable = False
        return found

    def positions(self) -> list[Position]:
        """Positions of the transaction's records, in the order produced, once all are delivered.

        Deliveries of a partition are reported in order, so the records take their offsets one after the
        other.
        """
        rest = {place: iter(offsets) for place, offsets in self._offsets.items()}
        return [Position(r.topic, r.partition, next(rest[r.topic, r.partition])) for r in self._records]

    def _wait_for_room(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self._producer) >= _QUEUE_MESSAGES // 2:
            called(self._producer.poll, 0.05)
            if time.monotonic() > deadline:
                raise unavailable(self._bootstrap, PATIENCE_S, f"{self.what}: the queue is full")
