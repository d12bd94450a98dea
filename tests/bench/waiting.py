"""Runs that wait for a person: resident memory of each, while they come and once they are idle.

python -m tests.bench.waiting [RUNS]                      measures and prints
python -m tests.bench.waiting worker URL HOME RUNS HOW    the worker; prints its memory, in bytes

The worker is a process of its own, which is given the runs over a SQLite log, one after the other. It is
warmed up by some runs that are evicted again, and its memory is read after a collection. HOW is one of
 - `resident`: the worker as it is. It keeps some of the runs that wait and soon evicts the others. Read when
   all of them wait and no more are evicted, after the allocator has given back what it can; and the peak on
   the way there, of which nothing was given back.
 - `loaded`: the same with no run evicted before it was idle for a minute, for comparison.
 - `objects`: what Python's objects take: what the allocator keeps of the former when runs are evicted is free
   for the next ones.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import re
import sys
import tempfile
import tracemalloc
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from noesium_stream.worker.process_settings import tune_process
from noesium_stream.worker.runs import eviction
from noesium_stream.worker.runs.eviction import CROWD, IDLE_S
from tests.bench.harness import Figure, Side, progress

WARM_UP = 50
PARTITIONS = 8
_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 120.0


class Asked(TypedDict, total=False):
    order: str
    approved: bool


async def _ask(state: Asked) -> Asked:
    answer = await current_step().interrupt({"refund": state["order"]})
    return {"approved": answer.approved}


class Clerk(BaseGraphicAgent):
    """Asks a person and waits."""

    agent_type = "clerk"

    def get_state_class(self) -> type[Any]:
        return Asked

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph: StateGraph[Any, Any, Any, Any] = StateGraph(Asked)
        graph.add_node("ask", _ask)
        graph.add_edge(START, "ask")
        graph.add_edge("ask", END)
        return graph


@dataclass(frozen=True)
class Waiting:
    """Bytes per run: when all of them `wait`, the `peak` until then, and when all are `idle` for a minute."""

    wait: float
    peak: float
    idle: float


async def measure_waiting(folder: Path, runs: int = 1_000, how: str = "resident") -> Waiting:
    """Start a worker, give it `runs` runs that wait for a person, let them idle; see what that costs."""
    url = f"sqlite:///{folder / f'waiting-{how}.db'}"
    log = await open_log(url)
    try:
        async with Client(log) as client:
            worker = await _start("worker", url, str(folder), str(runs), how)
            try:
                await _line(worker)
                await _begin(client, WARM_UP)
                empty = (await _line(worker))[0]
                await _begin(client, runs)
                wait, peak = await _line(worker)
                idle = (await _line(worker))[0]
            finally:
                if worker.returncode is None:
                    worker.kill()
                await worker.wait()
            assert len(await client.approvals()) == runs + WARM_UP
    finally:
        await log.close()
    return Waiting(*((found - empty) / runs for found in (wait, peak, idle)))


async def measure(folder: Path, runs: int = 1_000) -> list[Figure]:
    """The figures of `python -m tests.bench kernel`: kB per run."""
    progress(f"waiting: {runs:,} runs that wait for a person")
    resident = await measure_waiting(folder, runs)
    loaded = await measure_waiting(folder, runs, "loaded")
    objects = await measure_waiting(folder, runs, "objects")
    name = f"memory of one of {runs:,} runs that wait for a person"
    note = (
        f"The runs come one after the other; up to {CROWD} of a partition, of {PARTITIONS}, stay loaded. "
        f"Resident memory at its peak: {resident.peak / 1e3:.1f} kB. "
        f"Objects: {objects.wait / 1e3:.1f} kB. Resident when all are idle for a minute: "
        f"{resident.idle / 1e3:.1f} kB, free for the next runs."
    )
    side = Side("resident, were all loaded", [loaded.wait / 1e3])
    wait = Side("resident, all wait", [resident.wait / 1e3])
    idle = Side("objects, idle for a minute", [objects.idle / 1e3])
    return [
        Figure("waiting", name, "kB", wait, side, 20.0, at_least=False, absolute=True, note=note),
        Figure("waiting", f"{name}, idle", "kB", idle, side, 1.0, at_least=False, absolute=True),
    ]


async def _begin(client: Client, runs: int) -> None:
    for number in range(runs):
        await client.start("clerk", {"order": f"order {number}"})


async def _start(*arguments: str) -> Process:
    command = [sys.executable, "-m", "tests.bench.waiting", *arguments]
    return await create_subprocess_exec(*command, cwd=_ROOT, stdout=PIPE)


async def _line(worker: Process) -> list[float]:
    assert worker.stdout is not None
    async with asyncio.timeout(_TIMEOUT_S):
        line = await worker.stdout.readline()
    found: list[float] = json.loads(line)
    return found


class _Clock(SystemClock):
    """The machine's, which can be set forward for the judgement of what is idle."""

    forward_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.forward_s


async def _work(url: str, home: Path, runs: int, how: str) -> None:
    if how == "objects":
        tracemalloc.start()
    if how == "loaded":
        eviction.CROWD = sys.maxsize  # type: ignore[misc]
    log, clock = await open_log(url), _Clock()
    tune_process()
    async with Worker(log, [Clerk], home=home, clock=clock) as worker:
        _say()
        await _at_rest(worker, WARM_UP)
        await _idle(worker, clock)
        _say()
        await _at_rest(worker, WARM_UP + runs)
        _say()
        await _idle(worker, clock)
        _say()
    await log.close()


async def _at_rest(worker: Worker, runs: int) -> None:
    """Until so many runs are open, all of them wait, and those that are too many have left the memory."""
    while True:
        tenures = worker.tenures()
        loaded = [session for tenure in tenures for session in tenure.runs.loaded.values()]
        crowds = any(len(tenure.runs.loaded) > eviction.CROWD for tenure in tenures)
        wait = all(session.begun and session.only_waits() for session in loaded)
        if sum(tenure.open_runs for tenure in tenures) == runs and wait and not crowds:
            return await _tasks_end(len(loaded))
        await asyncio.sleep(0.05)


async def _idle(worker: Worker, clock: _Clock) -> None:
    """Set the clock forward, and let the worker look."""
    for tenure in worker.tenures():
        tenure.evict_idle()
    clock.forward_s += IDLE_S
    for tenure in worker.tenures():
        tenure.evict_idle()
    await _tasks_end(sum(len(tenure.runs.loaded) for tenure in worker.tenures()))


async def _tasks_end(left: int) -> None:
    """Until no more runs than these have a task."""
    while sum(task.get_name().startswith("run ") for task in asyncio.all_tasks()) > left:
        await asyncio.sleep(0.05)


def _say() -> None:
    """What it takes now, and at most since it was last said."""
    gc.collect()
    if tracemalloc.is_tracing():
        print(json.dumps(tracemalloc.get_traced_memory()), flush=True)
        tracemalloc.reset_peak()
        return
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(json.dumps([pages * os.sysconf("SC_PAGE_SIZE"), peak]), flush=True)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew


def main(arguments: list[str]) -> None:
    """The bench, or its worker."""
    if arguments[:1] == ["worker"]:
        _, url, home, runs, how = arguments
        asyncio.run(_work(url, Path(home), int(runs), how))
        return
    count = int(arguments[0]) if arguments else 1_000
    with tempfile.TemporaryDirectory(prefix="noesium-bench-") as folder:
        for figure in asyncio.run(measure(Path(folder), count)):
            print("\n".join(figure.lines()), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
