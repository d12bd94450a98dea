"""What a transactional producer makes of errors that no broker of a test gives at will."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from noesium_stream.errors import (
    FencedError,
    LogForbiddenError,
    LogUnavailableError,
    LogUnsupportedError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from noesium_stream.log.kafka import transactional_producer as kafka_producer
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.kafka.thread_call import to_its_end
from noesium_stream.log.kafka.transactional_producer import TransactionalProducer
from noesium_stream.log.kafka.writer import KafkaWriter
from noesium_stream.log.prepare import Prepared
from tests.support.reading import PATIENCE_S


class Client:
    """A producer whose transaction the broker has ended by itself while it was not heard."""

    def __init__(self, config: dict[str, Any], logger: Any) -> None:
        self.failed = False

    def begin_transaction(self) -> None:
        self.poll(0)

    def abort_transaction(self, timeout_s: float) -> None:
        self.failed = True
        raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE))

    def poll(self, timeout_s: float) -> None:
        if self.failed:
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "invalid state", fatal=True))


def test_who_cannot_abort_what_the_broker_has_ended_lets_go_of_the_id_and_a_new_producer_can_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_producer, "Producer", Client)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    producer.begin()
    producer.abort()
    assert not producer.usable
    assert isinstance(producer.ended_by, FencedError)
    with pytest.raises(FencedError, match="has let go of its id"):
        producer.begin()


def test_who_hears_of_a_record_that_the_broker_has_ended_the_transaction_lets_go_of_the_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Verifying(Client):
        """Its broker looks whether a record belongs to an open transaction (KIP-890)."""

        def produce(self, topic: str, value: bytes, key: str, partition: int, told: Any, **_: Any) -> None:
            self.told = told

        def flush(self, timeout_s: float) -> int:
            self.told(KafkaError(KafkaError.INVALID_TXN_STATE), None)
            return 0

    monkeypatch.setattr(kafka_producer, "Producer", Verifying)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    producer.begin()
    producer.produce([Prepared("t", 0, "k", "\n\n\n\n", (), b"")])
    with pytest.raises(FencedError, match="has let go of its id"):
        producer.commit()
    assert not producer.usable


@pytest.mark.parametrize("room", [True, False])
@pytest.mark.parametrize("code", [KafkaError._FATAL, KafkaError._STATE])
def test_who_was_fenced_between_two_records_of_a_transaction_is_told_so(
    monkeypatch: pytest.MonkeyPatch, code: int, room: bool
) -> None:
    class Fenced(Client):
        """Its records fail for a reason that only the next transaction is told (librdkafka 2.16)."""

        def __len__(self) -> int:
            return 0

        def produce(self, *_: Any, **__: Any) -> None:
            if not self.failed:
                self.failed = True
                if not room:
                    raise BufferError
                return
            raise KafkaException(KafkaError(code, "Unable to produce message"))

        def poll(self, timeout_s: float) -> None:
            if self.failed:
                raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))

    monkeypatch.setattr(kafka_producer, "Producer", Fenced)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    producer.begin()
    record = Prepared("t", 0, "k", "\n\n\n\n", (), b"")
    with pytest.raises(FencedError, match="a newer writer holds its id"):
        producer.produce([record, record])
    assert not producer.usable
    assert isinstance(producer.ended_by, FencedError)


def test_a_record_that_the_client_does_not_take_after_another_was_refused_names_that_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing(Client):
        """Its transaction has to be aborted, and can be: the producer goes on."""

        def begin_transaction(self) -> None:
            if self.failed:
                raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, txn_requires_abort=True))

        def abort_transaction(self, timeout_s: float) -> None:
            self.failed = False

        def produce(self, *_: Any, **__: Any) -> None:
            self.failed = True
            raise KafkaException(KafkaError(KafkaError._STATE, "Unable to produce message"))

        def poll(self, timeout_s: float) -> None:
            pass

    monkeypatch.setattr(kafka_producer, "Producer", Refusing)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    producer.begin()
    with pytest.raises(RecordTooLargeError):
        producer.produce([Prepared("t", 0, "k", "\n\n\n\n", (), b"")])
    producer.abort()
    assert producer.usable


@pytest.mark.parametrize("abortable", [True, False])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNSUPPORTED_VERSION, LogUnsupportedError),
        (KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, LogUnsupportedError),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, LogForbiddenError),
    ],
)
def test_a_commit_that_the_broker_will_never_take_is_no_lost_partition(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception], abortable: bool
) -> None:
    """As a fenced writer, or one whose commit is not known, it would be opened again for ever."""

    class Refusing(Client):
        def flush(self, timeout_s: float) -> int:
            return 0

        def commit_transaction(self, timeout_s: float) -> None:
            raise KafkaException(KafkaError(code, fatal=not abortable, txn_requires_abort=abortable))

    monkeypatch.setattr(kafka_producer, "Producer", Refusing)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    producer.begin()
    with pytest.raises(kind, match="the writer w: the Kafka broker at here"):
        producer.commit()
    assert not producer.usable
    with pytest.raises(kind):
        producer.begin()


class Unwilling(Client):
    """Its broker does not take a record, and it says why to whoever asks, at that record alone."""

    def __init__(self, config: dict[str, Any], logger: Any) -> None:
        super().__init__(config, logger)
        self.said: list[str] = []
        self.refuses = True
        self.tell: Any = None

    def begin_transaction(self) -> None:
        self.said.append("begin")

    def abort_transaction(self, timeout_s: float) -> None:
        self.said.append("abort")

    def produce(self, topic: str, value: bytes, key: str, partition: int, told: Any, **_: Any) -> None:
        self.tell = told
        self.said.append("produce" if told is None else "produce, told")

    def flush(self, timeout_s: float) -> int:
        if self.refuses and self.tell is not None:
            self.tell(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), None)
        return 0

    def commit_transaction(self, timeout_s: float) -> None:
        self.said.append("commit")
        if self.refuses:
            raise KafkaException(KafkaError(KafkaError._INCONSISTENT, txn_requires_abort=True))


async def test_a_commit_that_was_not_told_what_is_wrong_with_a_record_is_made_again_to_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_producer, "Producer", Unwilling)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    with ThreadPoolExecutor(1) as executor:
        nothing: Any = None
        writer = KafkaWriter("w", producer, 1, nothing, nothing, executor, "t", nothing, nothing)
        records = [Prepared("t", 0, "k", "\n\n\n\n", (), b"")]

        async def prepare(outgoing: Any) -> list[Prepared]:
            return records

        monkeypatch.setattr(writer, "prepare", prepare)
        writer.tells_positions = False
        client: Any = producer._client
        with pytest.raises(TopicNotFoundError):
            await writer.commit([])
        assert client.said == ["begin", "produce", "commit", "abort", "begin", "produce, told", "abort"]
        client.said, client.refuses = [], False
        assert await writer.commit([]) == []
        assert client.said == ["begin", "produce", "commit", "begin"], "the next one is begun ahead"
        client.said = []
        assert await writer.commit([]) == []
        assert client.said == ["produce", "commit", "begin"]


async def test_a_writer_that_nobody_waits_for_does_not_wait_for_a_broker_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that is told to end while it opens one has seconds, not half a minute."""
    tried = threading.Event()

    class Away(Client):
        def init_transactions(self, timeout_s: float) -> None:
            tried.set()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

        def poll(self, timeout_s: float) -> None:
            pass

    monkeypatch.setattr(kafka_producer, "Producer", Away)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    with ThreadPoolExecutor(1) as executor:
        opening = asyncio.ensure_future(to_its_end(executor, producer.init, producer.give_up))
        await asyncio.to_thread(tried.wait, 10)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):  # and no timeout
            async with asyncio.timeout(PATIENCE_S):
                await opening


