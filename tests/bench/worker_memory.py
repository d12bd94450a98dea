"""The memory of a worker over many runs: it ends as it was in between."""

from __future__ import annotations

import asyncio
import secrets
from statistics import median

from tests.bench.harness import Figure, Side, progress
from tests.bench.place import kafka_log
from tests.bench.worker_place import Seen, commands, working
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

AHEAD = 1_000
"""Runs that are under way or wait, about."""
SAMPLES = 200


async def measure_memory(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Resident memory of the worker, as the runs go by: the last quarter beside the second."""
    runs = settings.runs
    progress(f"memory: {runs:,} runs")
    curve: list[float] = []
    async with kafka_log(kafka) as log:
        home = settings.folder / f"memory-{secrets.token_hex(4)}"
        async with working(log, "pair", home) as process, Seen(log, "pair", ("run.completed",)) as seen:
            asked, step = 0, max(1, runs // SAMPLES)
            while seen.ended < runs:
                while asked < runs and asked - seen.ended < AHEAD:
                    some = min(AHEAD // 4, runs - asked)
                    await log.append(commands("pair", [{"n": number} for number in range(some)]))
                    asked += some
                wanted = min(runs, (len(curve) + 1) * step)
                await seen.until(lambda wanted=wanted: seen.ended >= wanted)  # type: ignore[misc]
                while len(curve) * step < seen.ended:
                    curve.append(process.resident_mb())
                seen.at_s.clear()
                if len(curve) % (SAMPLES // 10) == 0:
                    progress(f"  {seen.ended:,} runs: {curve[-1]:.1f} MB")
            await asyncio.sleep(0)
    quarter = len(curve) // 4
    second, last = median(curve[quarter : 2 * quarter]), median(curve[-quarter:])
    spread = ", ".join(f"{curve[min(len(curve) - 1, len(curve) * part // 8)]:.0f}" for part in range(9))
    note = f"MB by eighths of the way: {spread}. It had {curve[0]:.0f} MB when the first runs had ended."
    sides = Side("the last quarter", [last]), Side("the second quarter", [second])
    return [Figure("memory", f"resident, {runs:,} runs", "MB", *sides, 1.05, at_least=False, note=note)]
