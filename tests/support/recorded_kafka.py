"""Records of Kafka's topics from a file, written to a broker again at the offsets that they had.

The file (`tests/data/earlier_log/generate.py` writes it) is JSON lines, compressed with zstandard: for each
topic its name, its id and the ends of its partitions, and then its committed records. Journals name offsets
of inboxes, and ids of topics; so offsets are kept, and where a transaction's marker lay there is one again.
Topics' ids are replaced by those of the new topics, which are as long. Names stay: keys are made of them, and
keys choose partitions; so one broker can have the records of a file once.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import zstandard
from confluent_kafka import Producer

from noesium_stream.log import EventLog
from tests.support.reading import PATIENCE_S

_MOST_BYTES = 1 << 28


class RecordedMessage(NamedTuple):
    """A committed record."""

    partition: int
    offset: int
    key: str
    headers: list[tuple[str, str | bytes | None]]
    value: bytes


@dataclass
class RecordedTopic:
    """A topic as it was: `ends` are the next offsets of its partitions, behind the last marker."""

    name: str
    topic_id: str
    ends: list[int]
    messages: list[RecordedMessage] = field(default_factory=list)


def read_recorded(path: Path) -> list[RecordedTopic]:
    """The topics of a file."""
    data = zstandard.ZstdDecompressor().decompress(path.read_bytes(), max_output_size=_MOST_BYTES)
    topics: list[RecordedTopic] = []
    for line in data.decode().splitlines():
        found: Any = json.loads(line)
        if isinstance(found, dict):
            topics.append(RecordedTopic(found["topic"], found["id"], found["ends"]))
            continue
        partition, offset, _, key, headers, value = found
        topics[-1].messages.append(
            RecordedMessage(
                partition, offset, key, [(name, b64decode(text)) for name, text in headers], b64decode(value)
            )
        )
    return topics


async def write_again(topics: Sequence[RecordedTopic], log: EventLog, bootstrap: str) -> None:
    """Make the topics, which are not there, and write their records at their offsets.

    The log is one of the recorded namespace on the broker at `bootstrap`.
    """
    await log.ensure_topics(
        [replace(log.topology.spec(topic.name), partitions=len(topic.ends)) for topic in topics]
    )
    ids = {topic.topic_id.encode(): (await log.topic_id(topic.name)).encode() for topic in topics}
    await asyncio.to_thread(_write, topics, ids, bootstrap)
    for topic in topics:
        assert list((await log.end(topic.name)).values()) == topic.ends, topic.name


def _write(topics: Sequence[RecordedTopic], ids: Mapping[bytes, bytes], bootstrap: str) -> None:
    wrong: list[str] = []

    def produce(producer: Producer, topic: str, message: RecordedMessage) -> None:
        def told(error: Any, delivered: Any) -> None:
            if error is not None or delivered.offset() != message.offset:
                wrong.append(f"{topic}/{message.partition}@{message.offset}: {error or delivered.offset()}")

        producer.produce(
            topic,
            _with_ids(message.value, ids),
            message.key,
            message.partition,
            headers=message.headers,
            on_delivery=told,
        )

    parts = [
        (topic.name, *_in_transactions([m for m in topic.messages if m.partition == number], end))
        for topic in topics
        for number, end in enumerate(topic.ends)
    ]
    writer = {"bootstrap.servers": bootstrap, "transactional.id": f"again.{topics[0].name}"}
    producer = Producer(writer)
    producer.init_transactions(PATIENCE_S)
    for together in zip_longest(*(batches for _, batches, _ in parts)):
        producer.begin_transaction()
        for (name, _, _), batch in zip(parts, together, strict=True):
            for message in batch or ():
                produce(producer, name, message)
        producer.commit_transaction(PATIENCE_S)
    Producer(writer).init_transactions(PATIENCE_S)  # returns when all markers are written
    plain = Producer({"bootstrap.servers": bootstrap})
    for name, _, rest in parts:
        for message in rest:
            produce(plain, name, message)
    assert plain.flush(PATIENCE_S) == 0
    assert wrong == []


def _in_transactions(
    messages: Sequence[RecordedMessage], end: int
) -> tuple[list[list[RecordedMessage]], list[RecordedMessage]]:
    """The records up to each marker, and those behind the last one."""
    batches: list[list[RecordedMessage]] = [[]]
    for message, following in pairwise([*_offsets(messages), (None, end)]):
        assert message[0] is not None
        batches[-1].append(message[0])
        gap = following[1] - message[1] - 1
        assert gap in (0, 1), message
        if gap:
            batches.append([])
    return batches[:-1], batches[-1]


def _offsets(messages: Sequence[RecordedMessage]) -> Iterator[tuple[RecordedMessage | None, int]]:
    for message in messages:
        yield message, message.offset


def _with_ids(value: bytes, ids: Mapping[bytes, bytes]) -> bytes:
    for old, new in ids.items():
        assert len(old) == len(new)
        value = value.replace(old, new)
    return value
