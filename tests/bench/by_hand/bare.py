"""By hand: what is ready already to Kafka; the ceiling of every Python program with librdkafka.

Why it is fair: bytes, headers, keys and partitions are made before the clock starts; the producer, its
settings and the size of a transaction are those of `produce.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Producer

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.topics import partition_of
from tests.bench.by_hand.produce import encode, headers


class Ready(NamedTuple):
    """A record that only has to be sent."""

    key: str
    partition: int
    headers: list[tuple[str, bytes]]
    value: bytes


def ready(events: Sequence[EventEnvelope], partitions: int) -> list[Ready]:
    """All that `produce_bare` needs."""
    return [
        Ready(key := event.partition_key or "", partition_of(key, partitions), headers(event), encode(event))
        for event in events
    ]


def produce_bare(producer: Producer, topic: str, batch: Sequence[Ready]) -> None:
    """One transaction."""
    producer.begin_transaction()
    for key, partition, record_headers, value in batch:
        producer.produce(topic, value, key, partition, headers=record_headers)
    producer.commit_transaction(30)
