"""Where a worker's processor time goes: runs of two trivial steps, whose commands lie in the inbox before.

The commands are appended first; then a worker executes all runs, in turn as it is and under cProfile. Under
the profiler everything takes two to three times as long, most of all short functions: the shares tell what to
look at, and the time without it is what counts. A builtin function is counted for the function that calls it,
and everything by the package that it is of.
"""

from __future__ import annotations

import cProfile
import pstats
import secrets
import time
from collections import Counter
from pathlib import Path, PurePath
from statistics import median
from typing import Any, Final

from noesium_stream.kernel import Durability
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker.gc_tuning import spare_what_is_loaded
from noesium_stream.worker.process_settings import tune_process
from tests.bench.harness import Figure, Side, progress
from tests.bench.place import kafka_log
from tests.bench.worker_lone import steps_in_turn
from tests.bench.worker_place import Seen, commands
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

STEPS: Final = 2
_WARM_UP: Final = 200
_LEAST: Final = 0.01
"""Share of a layer that is told."""

_OURS: Final = PurePath(__file__).parents[2] / "noesium_stream"
_LAYERS: Final = {
    "langgraph": "LangGraph",
    "langchain_core": "LangGraph",
    "asyncio": "asyncio",
    "confluent_kafka": "log",
    "aiokafka": "log",
    "fastavro": "event",
    "pydantic": "event",
    "uuid_utils": "event",
}
"""Packages of others, by what they are used for."""


async def measure_profile(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Milliseconds of the processor per run, by layer."""
    tune_process()
    path = settings.folder / f"profile-{secrets.token_hex(4)}.db"
    log = await open_log(f"sqlite:///{path}?partitions=1")
    try:
        found = [await _measured(settings, log, "SQLite")]
    finally:
        await log.close()
    async with kafka_log(kafka, "&partitions=1") as log:
        return [*found, await _measured(settings, log, "Kafka")]


async def _measured(settings: WorkerSettings, log: EventLog, name: str) -> Figure:
    runs = max(_WARM_UP, settings.graph_runs // 4)
    progress(f"profile: {settings.repetitions} x 2 x {runs:,} runs of {STEPS} steps on {name}")
    agent, home = steps_in_turn(STEPS, Durability.SYNC), settings.folder / f"profile-{secrets.token_hex(4)}"
    plain, profiled, shares = [], [], Counter[str]()
    async with Worker(log, [agent], home=home):
        pass  # it makes the agent's topics
    async with Seen(log, agent.agent_type, ("run.completed",)) as seen:
        await _execute(log, seen, agent, home, _WARM_UP, None)
        for _ in range(settings.repetitions):
            plain.append(await _execute(log, seen, agent, home, runs, None))
            profile = cProfile.Profile(builtins=False)
            profiled.append(await _execute(log, seen, agent, home, runs, profile))
            shares.update(by_layer(profile))
    whole = sum(shares.values())
    told = ", ".join(
        f"{layer} {median(plain) * part / whole:.2f}"
        for layer, part in shares.most_common()
        if part > _LEAST * whole
    )
    sides = Side("as it is", plain), Side("under the profiler", profiled)
    return Figure("profile", f"{STEPS} steps on {name}, SYNC, processor time a run", "ms", *sides, note=told)


async def _execute(
    log: EventLog, seen: Seen, agent: Any, home: Path, runs: int, profile: cProfile.Profile | None
) -> float:
    """Milliseconds of the processor per run: of the worker, and of reading which runs have ended."""
    before = seen.ended
    await log.append(commands(agent.agent_type, [{"n": number} for number in range(runs)]))
    spare_what_is_loaded()
    began = time.process_time()
    if profile is not None:
        profile.enable()
    async with Worker(log, [agent], home=home):
        await seen.until(lambda: seen.ended - before >= runs)
        if profile is not None:
            profile.disable()
        used = time.process_time() - began
    return 1e3 * used / runs


def by_layer(profile: cProfile.Profile) -> dict[str, float]:
    """Seconds within the functions of each layer, without what they call."""
    found = Counter[str]()
    for (file, _, _), (_, _, seconds, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        found[_layer(PurePath(file))] += seconds
    return found


def _layer(file: PurePath) -> str:
    if file.is_relative_to(_OURS):
        return file.relative_to(_OURS).parts[0].removesuffix(".py")
    return next((layer for package, layer in _LAYERS.items() if package in file.parts), "other")
