"""A member of a Kafka group while partitions go and come back beside a slow handler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import OffsetSpec

from noesium_stream.errors import EventStoreError, LogCorruptError, LogTruncatedError, LogUnavailableError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.kafka.bounded_reader import out_of_range
from noesium_stream.log.kafka.group import batch_reader, group_offsets
from noesium_stream.log.kafka.group import subscription as kafka_group
from noesium_stream.log.kafka.group.subscription import KafkaSubscription
from noesium_stream.log.port import Handler, OnAssigned, OnRevoked, TopicPartition
from noesium_stream.log.record import Record
from tests.support.envelopes import open_catalogue
from tests.support.reading import PATIENCE_S, eventually

TP = TopicPartition("t", 0)


class Message:
    """A message of the client's."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return TP.topic

    def partition(self) -> int:
        return TP.partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return None

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b""

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def headers(self) -> None:
        return None


class Client:
    """A consumer whose polls answer what the test has written down: a message, or a change of partitions."""

    script: list[Message | Callable[[Client], None] | threading.Event]
    more: list[Message | Callable[[Client], None]]
    """What `consume` answers, one at a time."""
    end: int = OFFSET_INVALID
    """Of the partition, as far as the client knows."""
    last: Client
    """The one that was made last."""

    def __init__(self, config: dict[str, Any], logger: Any) -> None:
        Client.last = self
        self.committed_offsets: list[int] = []
        self.starts: list[int] = []
        self.paused: set[tuple[str, int]] = set()
        """As the client has it: a partition that goes and comes back is paused as before."""

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.callbacks = callbacks

    def change(self, what: str) -> None:
        self.callbacks[what](self, [KafkaPartition(*TP)])

    def poll(self, timeout_s: float) -> Message | None:
        if not self.script:
            threading.Event().wait(0.005)
            return None
        answer = self.script.pop(0)
        if isinstance(answer, Message):
            return answer
        if isinstance(answer, threading.Event):
            answer.set()
        else:
            answer(self)
        return None

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        if not (most and self.more):
            return []
        answer = self.more.pop(0)
        if isinstance(answer, Message):
            return [answer]
        answer(self)
        return []

    def committed(self, parts: list[KafkaPartition], timeout: float) -> list[KafkaPartition]:
        return parts

    def commit(self, offsets: list[KafkaPartition], asynchronous: bool) -> None:
        self.committed_offsets += [part.offset for part in offsets]

    def get_watermark_offsets(self, part: KafkaPartition, cached: bool) -> tuple[int, int]:
        assert cached, "nobody is asked for it"
        return (0, self.end)

    def assignment(self) -> list[KafkaPartition]:
        return []

    def incremental_assign(self, parts: list[KafkaPartition]) -> None:
        self.starts += [part.offset for part in parts]

    def incremental_unassign(self, parts: list[KafkaPartition]) -> None:
        pass

    def pause(self, parts: list[KafkaPartition]) -> None:
        self.paused |= {(part.topic, part.partition) for part in parts}

    def resume(self, parts: list[KafkaPartition]) -> None:
        self.paused -= {(part.topic, part.partition) for part in parts}

    def close(self) -> None:
        pass


class Settings:
    bootstrap = "here"

    def confluent(self) -> dict[str, Any]:
        return {}


def _member(
    handler: Handler,
    on_assigned: OnAssigned | None = None,
    *,
    on_revoked: OnRevoked | None = None,
    admin: Any = None,
    decoder: Any = None,
    keep: TypeFilter | None = None,
) -> KafkaSubscription:
    settings: Any = Settings()
    return KafkaSubscription(
        settings, admin, "group", "me/1/x", ["t"], decoder, handler, on_assigned, on_revoked, keep
    )


