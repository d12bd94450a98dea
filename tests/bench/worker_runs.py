"""Runs of a graph: command, two nodes, result; beside the same graph bare."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from noesium_stream.config import NoesiumConfig
from noesium_stream.log.port import EventLog
from tests.bench.harness import Figure, Side, interleave, progress
from tests.bench.place import kafka_log
from tests.bench.projection_place import run_alone
from tests.bench.worker_place import Seen, commands, worker, working
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

OURS, TWO, BARE = "a worker of ours", "two workers of ours", "LangGraph, InMemorySaver"
AT_ONCE = 200
"""Runs that are at work together, in all processes; a worker's own default."""
DEFAULT_PARTITIONS = NoesiumConfig.model_fields["partitions"].default
_BATCH = 500


async def measure_graph(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Runs per second, from the appending of the commands to the last result on the log.

    LangGraph alone is one process; a worker is measured as one, and as two that share the partitions, the
    processors and the runs at once: what is not done on the event loop is beside it already. Each has one
    partition, as the guide "operate" advises for throughput (the target is held against that), or its share
    of as many as an agent has by default.
    """
    reaching, default = "awaited-pair", DEFAULT_PARTITIONS
    return [
        await _measured(settings, kafka, "pair", 1, 1, target=0.8),
        await _measured(settings, kafka, "pair", 2, 2, target=0.8),
        await _measured(settings, kafka, "pair", 1, default),
        await _measured(settings, kafka, "pair", 2, default),
        await _measured(settings, kafka, reaching, 1, 1),
        await _measured(settings, kafka, reaching, 2, 2),
    ]


_NAMES = {
    "pair": "command, two nodes, result",
    "awaited-pair": "the same, nodes that may reach out: each waits for the log",
}


async def _measured(
    settings: WorkerSettings,
    kafka: KafkaServer,
    agent: str,
    processes: int,
    partitions: int,
    target: float | None = None,
) -> Figure:
    runs, label = settings.graph_runs, OURS if processes == 1 else TWO
    many = f"{processes} {'process' if processes == 1 else 'processes'}"
    parts = f"{partitions} {'partition' if partitions == 1 else 'partitions'}"
    progress(f"graph: {runs:,} runs of {agent}, {AT_ONCE} at once in {many} of ours, {parts}")
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(kafka_log(kafka, f"&partitions={partitions}"))
        await stack.enter_async_context(sharing(log, agent, settings.folder, processes))
        async with Seen(log, agent, ("run.completed", "run.failed")) as seen:

            async def ours() -> float:
                return runs / await run_all(log, seen, agent, runs)

            async def bare() -> float:
                asked = json.dumps({"runs": runs, "at_once": AT_ONCE})
                found = await run_alone([sys.executable, "-m", "tests.bench.worker_child", "bare", asked])
                return float(runs / found["seconds"])

            await run_all(log, seen, agent, min(runs, 2 * AT_ONCE))
            values = await interleave({label: ours, BARE: bare}, settings.repetitions)
            failed = seen.counts.get("run.failed", 0)
    assert not failed, f"{failed} runs have failed"
    note = f"Ours: from appending {runs:,} commands to the last result read; {AT_ONCE} at once in all."
    sides = Side(label, values[label]), Side(BARE, values[BARE])
    name = f"{_NAMES[agent]}; {many}, {parts}"
    return Figure("graph", name, "runs/s", *sides, target, note=note if target else "")


@asynccontextmanager
async def sharing(log: EventLog, agent: str, folder: Path, processes: int) -> AsyncIterator[None]:
    """Workers that share the partitions of the agent's inbox evenly."""
    partitions = log.topology.spec(log.topology.inbox(agent)).partitions
    at_once, homes = (
        AT_ONCE // processes,
        [folder / f"graph-{secrets.token_hex(4)}" for _ in range(processes)],
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(working(log, agent, homes[0], at_once))
        for home in homes[1:]:
            other = await stack.enter_async_context(worker(log.url, agent, home, at_once))
            await other.said(lambda line: "owned" in line, partitions // processes)
        yield


async def run_all(log: EventLog, seen: Seen, agent: str, runs: int) -> float:
    """Let so many runs run to their end; how long that took, in seconds."""
    asked = commands(agent, [{"n": number} for number in range(runs)])
    before = seen.ended
    began = time.perf_counter()
    for start in range(0, runs, _BATCH):
        await log.append(asked[start : start + _BATCH])
    await seen.until(lambda: seen.ended - before >= runs)
    return time.perf_counter() - began
