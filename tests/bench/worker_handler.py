"""A plain handler: consume, handle, produce, exactly once; beside a loop by hand and beside Quix Streams."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA
from tests.bench.by_hand.bare import ready
from tests.bench.by_hand.produce import FRAME
from tests.bench.events import DOMAIN, envelopes
from tests.bench.harness import Figure, Run, Side, interleave, progress
from tests.bench.place import kafka_log
from tests.bench.projection_place import BenchTopic, quix, quix_python, run_alone
from tests.bench.worker_agents import HANDLED
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer, remove_topics

OURS, BY_HAND, QUIX = "a handler of ours", "by hand: fastavro, json", "Quix Streams 3.28"
FILLED = 2_000
Once = Callable[[str, Path], Awaitable[dict[str, Any]]]
"""Handles the topic in a process of its own, under a name of its own, with an empty folder."""


async def measure_handler(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Events per second, three sides in turn; each makes one event of each."""
    count = settings.events
    progress(f"handler: {count:,} events")
    python = await quix_python()
    async with kafka_log(kafka) as log:
        topic = BenchTopic(kafka, log, log.topology.events(DOMAIN))
        await topic.make()
        out = log.topology.events(HANDLED)
        others = {name: log.topology.events(f"{HANDLED}-{name}") for name in ("by-hand", "quix")}
        await log.ensure_topics([log.topology.spec(name) for name in (out, *others.values())])
        await topic.fill(ready(envelopes(count), log.topology.spec(topic.name).partitions), FILLED)
        group = f"{log.topology.namespace}-bench"
        asked = {**topic.asked(), "url": log.url, "count": count}
        once: dict[str, Once] = {
            OURS: partial(_ours, asked),
            QUIX: partial(_quix, python, {**asked, "out": others["quix"], "group": f"{group}-quix"}),
        }
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in (OURS, BY_HAND, QUIX)}
        try:
            warm = await once[OURS]("warm", settings.folder / "warm")
            # By hand: a transaction for each batch of the size of ours.
            size = max(1, round(count / warm["commits"]))
            hand = {**asked, "out": others["by-hand"], "group": f"{group}-hand", "size": size}
            once[BY_HAND] = partial(_by_hand, hand)
            for name in (BY_HAND, QUIX):
                await once[name]("warm", settings.folder / f"warm-{name[:4]}")
            sides: dict[str, Run] = {
                name: partial(_rate, once[name], found[name], settings.folder, count)
                for name in (OURS, BY_HAND, QUIX)
            }
            values = await interleave(sides, settings.repetitions)
            written = await asyncio.to_thread(_records_of, kafka.bootstrap, out)
        finally:
            await asyncio.to_thread(remove_topics, kafka.bootstrap, f"{group}-quix")
    totals = {one["total"] for side in found.values() for one in side}
    assert len(totals) == 1, totals
    assert written == count * (settings.repetitions + 1), written
    return _figures(values, found, count)


async def _rate(once: Once, found: list[dict[str, Any]], folder: Path, count: int) -> float:
    name = secrets.token_hex(4)
    one = await once(name, folder / name)
    found.append(one)
    return float(count / one["from_first"])


async def _ours(asked: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    given = json.dumps({**asked, "name": f"summing-{name}", "home": str(folder)})
    return await run_alone([sys.executable, "-m", "tests.bench.worker_child", "handler", given])


async def _by_hand(asked: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    given = json.dumps({**asked, "group": f"{asked['group']}-{name}"})
    return await run_alone([sys.executable, "-m", "tests.bench.by_hand.handle", given])


async def _quix(python: Path, asked: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    group = f"{asked['group']}-{name}"
    given = {**asked, "group": group, "folder": str(folder), "schema": ENVELOPE_SCHEMA, "frame": FRAME.hex()}
    return await quix(python, given, "worker_quix.py")


def _records_of(bootstrap: str, topic: str) -> int:
    """How many committed records a topic has."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-count",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found, ended = 0, set()
    while len(ended) < len(partitions):
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                found += 1
            else:
                ended.add(message.partition())
    consumer.close()
    return found


def _figures(
    values: dict[str, list[float]], found: dict[str, list[dict[str, Any]]], count: int
) -> list[Figure]:
    sides = {name: Side(name, rates) for name, rates in values.items()}
    whole = {name: Side(f"{name}, whole", [count / one["seconds"] for one in found[name]]) for name in found}
    sizes = {
        name: count * len(found[name]) / sum(one["commits"] for one in found[name])
        for name in (OURS, BY_HAND)
    }
    name, unit = "consume, handle, produce, exactly once", "events/s"
    note = (
        f"Envelopes of 450 bytes, 1,000 keys, 8 partitions, one event made of each, from the first one to "
        f"the last commit. Events of a transaction: {sizes[OURS]:,.0f}, by hand {sizes[BY_HAND]:,.0f}; "
        "Quix commits every 5 s. By hand: sums in a dict that is lost. Whole: from joining the group."
    )
    return [
        Figure("handler", name, unit, sides[OURS], sides[BY_HAND], 1.2, note=note),
        Figure("handler", name, unit, sides[OURS], sides[QUIX], 2.0),
        Figure("handler", name, unit, whole[OURS], whole[BY_HAND]),
        Figure("handler", name, unit, whole[OURS], whole[QUIX]),
    ]