def test_what_speaks_against_the_next_transaction_is_no_failure_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ended(Client):
        """Its next transaction cannot begin."""

        def __init__(self, config: dict[str, Any], logger: Any) -> None:
            super().__init__(config, logger)
            self.committed = False

        def begin_transaction(self) -> None:
            if self.committed:
                raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))

        def flush(self, timeout_s: float) -> int:
            return 0

        def commit_transaction(self, timeout_s: float) -> None:
            self.committed = True

    monkeypatch.setattr(kafka_producer, "Producer", Ended)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    producer.begin()
    assert producer.commit() == []
    with pytest.raises(FencedError):
        producer.begin()
    assert not producer.usable


def test_a_fence_that_is_heard_of_between_transactions_ends_the_one_that_is_begun_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fenced(Client):
        """Somebody else takes its id while it does nothing."""

        def begin_transaction(self) -> None:
            pass

        def flush(self, timeout_s: float) -> int:
            return 0

        def commit_transaction(self, timeout_s: float) -> None:
            pass

        def poll(self, timeout_s: float) -> None:
            if self.failed:
                raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))

    monkeypatch.setattr(kafka_producer, "Producer", Fenced)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    producer.begin()
    assert producer.commit() == []
    client: Any = producer._client
    client.failed = True
    with pytest.raises(FencedError):
        producer.begin()
    assert not producer.usable


@pytest.mark.parametrize("broken", ["before", "meanwhile", "never"])
def test_a_transaction_whose_connection_broke_meanwhile_is_the_last_one(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    class Connected(Client):
        def __init__(self, config: dict[str, Any], logger: Any) -> None:
            super().__init__(config, logger)
            assert config["debug"] == "broker", "no other line is told of each break"

        def begin_transaction(self) -> None:
            pass

        def flush(self, timeout_s: float) -> int:
            return 0

        def commit_transaction(self, timeout_s: float) -> None:
            if broken == "meanwhile":
                breaks()

    def breaks() -> None:
        line = (
            "[thrd:TxnCoordinator]: TxnCoordinator: here:9092: Disconnected (after 9ms in state UP) "
            "(_TRANSPORT): identical to last error: error log suppressed"
        )
        producer._log.log(10, "%s [%s] %s", "FAIL", "w", line)

    monkeypatch.setattr(kafka_producer, "Producer", Connected)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    if broken == "before":
        breaks()
    producer.begin()
    producer._log.log(10, "%s [%s] %s", "WAKEUP", "w", "[thrd:main]: TxnCoordinator: Wake-up: flushing")
    assert producer.commit() == []
    assert producer.usable is (broken != "meanwhile")


def test_who_found_no_broker_lets_go_even_if_the_abort_needed_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has lost its cluster aborts what never reached a broker without asking one."""

    class Lost(Client):
        def produce(self, topic: str, value: bytes, key: str, partition: int, told: Any, **_: Any) -> None:
            self.told = told

        def flush(self, timeout_s: float) -> int:
            self.told(KafkaError(KafkaError._MSG_TIMED_OUT), None)
            return 0

        def abort_transaction(self, timeout_s: float) -> None:
            pass

    monkeypatch.setattr(kafka_producer, "Producer", Lost)
    producer = TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    producer.begin()
    producer.produce([Prepared("t", 0, "k", "\n\n\n\n", (), b"")])
    with pytest.raises(LogUnavailableError):
        producer.commit()
    producer.abort()
    assert not producer.usable
    assert producer.ended_by is None
