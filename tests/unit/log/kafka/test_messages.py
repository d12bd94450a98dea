"""Messages of the client as records: what of a poll is kept, and how far it leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.log.headers import CE_TYPE, TypeFilter
from noesium_stream.log.kafka.messages import Batch, Sieve, sieve, to_record
from tests.support.envelopes import envelope, open_catalogue

CODEC = EnvelopeCodec(open_catalogue())
EVENT = envelope()
WANTED = TypeFilter(["demo.anything"])


class Message:
    """A message of the client's; counts how often its headers are asked for."""

    def __init__(
        self,
        offset: int,
        at: tuple[str, int] = ("t", 0),
        value: bytes | None = b"",
        headers: Sequence[tuple[str, bytes]] | None = None,
        error: int | None = None,
    ) -> None:
        self._at = at
        self._offset = offset
        self._value = value
        self._headers = headers
        self._error = error
        self.asked = 0

    def topic(self) -> str:
        return self._at[0]

    def partition(self) -> int:
        return self._at[1]

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return None if self._error is None else KafkaError(self._error)

    def key(self) -> bytes | None:
        return b"k\xff"

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, 77

    def headers(self) -> Sequence[tuple[str, bytes]] | None:
        self.asked += 1
        return self._headers


def sorted_batch(messages: list[Message], mine: set[tuple[str, int]], wanted: Sieve | None = None) -> Batch:
    def failed(error: KafkaError, message: Any) -> None:
        raise LookupError(error.code())

    batch = Batch(mine, failed)
    batch.take(messages, wanted, CODEC)
    return batch


def end(offset: int, at: tuple[str, int]) -> Message:
    return Message(offset, at, error=KafkaError._PARTITION_EOF)


def test_a_record_has_what_its_message_has() -> None:
    message = Message(5, value=CODEC.encode(EVENT), headers=[("a", b"1"), ("a", b"2")])
    record = to_record(message, CODEC)
    assert (record.topic, record.partition, record.offset) == ("t", 0, 5)
    assert (record.key, record.timestamp_ms) == ("k\N{REPLACEMENT CHARACTER}", 77)
    assert record.headers == [("a", b"1"), ("a", b"2")]
    assert record.header("a") == b"1"
    assert record.envelope == EVENT
    assert message.asked == 1


def test_a_record_without_headers_and_value_is_one_that_cannot_be_read() -> None:
    record = to_record(Message(5, value=None), CODEC)
    assert (record.headers, record.value) == ([], b"")
    with pytest.raises(CorruptRecordError):
        _ = record.envelope


def test_runs_of_partitions_lead_each_as_far_as_its_last_message() -> None:
    a, b = ("t", 0), ("t", 1)
    messages = [Message(3, a), Message(4, a), Message(9, b), Message(7, a), Message(11, b)]
    batch = sorted_batch(messages, {a, b})
    assert [(r.partition, r.offset) for r in batch.records] == [(0, 3), (0, 4), (1, 9), (0, 7), (1, 11)]
    assert batch.read == {a: 8, b: 12}


def test_the_same_partition_of_another_topic_is_another_one() -> None:
    a, b = ("t", 0), ("u", 0)
    batch = sorted_batch([Message(3, a), Message(5, b)], {a, b})
    assert [(r.topic, r.offset) for r in batch.records] == [("t", 3), ("u", 5)]
    assert batch.read == {a: 4, b: 6}


def test_what_was_read_ahead_of_partitions_that_have_gone_is_left_out() -> None:
    mine, gone = ("t", 0), ("t", 1)
    messages = [Message(1, gone), Message(3, mine), Message(2, gone), end(3, gone)]
    batch = sorted_batch(messages, {mine})
    assert [(r.partition, r.offset) for r in batch.records] == [(0, 3)]
    assert batch.read == {mine: 4}


def test_the_end_of_a_partition_leads_past_what_nobody_is_told_of() -> None:
    at = ("t", 0)
    batch = sorted_batch([Message(3, at), end(9, at)], {at})
    assert batch.read == {at: 9}
    assert sorted_batch([end(9, at), Message(9, at)], {at}).read == {at: 10}


def test_other_errors_are_told() -> None:
    with pytest.raises(LookupError):
        sorted_batch([Message(0, error=KafkaError.OFFSET_OUT_OF_RANGE)], {("t", 0)})