async def _at_five(tps: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
    return {TP: 5}


@pytest.fixture
def read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is a whole batch, so that the next one is read while it is handled."""
    monkeypatch.setattr(kafka_group, "Consumer", Client)
    monkeypatch.setattr(batch_reader, "_MOST", 1)
    Client.more = []


@pytest.fixture(params=["as they come", "read ahead"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few messages, and each of them a whole batch, so that the next is read meanwhile."""
    if request.param == "read ahead":
        monkeypatch.setattr(batch_reader, "_MOST", 1)


@pytest.mark.usefixtures("batches")
async def test_a_partition_that_comes_back_beside_a_slow_handler_begins_where_its_owner_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    came_back = threading.Event()
    monkeypatch.setattr(kafka_group, "Consumer", Client)
    monkeypatch.setattr(kafka_group, "_POLL_AFTER_S", 0.0)
    Client.more = []
    Client.script = [
        lambda client: client.change("on_assign"),
        Message(5),
        Message(6),  # read while the handler has 5, and kept for later
        lambda client: client.change("on_lost"),
        lambda client: client.change("on_assign"),
        came_back,
    ]
    handled: list[int] = []
    may_end = asyncio.Event()
    starts = [5, 0]

    async def handler(records: Sequence[Record]) -> None:
        handled.extend(record.offset for record in records)
        await may_end.wait()

    async def on_assigned(tps: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return {TP: starts.pop(0)}

    member = _member(handler, on_assigned)
    await asyncio.to_thread(came_back.wait, 10)
    assert came_back.is_set()
    assert member.position(TP) == 0
    Client.script += [Message(0), Message(1)]
    may_end.set()
    await eventually(lambda: len(handled) == 3)
    await member.close()
    await member.wait()
    assert handled == [5, 0, 1]
    assert member.position(TP) == 2
    assert Client.last.committed_offsets in ([1, 2], [2])  # one batch, if both were read beside the handler


@pytest.mark.usefixtures("batches")
async def test_who_is_told_that_an_offset_is_not_there_reads_on_where_it_is_and_ends_where_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Failed(Message):
        def error(self) -> KafkaError:
            return KafkaError(KafkaError._AUTO_OFFSET_RESET)

    class Admin:
        bootstrap = "here"
        first = 0

        async def offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
            return {0: self.first if spec._value == OffsetSpec.earliest()._value else 100}

    monkeypatch.setattr(kafka_group, "Consumer", Client)
    again = threading.Event()
    admin = Admin()
    Client.more = []
    Client.script = [lambda client: client.change("on_assign"), Message(5), Failed(-1), again]
    handled: list[int] = []

    async def handler(records: Sequence[Record]) -> None:
        handled.extend(record.offset for record in records)

    async def on_assigned(tps: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return {TP: 5}

    member = _member(handler, on_assigned, admin=admin)
    await asyncio.to_thread(again.wait, 10)
    assert Client.last.starts == [5, 6]
    Client.script += [Message(6)]
    await eventually(lambda: handled == [5, 6])
    admin.first = 50
    Client.script += [Failed(-1)]
    with pytest.raises(LogTruncatedError, match="offset 7 is no longer there, the first retained one is 50"):
        await asyncio.wait_for(member.wait(), PATIENCE_S)


async def test_who_is_given_a_partition_while_nobody_knows_the_groups_offset_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its owner takes it later, and says then where it begins."""

    class Away(Client):
        def committed(self, parts: list[KafkaPartition], timeout: float) -> list[KafkaPartition]:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    class Failed(Message):
        def error(self) -> KafkaError:
            return KafkaError(KafkaError._AUTO_OFFSET_RESET)

    class Admin:
        bootstrap = "here"

        async def offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
            return {0: 0 if spec._value == OffsetSpec.earliest()._value else 100}

    monkeypatch.setattr(kafka_group, "Consumer", Away)
    monkeypatch.setattr(group_offsets, "ASKING_S", 0.05)
    Client.more = []
    Client.script = [lambda client: client.change("on_assign")]
    handled: list[int] = []

    async def handler(records: Sequence[Record]) -> None:
        handled.extend(record.offset for record in records)

    async def on_assigned(tps: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    member = _member(handler, on_assigned, admin=Admin())
    await eventually(lambda: Client.last.starts == [OFFSET_STORED])
    assert member.assignment == {TP}
    assert member.position(TP) is None
    Client.script += [Failed(-1)]
    await eventually(lambda: Client.last.starts == [OFFSET_STORED, OFFSET_BEGINNING])
    member.seek({TP: 7})
    await eventually(lambda: Client.last.starts[2:] == [7])
    Client.script += [Message(7)]
    await eventually(lambda: handled == [7])
    await member.close()
    await member.wait()


@pytest.mark.parametrize(
    ("wanted", "error"),
    [(-2, LogUnavailableError), (1, LogTruncatedError), (3, LogUnavailableError), (11, LogCorruptError)],
)
async def test_an_offset_that_is_there_and_cannot_be_read_is_tried_again(
    wanted: int, error: type[EventStoreError]
) -> None:
    class Admin:
        bootstrap = "here"

        async def offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
            return {0: 3 if spec._value == OffsetSpec.earliest()._value else 10}

    found = await out_of_range(Admin(), "t", 0, wanted)  # type: ignore[arg-type]
    assert type(found) is error
    assert found.retriable is (error is LogUnavailableError)


async def test_a_partition_that_goes_while_it_is_paused_beside_a_slow_handler_is_read_when_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Keeping(Client):
        def __init__(self, config: dict[str, Any], logger: Any) -> None:
            super().__init__(config, logger)
            self.has: set[tuple[str, int]] = set()

        def assignment(self) -> list[KafkaPartition]:
            return [KafkaPartition(*tp) for tp in self.has]

        def incremental_assign(self, parts: list[KafkaPartition]) -> None:
            super().incremental_assign(parts)
            self.has |= {(part.topic, part.partition) for part in parts}

        def incremental_unassign(self, parts: list[KafkaPartition]) -> None:
            self.has -= {(part.topic, part.partition) for part in parts}

    monkeypatch.setattr(kafka_group, "Consumer", Keeping)
    monkeypatch.setattr(kafka_group, "_POLL_AFTER_S", 0.0)
    lost = threading.Event()
    came_back = threading.Event()
    Client.more = []
    Client.script = [
        lambda client: client.change("on_assign"),
        Message(5),
        lambda client: client.change("on_lost"),
        lost,
    ]
    may_end = asyncio.Event()

    async def handler(records: Sequence[Record]) -> None:
        await may_end.wait()

    member = _member(handler)
    await asyncio.to_thread(lost.wait, 10)
    client: Any = Client.last
    assert client.paused == {TP}
    may_end.set()
    await eventually(lambda: member._busy is None)
    Client.script += [lambda client: client.change("on_assign"), came_back]
    await asyncio.to_thread(came_back.wait, 10)
    assert client.has == {TP}
    assert client.paused == set()
    await member.close()
    await member.wait()


@pytest.mark.parametrize("of_a_partition", [False, True])
async def test_a_broker_that_does_not_know_yet_that_it_keeps_the_groups_offsets_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, of_a_partition: bool
) -> None:
    asked = 0

    class Starting(Client):
        def committed(self, parts: list[KafkaPartition], timeout: float) -> list[KafkaPartition]:
            nonlocal asked
            asked += 1
            error = KafkaError(
                [KafkaError.NOT_COORDINATOR, KafkaError.UNSTABLE_OFFSET_COMMIT][of_a_partition]
            )
            if asked > 2:
                return [KafkaPartition(*TP, 7)]
            if not of_a_partition:
                raise KafkaException(error)
            return [Unknown()]

    class Unknown(KafkaPartition):
        error = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)

        def __init__(self) -> None:
            super().__init__(*TP)

    monkeypatch.setattr(kafka_group, "Consumer", Starting)
    Client.more = []
    Client.script = [lambda client: client.change("on_assign")]

    async def handler(records: Sequence[Record]) -> None:
        pass

    member = _member(handler)
    await eventually(lambda: member.position(TP) == 7)
    await member.close()
    await member.wait()
    assert asked == 3


async def test_what_was_read_of_a_partition_that_goes_before_all_is_read_is_not_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_group, "Consumer", Client)
    monkeypatch.setattr(batch_reader, "_SIFTED_AT_ONCE", 1)

    def come_back(client: Client) -> None:
        client.change("on_revoke")
        client.change("on_assign")

    Client.script = [lambda client: client.change("on_assign"), Message(5), Message(0), Message(2)]
    Client.more = [Message(6), come_back, Message(1)]
    handled: list[list[int]] = []
    starts = [5, 0]

    async def handler(records: Sequence[Record]) -> None:
        handled.append([record.offset for record in records])

    async def on_assigned(tps: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return {TP: starts.pop(0)}

    # None of these can be read by the filter: all are handed over.
    member = _member(
        handler, on_assigned, decoder=EnvelopeCodec(open_catalogue()), keep=TypeFilter(["demo.anything"])
    )
    await eventually(lambda: len(handled) == 2)
    await member.close()
    await member.wait()
    assert handled == [[0, 1], [2]]
    assert member.position(TP) == 3
    assert Client.last.committed_offsets == [5, 2, 3]


@pytest.mark.usefixtures("batches")
async def test_what_is_asked_of_a_member_beside_a_slow_handler_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Joined(Client):
        def consumer_group_metadata(self) -> bytes:
            return b"me"

    monkeypatch.setattr(kafka_group, "Consumer", Joined)
    monkeypatch.setattr(kafka_group, "_POLL_AFTER_S", 0.0)
    slow = threading.Event()
    Client.more = []
    Client.script = [lambda client: client.change("on_assign"), Message(5), slow]
    told: list[TopicPartition] = []

    async def handler(records: Sequence[Record]) -> None:
        # As an owner that takes its partition again in the middle of a batch.
        assert await asyncio.to_thread(slow.wait, 10)
        async with asyncio.timeout(PATIENCE_S):
            told.append((await member.tenure(TP)).partition)

    member = _member(handler)
    await eventually(lambda: member.position(TP) == 6 or member._done.done())
    await member.close()
    await member.wait()
    assert told == [TP]


@pytest.mark.usefixtures("batches")
async def test_a_member_that_is_closed_while_it_is_given_a_partition_has_let_go_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joining, may_be_given = threading.Event(), threading.Event()

    class Late(Client):
        def close(self) -> None:
            self.change("on_revoke")

    def given(client: Client) -> None:
        joining.set()
        assert may_be_given.wait(PATIENCE_S)
        client.change("on_assign")

    monkeypatch.setattr(kafka_group, "Consumer", Late)
    monkeypatch.setattr(kafka_group, "GOODBYE_S", 0.1)
    Client.more = []
    Client.script = [given]
    released: list[TopicPartition] = []
    may_release = asyncio.Event()

    async def handler(records: Sequence[Record]) -> None: ...

    async def on_revoked(tps: frozenset[TopicPartition]) -> None:
        await may_release.wait()
        released.extend(tps)

    member = _member(handler, on_revoked=on_revoked)
    await asyncio.to_thread(joining.wait, PATIENCE_S)
    closing = asyncio.create_task(member.close())
    await asyncio.sleep(0)
    may_be_given.set()
    await asyncio.wait((closing,), timeout=0.5)
    assert not closing.done()
    may_release.set()
    await closing
    assert released == [TP]


@pytest.mark.parametrize(("end", "behind"), [(1_000, 994), (6, 0), (OFFSET_INVALID, 0)])
async def test_a_member_knows_how_many_records_are_behind_those_that_it_hands_over(
    monkeypatch: pytest.MonkeyPatch, end: int, behind: int
) -> None:
    monkeypatch.setattr(kafka_group, "Consumer", Client)
    monkeypatch.setattr(Client, "end", end)
    Client.more = []
    Client.script = [lambda client: client.change("on_assign"), Message(5)]
    told = asyncio.get_running_loop().create_future()

    async def handler(records: Sequence[Record]) -> None:
        told.set_result(member.behind(TP))

    async def on_assigned(tps: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return {TP: 5}

    member = _member(handler, on_assigned)
    async with asyncio.timeout(PATIENCE_S):
        assert await told == behind
        await member.close()


@pytest.mark.usefixtures("read_ahead")
async def test_the_next_batch_is_read_while_one_is_handled_and_handed_over_after_it() -> None:
    Client.script = [lambda client: client.change("on_assign"), Message(5), Message(6), Message(7)]
    at_work: list[int] = []
    begun: list[int] = []
    go_on = asyncio.Semaphore(0)

    async def handler(records: Sequence[Record]) -> None:
        assert not at_work, "one batch at a time"
        at_work.extend(record.offset for record in records)
        begun.extend(at_work)
        await go_on.acquire()
        at_work.clear()

    member = _member(handler, _at_five)
    await eventually(lambda: begun == [5] and len(Client.script) == 1)
    assert (member.position(TP), Client.last.committed_offsets) == (5, [])
    go_on.release()
    await eventually(lambda: begun == [5, 6] and not Client.script)
    assert (member.position(TP), Client.last.committed_offsets) == (6, [6])
    go_on.release()
    go_on.release()
    await eventually(lambda: member.position(TP) == 8)
    await member.close()
    await member.wait()
    assert (begun, Client.last.committed_offsets) == ([5, 6, 7], [6, 7, 8])


@pytest.mark.usefixtures("read_ahead")
async def test_what_was_read_ahead_is_left_out_where_another_offset_is_sought_meanwhile() -> None:
    Client.script = [lambda client: client.change("on_assign"), Message(5), Message(6)]
    handled: list[int] = []
    may_end = asyncio.Event()

    async def handler(records: Sequence[Record]) -> None:
        handled.extend(record.offset for record in records)
        await may_end.wait()

    member = _member(handler, _at_five)
    await eventually(lambda: handled == [5] and not Client.script)
    member.seek({TP: 2})
    may_end.set()
    await eventually(lambda: Client.last.starts == [5, 2])
    assert member.position(TP) == 2
    Client.script += [Message(2)]
    await eventually(lambda: member.position(TP) == 3)
    await member.close()
    await member.wait()
    assert handled == [5, 2]


@pytest.mark.usefixtures("read_ahead")
async def test_what_was_read_ahead_of_a_handler_that_fails_is_not_handed_over() -> None:
    Client.script = [lambda client: client.change("on_assign"), Message(5), Message(6)]
    handled: list[int] = []
    may_fail = asyncio.Event()

    async def handler(records: Sequence[Record]) -> None:
        handled.extend(record.offset for record in records)
        await may_fail.wait()
        raise EventStoreError("no")

    member = _member(handler, _at_five)
    await eventually(lambda: handled == [5] and not Client.script)
    may_fail.set()
    with pytest.raises(EventStoreError, match="no"):
        await asyncio.wait_for(member.wait(), PATIENCE_S)
    assert (handled, member.position(TP), Client.last.committed_offsets) == ([5], 5, [])


@pytest.mark.usefixtures("read_ahead")
async def test_a_partition_that_goes_while_its_next_batch_is_read_is_handled_to_the_end_before() -> None:
    going = threading.Event()

    def go(client: Client) -> None:
        going.set()
        client.change("on_revoke")

    Client.script = [lambda client: client.change("on_assign"), Message(5), go]
    ended: list[int] = []
    may_end = asyncio.Event()

    async def handler(records: Sequence[Record]) -> None:
        await may_end.wait()
        ended.extend(record.offset for record in records)

    member = _member(handler, _at_five)
    await asyncio.to_thread(going.wait, 10)
    assert member.assignment == {TP}, "it is waited for"
    may_end.set()
    await eventually(lambda: not member.assignment)
    assert (ended, Client.last.committed_offsets) == ([5], [6])
    await member.close()
    await member.wait()


@pytest.mark.usefixtures("read_ahead")
async def test_a_batch_whose_handler_fails_while_its_partition_goes_is_not_committed() -> None:
    going = threading.Event()

    def go(client: Client) -> None:
        going.set()
        client.change("on_revoke")

    Client.script = [lambda client: client.change("on_assign"), Message(5), go]

    async def handler(records: Sequence[Record]) -> None:
        await eventually(going.is_set)
        raise EventStoreError("no")

    member = _member(handler, _at_five)
    with pytest.raises(EventStoreError, match="no"):
        await asyncio.wait_for(member.wait(), PATIENCE_S)
    assert (member.position(TP), Client.last.committed_offsets) == (5, [])
