"""Runs that wait for a person: resident memory of each, while it is loaded and once it is parked.

python -m tests.bench.waiting [RUNS]                      measures and prints
python -m tests.bench.waiting worker URL HOME RUNS        the worker; prints its memory, in bytes

The worker is a process of its own, which is given the runs over a SQLite log. It is warmed up by some runs
that are parked again, and its memory is read after a collection, with what the allocator keeps given back.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import sys
import tempfile
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
from noesium_stream.worker.parking import IDLE_S
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
    """Bytes of resident memory per run."""

    runs: int
    loaded: float
    parked: float


async def measure_waiting(folder: Path, runs: int = 1_000) -> Waiting:
    """Start a worker, give it `runs` runs that wait for a person, let them idle; see what that costs."""
    url = f"sqlite:///{folder / 'waiting.db'}"
    log = await open_log(url)
    try:
        async with Client(log) as client:
            worker = await _start("worker", url, str(folder), str(runs))
            try:
                await _line(worker)
                await _begin(client, WARM_UP)
                empty = await _line(worker)
                await _begin(client, runs)
                loaded = await _line(worker)
                parked = await _line(worker)
            finally:
                if worker.returncode is None:
                    worker.kill()
                await worker.wait()
            assert len(await client.approvals()) == runs + WARM_UP
    finally:
        await log.close()
    return Waiting(runs, (loaded - empty) / runs, (parked - empty) / runs)


async def measure(folder: Path, runs: int = 1_000) -> list[Figure]:
    """The figures of `python -m tests.bench kernel`: kB per run, loaded and parked."""
    progress(f"waiting: {runs:,} runs that wait for a person")
    found = await measure_waiting(folder, runs)
    loaded, parked = Side("loaded", [found.loaded / 1e3]), Side("idle for a minute", [found.parked / 1e3])
    name = f"resident memory of one of {runs:,} runs that wait for a person"
    nothing = Side("nothing", [1.0])
    return [
        Figure("waiting", name, "kB", loaded, nothing, 20.0, at_least=False, absolute=True),
        Figure("waiting", name, "kB", parked, nothing, 0.5, at_least=False, absolute=True),
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


async def _work(url: str, home: Path, runs: int) -> None:
    log, clock = await open_log(url), _Clock()
    async with Worker(log, [(Clerk, None)], home=home, clock=clock) as worker:
        _say()
        await _waiting(worker, WARM_UP)
        await _park(worker, clock)
        _say()
        await _waiting(worker, runs)
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


async def _park(worker: Worker, clock: _Clock) -> None:
    for _ in range(2):
        for owner in _owners(worker):
            owner.park_idle()
        clock.forward_s += IDLE_S
        await asyncio.sleep(0.5)  # the tasks end
    assert not any(owner._runs for owner in _owners(worker))


def _say() -> None:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(pages * os.sysconf("SC_PAGE_SIZE"), flush=True)


def main(arguments: list[str]) -> None:
    """The bench, or its worker."""
    if arguments[:1] == ["worker"]:
        _, url, home, runs = arguments
        asyncio.run(_work(url, Path(home), int(runs)))
        return
    with tempfile.TemporaryDirectory(prefix="noesium-bench-") as folder:
        found = asyncio.run(measure_waiting(Path(folder), int(arguments[0]) if arguments else 1_000))
    print(f"{found.runs:,} runs: {found.loaded:,.0f} bytes each loaded, {found.parked:,.0f} parked")


if __name__ == "__main__":
    main(sys.argv[1:])
