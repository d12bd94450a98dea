"""Records made from librdkafka's messages, and the filter that selects them.

Decision record: a reader gets a million messages, a fold needs few parts of each. Making a record of all
parts took 1 µs, and judging an unwanted one 0.9 µs, as much as the client takes to deliver it. So a record
extracts everything but its position and value from the message on first access. A type is judged once, by the
bytes that a value begins with. Positions are looked up once per run of messages of one partition. Behind a
filter, messages are judged all at once if the types of all of them were seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError

from noesium_stream.event.codec.codec import TYPE_AT, peek_type
from noesium_stream.log.headers import CE_TYPE, TypeFilter
from noesium_stream.log.record import Decoder, Record, is_wanted

Message = Any
"""A message of librdkafka; its stub says that all of it may be None, which is true for errors only."""

EOF: Final = KafkaError._PARTITION_EOF
_REMEMBERED: Final = 4096


class MessageRecord(Record):
    """A record around a message; key, time and headers are extracted on first access."""

    __slots__ = ("_message",)

    def __init__(
        self, message: Message, topic: str, partition: int, offset: int, value: bytes, decoder: Decoder
    ) -> None:
        self._message = message
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.value = value
        self._headers = None
        self._decoder = decoder
        self._envelope = None

    @property
    def key(self) -> str:  # type: ignore[override]
        """The record's key."""
        key: bytes | None = self._message.key()
        return "" if key is None else key.decode(errors="replace")

    @property
    def timestamp_ms(self) -> int:  # type: ignore[override]
        """The time at which the broker appended it."""
        timestamp_ms: int = self._message.timestamp()[1]
        return timestamp_ms

    @property
    def raw_headers(self) -> list[tuple[str, bytes]]:
        """See `Record.raw_headers`."""
        if self._headers is None:
            self._headers = self._message.headers() or []
        headers: list[tuple[str, bytes]] = self._headers
        return headers


def to_record(message: Message, decoder: Decoder) -> Record:
    """A record around a message."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    return MessageRecord(message, topic, partition, offset, message.value() or b"", decoder)


class Sieve:
    """Judges messages by the type at the start of their value, else by the header, else decoded.

    The client makes objects of all headers if one is read: the value's first bytes cost a tenth.
    """

    def __init__(self, keep: TypeFilter, decoder: Decoder) -> None:
        self._keep = keep
        self._decoder = decoder
        self._answers: dict[bytes, bool] = {}

    def keeps(self, message: Message, value: bytes) -> bool:
        """Whether a message with this value is wanted."""
        try:
            # Values that begin alike up to the end of their type, whose length stands before it.
            return self._answers[value[: TYPE_AT + (value[TYPE_AT - 1] >> 1)]]
        except (KeyError, IndexError):
            return self._judge(message, value)

    def among(self, values: Sequence[bytes]) -> list[int] | None:
        """The indices of wanted values; None if one of them begins in a way that was not seen before."""
        answers = self._answers
        try:
            return [
                index
                for index, value in enumerate(values)
                if answers[value[: TYPE_AT + (value[TYPE_AT - 1] >> 1)]]
            ]
        except (KeyError, IndexError, TypeError):
            return None

    def _judge(self, message: Message, value: bytes) -> bool:
        event_type = peek_type(value)
        if event_type is not None:
            answer = self._keep.keeps(event_type)
            if len(self._answers) < _REMEMBERED:
                self._answers[value[: TYPE_AT + len(event_type)]] = answer
            return answer
        for name, header in message.headers() or ():
            if name == CE_TYPE:
                return self._keep.keeps(header)
        return is_wanted(to_record(message, self._decoder), self._keep)


def sieve(keep: TypeFilter | None, decoder: Decoder) -> Sieve | None:
    """The `Sieve` for a filter; None if all messages are wanted."""
    return None if keep is None else Sieve(keep, decoder)


class Batch:
    """Records of messages that came together, and the next offset of each partition.

    Args:
        mine: the partitions, as (topic, partition), whose messages count; other messages were prefetched for
            partitions that were revoked.
        failed: called with errors other than the end of a partition; may raise.

    Attributes:
        records: the records of wanted messages.
        read: the next offset by (topic, partition).
        full: whether more messages are likely to be available.
        passed: partitions in which something that cannot be read was passed over.
    """

    def __init__(
        self, mine: Container[tuple[str, int]], failed: Callable[[KafkaError, Message], None]
    ) -> None:
        self.records: list[Record] = []
        self.read: dict[tuple[str, int], int] = {}
        self.full = False
        self.passed: set[tuple[str, int]] = set()
        self._mine = mine
        self._failed = failed

    def take(self, messages: Sequence[Message], wanted: Sieve | None, decoder: Decoder) -> None:
        """Add messages; those of one partition come in runs, which costs less than looking at each."""
        if wanted is not None and self._sift(messages, wanted, decoder):
            return
        topic, partition, offset, place = "", -1, 0, None
        for message in messages:
            if message.error() is not None:
                self._note(place, offset)
                place, partition = None, -1
                self._hear(message)
                continue
            if message.partition() != partition or message.topic() != topic:
                self._note(place, offset)
                topic, partition = at = message.topic(), message.partition()
                place = at if at in self._mine else None
            if place is not None:
                offset = message.offset()
                value = message.value() or b""
                if wanted is None or wanted.keeps(message, value):
                    self.records.append(MessageRecord(message, topic, partition, offset, value, decoder))
        self._note(place, offset)

    def forget(self, gone: Collection[tuple[str, int]]) -> None:
        """Remove the records of these partitions."""
        self.records = [r for r in self.records if (r.topic, r.partition) not in gone]
        for place in gone:
            self.read.pop(place, None)

    def _sift(self, messages: Sequence[Message], wanted: Sieve, decoder: Decoder) -> bool:
        """Add messages of one topic if all are of known kinds; return False, and add none, otherwise."""
        count = len(messages)
        topics = [message.topic() for message in messages]
        if not count or topics.count(topics[0]) < count:
            return False
        if [True for message in messages if message.error() is not None]:
            return False
        kept = wanted.among([message.value() for message in messages])
        if kept is None:
            return False
        topic, mine = topics[0], self._mine
        partitions = [message.partition() for message in messages]
        for index in kept:
            message, partition = messages[index], partitions[index]
            if (topic, partition) in mine:
                self.records.append(
                    MessageRecord(message, topic, partition, message.offset(), message.value(), decoder)
                )
        partitions.reverse()
        for partition in set(partitions):
            last = messages[count - 1 - partitions.index(partition)]
            self._note((topic, partition) if (topic, partition) in mine else None, last.offset())
        return True

    def _note(self, place: tuple[str, int] | None, offset: int) -> None:
        if place is not None:
            self.read[place] = offset + 1

    def _hear(self, message: Message) -> None:
        error = message.error()
        if error.code() != EOF:
            self._failed(error, message)
            return
        at = message.topic(), message.partition()
        if at in self._mine:
            # The end's offset is past markers and aborted records, which are not delivered.
            self.read[at] = message.offset()
