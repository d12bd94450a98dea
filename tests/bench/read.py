"""Reading from Kafka: envelopes, records left undecoded, and a filter, beside a consumer by hand."""

from __future__ import annotations

import time

from noesium_stream.log.port import EventLog, Types
from tests.bench.by_hand.bare import produce_bare, ready
from tests.bench.by_hand.consume import consume
from tests.bench.by_hand.produce import producer
from tests.bench.events import DOMAIN, KINDS, ONE_KIND, envelopes
from tests.bench.harness import Figure, Side, interleave, progress
from tests.bench.place import kafka_log
from tests.bench.settings import Settings
from tests.support.kafka import KafkaServer

ENVELOPES, RECORDS = "EventLog.read, .envelope", "EventLog.read, undecoded"
FILTERED = "EventLog.read, 1 type of 10"
BY_HAND = "by hand: fastavro, json"


async def measure(settings: Settings, kafka: KafkaServer) -> list[Figure]:
    """The three figures of reading, four sides in turn, over one topic."""
    count = settings.events
    progress(f"read: {count:,} events")
    async with kafka_log(kafka) as log:
        topic = log.topology.events(DOMAIN)
        spec = log.topology.spec(topic)
        await log.ensure_topics([spec])
        records = ready(envelopes(count), spec.partitions)
        filler = producer(kafka.bootstrap, f"{topic}.producer")
        for start in range(0, count, settings.batch):
            produce_bare(filler, topic, records[start : start + settings.batch])
        del records, filler

        async def run_envelopes() -> float:
            return await _rate(log, topic, count, count, decode=True)

        async def run_records() -> float:
            return await _rate(log, topic, count, count, decode=False)

        async def run_filtered() -> float:
            return await _rate(log, topic, count, -(-(count - 3) // KINDS), decode=True, types=(ONE_KIND,))

        async def run_by_hand() -> float:
            began = time.perf_counter()
            found = sum(event["event_id"] is not None for event in consume(kafka.bootstrap, topic, count))
            assert found == count
            return count / (time.perf_counter() - began)

        sides = {ENVELOPES: run_envelopes, BY_HAND: run_by_hand, RECORDS: run_records, FILTERED: run_filtered}
        return _figures(await interleave(sides, settings.repetitions))


def _figures(values: dict[str, list[float]]) -> list[Figure]:
    sides = {name: Side(name, found) for name, found in values.items()}
    note = (
        "All sides: from opening the reader to the last event, read_committed, the same fetch settings; ours "
        "validates envelope and payload, the other decodes both into dicts."
    )
    every = "events passed over and the kept ones decoded, against decoding all"
    return [
        Figure(
            "read", "to validated envelopes", "events/s", sides[ENVELOPES], sides[BY_HAND], 1.3, note=note
        ),
        Figure(
            "read", "records not asked for their envelope", "events/s", sides[RECORDS], sides[BY_HAND], 4.0
        ),
        Figure(
            "read",
            f"a type filter that keeps 1 of {KINDS}",
            "events/s",
            sides[FILTERED],
            sides[ENVELOPES],
            3.0,
            note=f"Rate: {every}.",
        ),
    ]


async def _rate(
    log: EventLog, topic: str, count: int, expected: int, *, decode: bool, types: Types = None
) -> float:
    """Events of the topic per second, of which `expected` are yielded."""
    began = time.perf_counter()
    found = 0
    async for record in log.read(topic, {}, until=await log.end(topic), types=types):
        if decode:
            record.envelope  # noqa: B018 - decodes and validates
        found += 1
    assert found == expected, f"{found} of {expected} events"
    return count / (time.perf_counter() - began)
