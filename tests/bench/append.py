"""Appending to Kafka: from `EventEnvelope`s to acknowledged ones, beside a producer written by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.bench.by_hand.bare import produce_bare, ready
from tests.bench.by_hand.produce import produce, producer
from tests.bench.events import DOMAIN, envelopes
from tests.bench.harness import Figure, Side, interleave, progress
from tests.bench.place import kafka_log
from tests.bench.settings import Settings
from tests.support.kafka import KafkaServer

OURS, BY_HAND, BARE = "EventLog.append", "by hand: fastavro, json", "bare: ready bytes"


async def measure(settings: Settings, kafka: KafkaServer) -> list[Figure]:
    """Both figures of appending, three sides in turn."""
    count, size = settings.events, settings.batch
    progress(f"append: {count:,} events in transactions of {size:,}")
    events = envelopes(count)
    async with kafka_log(kafka) as log:
        ours, by_hand, bare = (log.topology.events(name) for name in (DOMAIN, "byhand", "bare"))
        specs = [log.topology.spec(topic) for topic in (ours, by_hand, bare)]
        await log.ensure_topics(specs)
        prebuilt = ready(events, specs[0].partitions)
        hand_producer = producer(kafka.bootstrap, f"{by_hand}.producer")
        bare_producer = producer(kafka.bootstrap, f"{bare}.producer")

        async def run_ours() -> float:
            began = time.perf_counter()
            for start in range(0, count, size):
                await log.append(events[start : start + size])
            return count / (time.perf_counter() - began)

        async def run_by_hand() -> float:
            return _rate(events, size, lambda batch: produce(hand_producer, by_hand, batch))

        async def run_bare() -> float:
            return _rate(prebuilt, size, lambda batch: produce_bare(bare_producer, bare, batch))

        # Connections, metadata and the first transaction of each side are nobody's figure.
        await log.append(events[:size])
        produce(hand_producer, by_hand, events[:size])
        produce_bare(bare_producer, bare, prebuilt[:size])
        values = await interleave(
            {OURS: run_ours, BY_HAND: run_by_hand, BARE: run_bare}, settings.repetitions
        )
        return _figures(values, size, sum(len(record.value) for record in prebuilt) / count)


def _figures(values: dict[str, list[float]], size: int, mean_bytes: float) -> list[Figure]:
    ours = Side(OURS, values[OURS])
    note = (
        f"Envelopes of {mean_bytes:.0f} bytes; all sides: transactions of {size:,}, acks all, idempotence, "
        "lz4, linger 5 ms, 6 headers; ours alone validates payloads and returns positions."
    )
    name = "from EventEnvelope to acknowledged"
    return [
        Figure("append", name, "events/s", ours, Side(BY_HAND, values[BY_HAND]), 1.5, note=note),
        Figure("append", name, "events/s", ours, Side(BARE, values[BARE]), 0.25),
    ]


def _rate(items: Sequence[Any], size: int, send: Callable[[Any], None]) -> float:
    began = time.perf_counter()
    for start in range(0, len(items), size):
        send(items[start : start + size])
    return len(items) / (time.perf_counter() - began)
