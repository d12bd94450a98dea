"""Two worker processes on one SQLite log, beside one: whether they add up where one file has one writer."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from functools import partial

from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from tests.bench.harness import Figure, Side, interleave, progress
from tests.bench.worker_client import run_asked
from tests.bench.worker_runs import AT_ONCE, OURS, TWO, sharing
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

_AGENT = "pair"
_PARTITIONS = 2


async def measure_shared(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Runs per second: a client process with 200 tasks, each of which starts runs and awaits their results.

    Each side has a log of its own with two partitions; the other side's workers wait meanwhile.
    """
    runs = settings.graph_runs
    progress(f"shared: {runs:,} runs of {_AGENT} on SQLite, {AT_ONCE} at once, by one worker and by two")
    async with AsyncExitStack() as stack:
        logs = {OURS: await _served(stack, settings, 1), TWO: await _served(stack, settings, 2)}
        for log in logs.values():
            await run_asked(log, min(runs, 2 * AT_ONCE))
        sides = {label: partial(run_asked, log, runs) for label, log in logs.items()}
        values = await interleave(sides, settings.repetitions)
    name = f"two steps, {_PARTITIONS} partitions, one SQLite log"
    return [Figure("shared", name, "runs/s", Side(TWO, values[TWO]), Side(OURS, values[OURS]))]


async def _served(stack: AsyncExitStack, settings: WorkerSettings, processes: int) -> EventLog:
    """A log with so many workers."""
    path = settings.folder / f"shared-{secrets.token_hex(4)}.db"
    log = await open_log(f"sqlite:///{path}?partitions={_PARTITIONS}")
    stack.push_async_callback(log.close)
    await stack.enter_async_context(sharing(log, _AGENT, settings.folder, processes))
    return log
