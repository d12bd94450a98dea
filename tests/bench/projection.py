"""Folding from Kafka: counts, sums and a filter, beside Quix Streams over the same topic."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA
from tests.bench.by_hand.bare import ready
from tests.bench.events import DOMAIN, KINDS, envelopes
from tests.bench.harness import Figure, Run, Side, interleave, progress
from tests.bench.place import kafka_log
from tests.bench.projection_place import BenchTopic, child, quix, quix_python
from tests.bench.projection_settings import ProjectionSettings
from tests.support.kafka import KafkaServer, remove_topics

COUNT, SUM = "AttachedProjection, headers", "AttachedProjection, decoded"
FILTERED, FILTERED_COUNT = f"{SUM}, 1 type of {KINDS}", f"{COUNT}, 1 type of {KINDS}"
QUIX_COUNT, QUIX_SUM = "Quix Streams 3.28, bytes", "Quix Streams 3.28, decoded"
FOLDS = {COUNT: "count", SUM: "sum", FILTERED: "sum-of-one-kind", FILTERED_COUNT: "count-of-one-kind"}

Once = Callable[[Path], Awaitable[dict[str, Any]]]
"""Folds the topic in a process of its own, with an empty folder."""


async def measure_fold(settings: ProjectionSettings, kafka: KafkaServer) -> list[Figure]:
    """The figures of folding, six sides in turn."""
    count = settings.events
    progress(f"fold: {count:,} events")
    python = await quix_python()
    async with kafka_log(kafka) as log:
        topic = BenchTopic(kafka, log, log.topology.events(DOMAIN))
        await topic.make()
        records = ready(envelopes(count), log.topology.spec(topic.name).partitions)
        await topic.fill(records, settings.batch)
        size = sum(len(record.value) for record in records) / count
        del records
        found: dict[str, list[dict[str, Any]]] = {}
        once: dict[str, Once] = {name: partial(_ours, topic, fold) for name, fold in FOLDS.items()}
        group = f"{log.topology.namespace}-quix"
        for name, fold in ((QUIX_COUNT, "count"), (QUIX_SUM, "sum")):
            once[name] = partial(_quix, python, topic, fold, group, count)
        order = (COUNT, QUIX_COUNT, SUM, QUIX_SUM, FILTERED, FILTERED_COUNT)
        sides: dict[str, Run] = {
            name: partial(_rate, once[name], found.setdefault(name, []), settings.folder, count)
            for name in order
        }
        try:
            for name in (*order, *order):  # a broker that has just started is slow, and nobody's figure
                await once[name](settings.folder / secrets.token_hex(4))
            values = await interleave(sides, settings.repetitions)
        finally:
            await asyncio.to_thread(remove_topics, kafka.bootstrap, group)
    _check(found, count)
    later = {name: [count / one["from_first"] for one in found[name]] for name in order}
    return _figures(values, later, size)


async def _rate(once: Once, found: list[dict[str, Any]], folder: Path, count: int) -> float:
    one = await once(folder / secrets.token_hex(4))
    found.append(one)
    return float(count / one["seconds"])


async def _ours(topic: BenchTopic, fold: str, folder: Path) -> dict[str, Any]:
    return await child("follow", {**topic.asked(), "fold": fold, "folder": str(folder), "total": True})


async def _quix(
    python: Path, topic: BenchTopic, fold: str, group: str, count: int, folder: Path
) -> dict[str, Any]:
    asked = {
        **topic.asked(),
        "fold": fold,
        "group": f"{group}-{folder.name}",
        "folder": str(folder),
        "count": count,
        "schema": ENVELOPE_SCHEMA,
    }
    return await quix(python, asked)


def _check(found: dict[str, list[dict[str, Any]]], count: int) -> None:
    """Whether all sides have computed the same."""
    counts = {one["total"] for name in (COUNT, QUIX_COUNT) for one in found[name]}
    sums = {one["total"] for name in (SUM, QUIX_SUM) for one in found[name]}
    assert counts == {count}, counts
    assert len(sums) == 1, sums
    kept = {one["total"] for one in found[FILTERED_COUNT]}
    assert kept == {-(-count // KINDS)}, kept


def _figures(values: dict[str, list[float]], later: dict[str, list[float]], size: float) -> list[Figure]:
    sides = {name: Side(name, rates) for name, rates in values.items()}
    flowing = {name: Side(f"{name}, flowing", rates) for name, rates in later.items()}
    unit = "events/s"
    count_note = (
        f"Envelopes of {size:.0f} bytes, 1,000 keys, 8 partitions. From joining the group to all folded and "
        "committed, processes and connections being up; flowing: from the first event (Quix), from the "
        "assignment (ours). Quix: RocksDB, changelog, exactly-once, its own commit interval, no output topic."
    )
    sum_note = (
        "Ours validates envelope and payload; Quix is given fastavro with the parsed schema, and orjson, and "
        "validates nothing."
    )
    kept = f"Rate: events of the topic, of which 1 of {KINDS} is folded."
    return [
        Figure("fold", "keyed count, durable", unit, sides[COUNT], sides[QUIX_COUNT], 3.0, note=count_note),
        Figure("fold", "keyed count, durable", unit, flowing[COUNT], flowing[QUIX_COUNT]),
        Figure("fold", "keyed sum of a payload field", unit, sides[SUM], sides[QUIX_SUM], 2.5, note=sum_note),
        Figure("fold", "keyed sum of a payload field", unit, flowing[SUM], flowing[QUIX_SUM]),
        Figure(
            "fold", f"a filter that keeps 1 of {KINDS}", unit, sides[FILTERED], sides[SUM], 3.0, note=kept
        ),
        Figure("fold", f"a filter that keeps 1 of {KINDS}", unit, flowing[FILTERED], flowing[SUM]),
        Figure("fold", f"a filter that keeps 1 of {KINDS}", unit, sides[FILTERED_COUNT], sides[COUNT]),
    ]
