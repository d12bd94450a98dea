"""Runs that a client starts and awaits one by one, beside the same runs with their commands in bulk."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import AsyncExitStack

from noesium_stream.client import Client
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from tests.bench.harness import Figure, Side, interleave, progress
from tests.bench.place import kafka_log
from tests.bench.worker_place import Seen, working
from tests.bench.worker_runs import AT_ONCE, run_all
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

ASKED, BULK = "start and result", "in bulk"
_AGENT = "pair"


async def measure_client(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Runs per second: a client process with 200 tasks, each of which starts runs and awaits their results.

    One worker process with one partition. In bulk the commands are appended 500 at a time, and one reader
    waits for all results.
    """
    found = []
    for name in ("Kafka", "SQLite"):
        async with AsyncExitStack() as stack:
            if name == "Kafka":
                log = await stack.enter_async_context(kafka_log(kafka, "&partitions=1"))
            else:
                path = settings.folder / f"client-{secrets.token_hex(4)}.db"
                log = await open_log(f"sqlite:///{path}?partitions=1")
                stack.push_async_callback(log.close)
            home = settings.folder / f"client-{secrets.token_hex(4)}"
            await stack.enter_async_context(working(log, _AGENT, home, AT_ONCE))
            found.append(await _measured(settings, log, name))
    return found


async def _measured(settings: WorkerSettings, log: EventLog, name: str) -> Figure:
    runs = settings.graph_runs
    progress(f"client: {runs:,} runs of {_AGENT} on {name}, {AT_ONCE} at once")
    async with Seen(log, _AGENT, ("run.completed", "run.failed")) as seen:

        async def bulk() -> float:
            return runs / await run_all(log, seen, _AGENT, runs)

        await run_all(log, seen, _AGENT, min(runs, 2 * AT_ONCE))
        values = await interleave({ASKED: lambda: run_asked(log, runs), BULK: bulk}, settings.repetitions)
        assert not seen.counts.get("run.failed", 0), "runs have failed"
    sides = Side(ASKED, values[ASKED]), Side(BULK, values[BULK])
    return Figure("client", f"two steps, one partition, {name}", "runs/s", *sides, 0.8)


async def run_asked(log: EventLog, runs: int) -> float:
    """Runs per second of tasks that start and await them."""
    numbers = iter(range(runs))
    async with Client(log) as client:

        async def work() -> None:
            for number in numbers:
                await (await client.start(_AGENT, {"n": number})).result()

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
        return runs / (time.perf_counter() - began)
