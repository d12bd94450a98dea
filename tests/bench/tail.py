"""The memory of a tail of Kafka: flat over a million events, beside a consumer by hand.

python -m tests.bench.tail ours|by-hand BOOTSTRAP NAMESPACE COUNT     the reader; prints its memory
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Sequence
from pathlib import Path

from noesium_stream.log.open import open_log
from noesium_stream.log.topics import Topology
from tests.bench.by_hand.bare import Ready, produce_bare, ready
from tests.bench.by_hand.consume import tail
from tests.bench.by_hand.produce import producer
from tests.bench.events import DOMAIN, catalogue, envelopes
from tests.bench.harness import Figure, Side, progress
from tests.bench.place import kafka_log
from tests.bench.settings import Settings
from tests.support.kafka import KafkaServer

OURS, BY_HAND = "EventLog.read, tailing", "by hand: confluent-kafka"
SAMPLES = 100
_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 900.0
_PREPARED = 50_000


async def measure(settings: Settings, kafka: KafkaServer) -> list[Figure]:
    """Two readers tail one topic while it is filled in bulk; both decode every event."""
    count = settings.tail_events
    progress(f"tail: {count:,} events, produced in bulk while two processes read them")
    async with kafka_log(kafka) as log:
        topic = log.topology.events(DOMAIN)
        spec = log.topology.spec(topic)
        await log.ensure_topics([spec])
        readers: list[Process] = []
        try:
            for who in ("ours", "by-hand"):
                readers.append(await _start(who, kafka.bootstrap, log.topology.namespace, str(count)))
            records = ready(envelopes(min(count, _PREPARED)), spec.partitions)
            waiting = [asyncio.create_task(_samples(reader)) for reader in readers]
            await asyncio.to_thread(_fill, kafka.bootstrap, topic, records, count, settings.batch)
            progress("  produced; the readers go on")
            ours, by_hand = await asyncio.wait_for(asyncio.gather(*waiting), _TIMEOUT_S)
        finally:
            for reader in readers:
                if reader.returncode is None:
                    reader.kill()
                await reader.wait()
    return _figures(ours, by_hand, count)


def _figures(ours: list[float], by_hand: list[float], count: int) -> list[Figure]:
    tenth = len(ours) // 10
    growth = Side(f"{OURS}, end / 10%", [ours[-1] / ours[tenth]])
    other = Side(f"{BY_HAND}, end / 10%", [by_hand[-1] / by_hand[tenth]])
    note = (
        f"Resident memory after {count:,} events over that after a tenth of them; ours {ours[tenth]:.0f} MB, "
        f"then {min(ours[tenth:]):.0f} to {max(ours[tenth:]):.0f}, at the end {ours[-1]:.0f}."
    )
    most = Side(f"{OURS}, most", [max(ours[tenth:])])
    other_most = Side(f"{BY_HAND}, most", [max(by_hand[tenth:])])
    return [
        Figure("tail", "growth of memory", "x", growth, other, 1.1, at_least=False, absolute=True, note=note),
        Figure("tail", "resident memory", "MB", most, other_most, at_least=False),
    ]


def _fill(bootstrap: str, topic: str, records: Sequence[Ready], count: int, size: int) -> None:
    filler = producer(bootstrap, f"{topic}.producer")
    sent = 0
    while sent < count:
        start = sent % len(records)
        batch = records[start : start + min(size, count - sent)]
        produce_bare(filler, topic, batch)
        sent += len(batch)


async def _start(who: str, *arguments: str) -> Process:
    command = [sys.executable, "-m", "tests.bench.tail", who, *arguments]
    return await create_subprocess_exec(*command, cwd=_ROOT, stdout=PIPE)


async def _samples(reader: Process) -> list[float]:
    """Megabytes, at equal distances of events."""
    assert reader.stdout is not None
    found = []
    async for line in reader.stdout:
        found.append(float(json.loads(line)))
    if await reader.wait() or len(found) < 10:
        raise RuntimeError(f"a reader ended with {reader.returncode} after {len(found)} samples")
    return found


class _Memory:
    """Prints the resident memory at equal distances of events."""

    def __init__(self, count: int) -> None:
        self._every = max(1, count // SAMPLES)
        self.seen = 0

    def __call__(self) -> None:
        self.seen += 1
        if self.seen % self._every == 0:
            print(resident_mb(), flush=True)


def resident_mb() -> float:
    """Of this process, as Linux has it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 2)


async def read(bootstrap: str, namespace: str, count: int) -> None:
    """Our side: a tail, every envelope asked for."""
    log = await open_log(f"kafka://{bootstrap}?namespace={namespace}", catalogue=catalogue())
    memory = _Memory(count)
    async for record in log.read(log.topology.events(DOMAIN), {}):
        record.envelope  # noqa: B018 - decodes and validates
        memory()
        if memory.seen == count:
            break
    await log.close()


def main(who: str, bootstrap: str, namespace: str, count: int) -> None:
    """A reader of either kind."""
    if who == "ours":
        asyncio.run(read(bootstrap, namespace, count))
    else:
        tail(bootstrap, Topology(namespace).events(DOMAIN), count, _Memory(count))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
