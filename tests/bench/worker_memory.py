"""The memory of a worker over many runs: it does not grow with them.

Resident memory is sampled as the runs go by. The first tenth is left out: the worker fills its caches and the
heap finds its size. Through what is left the straight line is laid from which the samples deviate least; its
slope, in bytes a run, is the figure. What is kept of a run that nobody needs any more would be its id at the
least, 85 bytes as a string of Python: the bound is below that.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from statistics import linear_regression, median
from uuid import UUID

from noesium_stream.clock import SystemClock
from tests.bench.harness import Figure, Side, progress
from tests.bench.place import kafka_log
from tests.bench.worker_place import Seen, commands, working
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

AHEAD = 1_000
"""Runs that are under way or wait, about."""
SAMPLES = 200
BOUND = 50.0
"""Bytes a run, on a line through the samples."""


async def measure_memory(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Resident memory of the worker, as the runs go by: bytes a run, and its end beside its first half."""
    runs = settings.runs
    progress(f"memory: {runs:,} runs")
    curve: list[tuple[int, float]] = []
    async with kafka_log(kafka) as log:
        home = settings.folder / f"memory-{secrets.token_hex(4)}"
        async with working(log, "pair", home) as process, Seen(log, "pair", ("run.completed",)) as seen:
            asked, step = 0, max(1, runs // SAMPLES)
            while seen.ended < runs:
                while asked < runs and asked - seen.ended < AHEAD:
                    some = min(AHEAD // 4, runs - asked)
                    await log.append(commands("pair", [{"n": number} for number in range(some)]))
                    asked += some
                wanted = min(runs, seen.ended + step)
                await seen.until(lambda wanted=wanted: seen.ended >= wanted)  # type: ignore[misc]
                curve.append((seen.ended, process.resident_mb()))
                seen.at_s.clear()
                if len(curve) % (SAMPLES // 10) == 0:
                    progress(f"  {seen.ended:,} runs: {curve[-1][1]:.1f} MB")
    return _figures(curve, runs)


def slope(curve: Sequence[tuple[int, float]]) -> float:
    """Bytes a run, of samples of (runs that have ended, MB), without those of the first tenth of the runs."""
    settled = [(ended, mb) for ended, mb in curve if ended > curve[-1][0] / 10]
    return linear_regression(*zip(*settled, strict=True)).slope * 1e6


def _figures(curve: Sequence[tuple[int, float]], runs: int) -> list[Figure]:
    values = [mb for _, mb in curve]
    quarter = len(values) // 4
    second, last = median(values[quarter : 2 * quarter]), median(values[-quarter:])
    spread = ", ".join(f"{values[min(len(values) - 1, len(values) * part // 8)]:.0f}" for part in range(9))
    note = f"MB by eighths of the way: {spread}. It had {values[0]:.0f} MB when the first runs had ended."
    sides = Side("the last quarter", [last]), Side("the second quarter", [second])
    grows = Side("it grows by", [slope(curve)])
    kept = Side("a run's id, were it kept", [float(sys.getsizeof(str(UUID(SystemClock().uuid7()))))])
    name = f"resident, {runs:,} runs"
    return [
        Figure("memory", name, "B a run", grows, kept, BOUND, at_least=False, absolute=True),
        Figure("memory", name, "MB", *sides, 1.05, at_least=False, note=note),
    ]
