"""Runs that wait for a person: resident memory of each, while it is loaded and once it is parked.

python -m tests.bench.waiting [RUNS]                      measures and prints
python -m tests.bench.waiting worker URL HOME RUNS HOW    the worker; prints its memory, in bytes

The worker is a process of its own, which is given the runs over a SQLite log. It is warmed up by some runs
that are parked again, and its memory is read after a collection. HOW is `resident`, after the allocator has
given back what it can, or `objects`, what Python's objects take: what the allocator keeps of the former when
runs are parked is free for the next ones.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
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
from noesium_stream.worker import PartitionOwner, Worker
from noesium_stream.worker.parking import CROWDED_IDLE_S, IDLE_S
from tests.bench.harness import Figure, Side, progress

WARM_UP = 50
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
    """Bytes per run: all of them `loaded`, as in the first seconds; when those that are too many of a `crowd`
    are parked; all `parked`.
    """

    loaded: float
    crowd: float
    parked: float


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
                empty = await _line(worker)
                await _begin(client, runs)
                found = [(await _line(worker) - empty) / runs for _ in range(3)]
            finally:
                if worker.returncode is None:
                    worker.kill()
                await worker.wait()
            assert len(await client.approvals()) == runs + WARM_UP
    finally:
        await log.close()
    return Waiting(*found)


async def measure(folder: Path, runs: int = 1_000) -> list[Figure]:
    """The figures of `python -m tests.bench kernel`: kB per run."""
    progress(f"waiting: {runs:,} runs that wait for a person")
    resident = await measure_waiting(folder, runs)
    objects = await measure_waiting(folder, runs, "objects")
    name = f"memory of one of {runs:,} runs that wait for a person"
    note = (
        f"Objects: {objects.loaded / 1e3:.1f} kB loaded, most of them LangGraph's, "
        f"{objects.crowd / 1e3:.1f} kB after {CROWDED_IDLE_S:.0f} s. Resident when all are parked: "
        f"{resident.parked / 1e3:.1f} kB, free for the next runs."
    )
    loaded = Side("resident, loaded", [resident.loaded / 1e3])
    crowd = Side(f"resident, after {CROWDED_IDLE_S:.0f} s", [resident.crowd / 1e3])
    parked = Side("objects, idle for a minute", [objects.parked / 1e3])
    return [
        Figure("waiting", name, "kB", crowd, loaded, 20.0, at_least=False, absolute=True, note=note),
        Figure("waiting", f"{name}, idle", "kB", parked, loaded, 1.0, at_least=False, absolute=True),
    ]


async def _begin(client: Client, runs: int) -> None:
    for number in range(runs):
        await client.start("clerk", {"order": f"order {number}"})


async def _start(*arguments: str) -> Process:
    command = [sys.executable, "-m", "tests.bench.waiting", *arguments]
    return await create_subprocess_exec(*command, cwd=_ROOT, stdout=PIPE)


async def _line(worker: Process) -> float:
    assert worker.stdout is not None
    async with asyncio.timeout(_TIMEOUT_S):
        line = await worker.stdout.readline()
    return float(json.loads(line))


class _Clock(SystemClock):
    """The machine's, which can be set forward for the judgement of what is idle."""

    forward_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.forward_s


async def _work(url: str, home: Path, runs: int, how: str) -> None:
    if how == "objects":
        tracemalloc.start()
    log, clock = await open_log(url), _Clock()
    async with Worker(log, [(Clerk, None)], home=home, clock=clock) as worker:
        _say()
        await _waiting(worker, WARM_UP)
        await _park(worker, clock)
        _say()
        await _waiting(worker, runs)
        _say()
        await _park(worker, clock, CROWDED_IDLE_S)
        _say()
        await _park(worker, clock)
        _say()
    await log.close()


def _owners(worker: Worker) -> list[PartitionOwner]:
    return list(worker._hosts[0]._owners.values())


async def _waiting(worker: Worker, runs: int) -> None:
    """Until so many runs are loaded, and all of them wait."""
    while True:
        sessions = [session for owner in _owners(worker) for session in owner._runs.values()]
        if len(sessions) == runs and all(session.begun and session.only_waits() for session in sessions):
            return
        await asyncio.sleep(0.05)


async def _park(worker: Worker, clock: _Clock, after_s: float = IDLE_S) -> None:
    for owner in _owners(worker):
        owner.park_idle()
    clock.forward_s += after_s
    for owner in _owners(worker):
        owner.park_idle()
    left = {run_id for owner in _owners(worker) for run_id in owner._runs}
    while [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("run ")][len(left) :]:
        await asyncio.sleep(0.05)


def _say() -> None:
    gc.collect()
    if tracemalloc.is_tracing():
        print(tracemalloc.get_traced_memory()[0], flush=True)
        return
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(pages * os.sysconf("SC_PAGE_SIZE"), flush=True)


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