def test_types_are_told_by_what_values_begin_with() -> None:
    other = EVENT.replace(event_type="demo.other")
    known = open_catalogue()
    known.register_schema("demo.other", "1.0.0", {})
    codec = EnvelopeCodec(known)
    messages = [Message(n, value=codec.encode(event)) for n, event in enumerate([EVENT, other] * 3)]
    wanted = sieve(WANTED, codec)
    batch = sorted_batch(messages, {("t", 0)}, wanted)
    assert [record.offset for record in batch.records] == [0, 2, 4]
    assert batch.read == {("t", 0): 6}
    assert not any(message.asked for message in messages)


def two_kinds() -> list[bytes]:
    """An event that is wanted, and one that is not."""
    other = EVENT.replace(event_type="demo.other")
    known = open_catalogue()
    known.register_schema("demo.other", "1.0.0", {})
    return [EnvelopeCodec(known).encode(event) for event in (EVENT, other)]


A, B, GONE = ("t", 0), ("t", 1), ("t", 2)
YES, NO = two_kinds()
USUAL = [
    Message(3, A, YES),
    Message(9, B, NO),
    Message(4, A, NO),
    Message(1, GONE, YES),
    Message(10, B, YES),
    Message(11, B, NO),
]


@pytest.mark.parametrize(
    ("more", "kept", "read"),
    [
        ([], [(0, 3), (1, 10)], {A: 5, B: 12}),
        ([Message(5, A, None, [(CE_TYPE, b"demo.other")])], [(0, 3), (1, 10)], {A: 6, B: 12}),
        ([Message(5, A, b"?")], [(0, 3), (1, 10), (0, 5)], {A: 6, B: 12}),
        ([Message(5, A, YES[:17])], [(0, 3), (1, 10), (0, 5)], {A: 6, B: 12}),
        ([end(14, B)], [(0, 3), (1, 10)], {A: 5, B: 14}),
        ([Message(7, ("u", 0), YES)], [(0, 3), (1, 10), (0, 7)], {A: 5, B: 12, ("u", 0): 8}),
        ([Message(7, ("u", 1), NO)], [(0, 3), (1, 10)], {A: 5, B: 12}),
    ],
)
def test_messages_of_known_types_are_told_apart_at_once_as_they_are_one_by_one(
    more: list[Message], kept: list[tuple[int, int]], read: dict[tuple[str, int], int]
) -> None:
    wanted = sieve(WANTED, CODEC)
    for _ in range(2):  # of which the first knows no types yet
        batch = sorted_batch([*USUAL, *more], {A, B, ("u", 0)}, wanted)
        assert [(record.partition, record.offset) for record in batch.records] == kept
        assert batch.read == read


def test_no_messages_lead_nowhere() -> None:
    batch = sorted_batch([], {A}, sieve(WANTED, CODEC))
    assert (batch.records, batch.read) == ([], {})


def test_a_batch_forgets_what_it_has_of_partitions_that_go() -> None:
    batch = sorted_batch(USUAL, {A, B})
    batch.forget([B, GONE])
    assert [(record.partition, record.offset) for record in batch.records] == [(0, 3), (0, 4)]
    assert batch.read == {A: 5}


@pytest.mark.parametrize(
    ("value", "headers", "kept"),
    [
        (b"?", [("x", b""), (CE_TYPE, b"demo.anything")], True),
        (b"?", [("x", b""), (CE_TYPE, b"demo.other")], False),
        (b"?", None, True),  # it cannot be read: that has to be heard of
        (None, [], True),
        (CODEC.encode(EVENT)[:17], [], True),
        (CODEC.encode(EVENT)[:24], [(CE_TYPE, b"demo.other")], False),
        (CODEC.encode(EVENT), [(CE_TYPE, b"demo.other")], True),
    ],
)
def test_where_a_value_does_not_tell_its_type_the_header_does(
    value: bytes | None, headers: list[tuple[str, bytes]] | None, kept: bool
) -> None:
    wanted = Sieve(WANTED, CODEC)
    for _ in range(2):
        wanted.keeps(Message(0), CODEC.encode(EVENT))  # what is remembered misleads nobody
        assert wanted.keeps(Message(0, value=value, headers=headers), value or b"") is kept


def test_many_types_are_not_remembered_for_ever() -> None:
    wanted = Sieve(TypeFilter(["demo."]), CODEC)
    sound = CODEC.encode(EVENT)
    for number in range(5_000):
        value = sound.replace(b"demo.anything", b"demo.x%07d" % number)
        assert wanted.keeps(Message(0), value)
    assert len(wanted._answers) <= 4096
