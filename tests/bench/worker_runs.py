"""Runs of a graph: command, two nodes, result; beside the same graph bare."""

from __future__ import annotations

import json
import secrets
import sys
import time

from noesium_stream.log.port import EventLog
from tests.bench.harness import Figure, Side, interleave, progress
from tests.bench.place import kafka_log
from tests.bench.projection_place import run_alone
from tests.bench.worker_place import Seen, commands, working
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

OURS, BARE = "a worker of ours", "LangGraph, InMemorySaver"
AT_ONCE = 200
"""Runs that are at work together; a worker's own default."""
_BATCH = 500


async def measure_graph(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Runs per second, from the appending of the commands to the last result on the log."""
    return [
        await _measured(settings, kafka, "pair", "command, two nodes, result", 0.8),
        await _measured(
            settings, kafka, "sure-pair", "the same, nodes that are said to be deterministic", None
        ),
    ]


async def _measured(
    settings: WorkerSettings, kafka: KafkaServer, agent: str, name: str, target: float | None
) -> Figure:
    runs = settings.graph_runs
    progress(f"graph: {runs:,} runs of {agent}, {AT_ONCE} at once")
    async with kafka_log(kafka) as log:
        home = settings.folder / f"graph-{secrets.token_hex(4)}"
        async with working(log, agent, home), Seen(log, agent, ("run.completed", "run.failed")) as seen:

            async def ours() -> float:
                return runs / await run_all(log, seen, agent, runs)

            async def bare() -> float:
                asked = json.dumps({"runs": runs, "at_once": AT_ONCE})
                found = await run_alone([sys.executable, "-m", "tests.bench.worker_child", "bare", asked])
                return float(runs / found["seconds"])

            await run_all(log, seen, agent, min(runs, 2 * AT_ONCE))
            values = await interleave({OURS: ours, BARE: bare}, settings.repetitions)
            failed = seen.counts.get("run.failed", 0)
    assert not failed, f"{failed} runs have failed"
    note = (
        f"Ours: from appending {runs:,} commands to the last result read; the worker does {AT_ONCE} at once."
    )
    sides = Side(OURS, values[OURS]), Side(BARE, values[BARE])
    return Figure("graph", name, "runs/s", *sides, target, note=note if target else "")


async def run_all(log: EventLog, seen: Seen, agent: str, runs: int) -> float:
    """Let so many runs run to their end; how long that took, in seconds."""
    asked = commands(agent, [{"n": number} for number in range(runs)])
    before = seen.ended
    began = time.perf_counter()
    for start in range(0, runs, _BATCH):
        await log.append(asked[start : start + _BATCH])
    await seen.until(lambda: seen.ended - before >= runs)
    return time.perf_counter() - began
