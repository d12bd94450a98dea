"""By hand: from Kafka to decoded envelopes and payloads, with confluent-kafka, fastavro and `json`.

Why it is fair: the schema is parsed once; committed records alone, the same fetch settings as ours, batches
of 500 taken without waiting for full ones; envelope, payload and metadata are decoded, nothing else. It does
less: a dict instead of an envelope, neither envelope nor payload is validated, no headers, no positions, no
gaps or truncation noticed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from tests.bench.by_hand.produce import FRAME, SCHEMA


def consume(bootstrap: str, topic: str, count: int) -> Iterator[dict[str, Any]]:
    """The first `count` events of a topic, decoded."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "by-hand",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 16_384,
        }
    )
    # Asking for the partitions also spares half a second: librdkafka waits that long for unknown leaders.
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    left = count
    while left > 0:
        first = consumer.poll(1.0)
        for message in [first, *consumer.consume(499, 0)] if first is not None else []:
            if message.error():
                raise KafkaException(message.error())
            left -= 1
            yield decode(message.value())
    consumer.close()


def decode(value: bytes) -> dict[str, Any]:
    """Envelope, payload and metadata."""
    if value[:10] != FRAME:
        raise ValueError(f"unknown schema {value[:10].hex()}")
    event: Any = fastavro.schemaless_reader(io.BytesIO(value[10:]), SCHEMA, None)
    event["payload"] = json.loads(event["payload"])
    event["metadata"] = json.loads(event["metadata"])
    return event  # type: ignore[no-any-return]


def tail(bootstrap: str, topic: str, count: int, each: Callable[[], None]) -> None:
    """`each` after every decoded event, as they come."""
    for _ in consume(bootstrap, topic, count):
        each()
