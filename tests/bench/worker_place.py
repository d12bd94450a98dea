"""Where workers are measured: processes of their own, commands in bulk, and who sees what they write."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from noesium_stream.clock import SystemClock
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.rules.agent_calls import FAIRNESS_KEY
from noesium_stream.event.standard import RunRequested
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.worker.runs.slots import CONCURRENCY

_ROOT = Path(__file__).parents[2]
_CLOCK = SystemClock()
_PATIENCE_S = 600.0
ENDS = ("run.completed", "run.failed", "run.cancelled")


class WorkerProcess:
    """A worker in a process of its own; `lines` are what it said."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._more = asyncio.Event()
        self._reading = asyncio.create_task(self._read(), name="a worker's lines")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(json.loads(line))
            self._more.set()
        self._more.set()

    async def said(self, wanted: Callable[[Mapping[str, Any]], bool], count: int = 1) -> dict[str, Any]:
        """Wait for the `count`th line that is wanted.

        Raises `RuntimeError` where the process ends before, `TimeoutError` where that takes too long.
        """
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                found = [line for line in self.lines if wanted(line)]
                if len(found) >= count:
                    return found[count - 1]
                if self._reading.done():
                    raise RuntimeError(f"a worker ended with {await self.process.wait()}")
                self._more.clear()
                await self._more.wait()

    async def stands(self, **wanted: int | list[int]) -> dict[str, Any]:
        """How its runs stand, once they stand so: a number is meant exactly, one in a list at least."""
        assert self.process.stdin is not None
        before = sum("open" in line for line in self.lines)
        self.process.stdin.write(json.dumps(wanted).encode() + b"\n")
        return await self.said(lambda line: "open" in line, before + 1)

    def resident_mb(self) -> float:
        """What it has in memory now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    async def kill(self) -> None:
        """SIGKILL."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reading


@asynccontextmanager
async def worker(
    url: str, agent: str, home: Path, at_once: int = CONCURRENCY
) -> AsyncIterator[WorkerProcess]:
    """A worker that has joined its group; it is killed at the end, if it is still there."""
    asked = json.dumps({"url": url, "agent": agent, "home": str(home), "at_once": at_once})
    command = [sys.executable, "-m", "tests.bench.worker_child", "work", asked]
    process = await create_subprocess_exec(*command, cwd=_ROOT, stdin=PIPE, stdout=PIPE)
    made = WorkerProcess(process)
    try:
        await made.said(lambda line: "joined" in line)
        yield made
    finally:
        await made.kill()


@asynccontextmanager
async def working(
    log: EventLog, agent: str, home: Path, at_once: int = CONCURRENCY
) -> AsyncIterator[WorkerProcess]:
    """A worker that owns all partitions of its inbox, which is made."""
    topology = log.topology
    specs = [topology.spec(topology.inbox(agent)), topology.spec(topology.journal(agent))]
    await log.ensure_topics(specs)
    async with worker(log.url, agent, home, at_once) as made:
        await made.said(lambda line: "owned" in line, specs[0].partitions)
        yield made


def commands(agent: str, inputs: list[dict[str, Any]], fairness: str | None = None) -> list[EventEnvelope]:
    """What a client would append for these runs; the run's id is the partition key."""
    producer = AgentRef("bench", "client", "local", _CLOCK.uuid7())
    metadata = {"to": agent, **({} if fairness is None else {FAIRNESS_KEY: fairness})}
    made = []
    for value in inputs:
        run_id = _CLOCK.uuid7()
        requested = RunRequested(run_id=run_id, agent_type=agent, input=value)
        trace = TraceContext(secrets.token_hex(16), secrets.token_hex(8))
        made.append(
            requested.to_envelope(
                producer, trace, correlation_id=run_id, partition_key=run_id, metadata=metadata
            )
        )
    return made


class Seen:
    """Sees records of a journal as they come, by their headers: when the ones of each type and run came.

    Args:
        log: where it is.
        agent: whose journal.
        types: which records.
    """

    def __init__(self, log: EventLog, agent: str, types: tuple[str, ...]) -> None:
        self.at_s: dict[tuple[str, str], float] = {}
        """By type and run, by the machine's monotonic clock."""
        self.counts: dict[str, int] = {}
        self._log = log
        self._journal = log.topology.journal(agent)
        self._types = types
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Seen:
        start = await self._log.end(self._journal)
        self._task = asyncio.create_task(self._follow(start), name="see a journal")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, start: Mapping[int, int]) -> None:
        async for batch in self._log.read_batches(self._journal, start, types=self._types):
            now = time.monotonic()
            for record in batch:
                self._see(record, now)
            self._changed.set()

    def _see(self, record: Record, now: float) -> None:
        kind = record.header("ce_type")
        name = kind.decode() if kind is not None else ""
        self.at_s[name, record.key] = now
        self.counts[name] = self.counts.get(name, 0) + 1

    @property
    def ended(self) -> int:
        """How many runs have ended."""
        return sum(self.counts.get(name, 0) for name in ENDS)

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait; raises `TimeoutError` when nothing comes for long."""
        assert self._task is not None
        while not ready():
            self._changed.clear()
            waiting = asyncio.create_task(self._changed.wait())
            async with asyncio.timeout(_PATIENCE_S):
                await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if self._task.done():
                self._task.result()
