"""A small tenant beside one with thousands of commands that wait: how long its own wait."""

from __future__ import annotations

import secrets
import time

from noesium_stream.log.port import EventLog
from tests.bench.harness import Figure, Side, percentile, progress
from tests.bench.place import kafka_log
from tests.bench.worker_place import Seen, commands, working
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

BESIDE, ALONE = "beside the large one", "alone"
_BATCH = 500


async def measure_fairness(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Milliseconds from appending a command to `run.started` on the log, at the 95th percentile."""
    progress(
        f"fairness: {settings.asked} commands, one after the other, beside {settings.queued:,} that wait"
    )
    beside: list[list[float]] = []
    alone: list[list[float]] = []
    async with kafka_log(kafka) as log:
        home = settings.folder / f"fairness-{secrets.token_hex(4)}"
        types = ("run.started", "run.completed")
        async with working(log, "pair", home), Seen(log, "pair", types) as seen:
            await _waits(log, seen, max(1, settings.asked // 5))
            for number in range(settings.repetitions):
                alone.append(await _waits(log, seen, settings.asked))
                queue = commands("pair", [{"n": n} for n in range(settings.queued)], "large")
                before, begun = seen.ended, seen.counts.get("run.started", 0)
                for start in range(0, len(queue), _BATCH):
                    await log.append(queue[start : start + _BATCH])
                beside.append(await _waits(log, seen, settings.asked))
                left = begun + len(queue) + settings.asked - seen.counts["run.started"]
                if left <= 0:
                    raise RuntimeError("the large tenant's commands had all begun: give it more of them")
                progress(
                    f"  {number + 1}/{settings.repetitions}: alone {percentile(alone[-1], 0.95):.1f} ms, "
                    f"beside {percentile(beside[-1], 0.95):.1f} ms, {left:,} still to begin"
                )
                await seen.until(lambda: seen.ended - before >= len(queue))  # noqa: B023
                seen.at_s.clear()
    return _figures(beside, alone, settings)


async def _waits(log: EventLog, seen: Seen, count: int) -> list[float]:
    """Send commands one after the other, each when the one before has begun; how long each waited, in ms."""
    found = []
    for number in range(count):
        [command] = commands("pair", [{"n": number}], "small")
        begun = ("run.started", command.partition_key or "")
        at = time.monotonic()
        await log.append([command])
        await seen.until(lambda: begun in seen.at_s)  # noqa: B023
        found.append((seen.at_s[begun] - at) * 1e3)
    return found


def _figures(beside: list[list[float]], alone: list[list[float]], settings: WorkerSettings) -> list[Figure]:
    name = f"wait of a small tenant beside {settings.queued:,} commands"
    note = "From appending a command to its `run.started` read from the journal; 200 runs work at once."

    def sides(share: float) -> list[Side]:
        return [
            Side(label, [percentile(waits, share) for waits in found])
            for label, found in ((BESIDE, beside), (ALONE, alone))
        ]

    return [
        Figure("fairness", f"{name}, p95", "ms", *sides(0.95), 5.0, at_least=False, note=note),
        Figure("fairness", f"{name}, p50", "ms", *sides(0.5), at_least=False),
    ]
