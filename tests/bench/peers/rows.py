"""The rows of the table, each measured once for a system in an empty place."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from noesium_stream.log.open import open_log
from tests.bench.harness import percentile
from tests.bench.peers.process import PATIENCE_S, PeerProcess, running
from tests.bench.peers.settings import PeerSettings
from tests.bench.peers.systems import PROGRAMS, Place, System
from tests.bench.worker_place import Seen
from tests.bench.worker_runs import run_all

Values = dict[str, float]


class Session:
    """A system in its place: starts its programs.

    Args:
        system: which one.
        place: where.
        folder: for files of the session.
        settings: sizes.
    """

    def __init__(self, system: System, place: Place, folder: Path, settings: PeerSettings) -> None:
        self.system = system
        self.place = place
        self.settings = settings
        self.folder = folder
        self.gate, self.marks = folder.with_suffix(".gate"), folder.with_suffix(".marks")

    @asynccontextmanager
    async def started(self, role: str, **more: Any) -> AsyncIterator[PeerProcess]:
        """A process of the system's program."""
        asked = {
            **self.place.asked,
            "name": self.folder.name,
            "at_once": self.settings.at_once,
            "messages": self.settings.messages,
            "bytes": self.settings.message_bytes,
            "gate": str(self.gate),
            "marks": str(self.marks),
            "register": True,
            **more,
        }
        command = [self.place.python, PROGRAMS / self.system.program, role, json.dumps(asked)]
        async with running(command, self.folder.with_suffix(".errors")) as process:
            yield process

    @asynccontextmanager
    async def worker(self, **more: Any) -> AsyncIterator[PeerProcess | None]:
        """A worker that takes work; None where the client's process executes the runs."""
        if self.system.in_process:
            yield None
            return
        async with self.started("worker", **more) as process:
            await process.said("ready")
            yield process

    async def client(self, answer: str, **more: Any) -> Any:
        """What a client's process has measured."""
        async with self.started("client", **more) as process:
            found = await process.said(answer)
            await process.end()
            return found


async def measure_speed(session: Session, wanted: frozenset[str]) -> Values:
    """Runs a second, started and awaited or appended in bulk, and the time of a lone run of ten steps."""
    settings, found = session.settings, Values()
    async with session.worker(serve="runs"):
        if "runs" in wanted:
            seconds = await session.client("seconds", do="runs", count=settings.runs, warm=settings.warm)
            found["runs"] = settings.runs / seconds
        if "bulk" in wanted and session.system.bulk:
            found["bulk"] = await _bulk(session)
        if "lone" in wanted:
            times = await session.client("ms", do="lone", count=settings.lone, warm=min(5, settings.lone))
            found["lone"] = percentile(times, 0.5)
    return found


async def _bulk(session: Session) -> float:
    settings, agent = session.settings, "pair"
    log = await open_log(session.place.asked["url"])
    try:
        async with Seen(log, agent, ("run.completed", "run.failed")) as seen:
            await run_all(log, seen, agent, settings.warm)
            seconds = await run_all(log, seen, agent, settings.runs)
            if seen.counts.get("run.failed"):
                raise RuntimeError("runs have failed")
    finally:
        await log.close()
    return settings.runs / seconds


async def measure_takeover(session: Session, wanted: frozenset[str]) -> Values:
    """Seconds from SIGKILL of the only worker to the first body of a step, and to the end of all runs.

    Each open run has done a step and is in the body of its second one, which ends at once in the worker that
    is started next. Where there is no worker, the client is killed and the next one calls all runs again.
    """
    count, serve = session.settings.open_runs, "open"
    async with (
        session.worker(serve=serve) as worker,
        session.started("client", do=serve, count=count) as client,
    ):
        await _lines(session.marks, count)
        killed = time.monotonic()
        await (worker or client).kill()
        session.marks.unlink()
        session.gate.touch()
        if worker is None:
            async with session.started("client", do=serve, count=count, resume=True) as heir:
                done = await heir.said("done_at")
        else:
            async with session.worker(serve=serve, register=False):
                done = await client.said("done_at")
    first = min(map(float, session.marks.read_text().split()))
    return {"first": first - killed, "complete": done - killed}


async def _lines(path: Path, count: int) -> None:
    """Return when the file has so many lines: the bodies that have begun."""
    async with asyncio.timeout(PATIENCE_S):
        while not path.exists() or path.read_bytes().count(b"\n") < count:
            await asyncio.sleep(0.02)


async def measure_disk(session: Session, wanted: frozenset[str]) -> Values:
    """How many times the bytes of its messages a conversation takes on the disk."""
    settings = session.settings
    before = session.place.bytes_used()
    async with session.worker(serve="talk") as worker:
        await session.client("seconds", do="talk", count=settings.conversations)
        if worker is not None and session.system.bulk:
            await worker.end()  # a file of SQLite is complete when the last process has closed it
    written = session.place.bytes_used() - before
    return {"disk": written / (settings.conversations * settings.messages * settings.message_bytes)}


Measure = Callable[[Session, frozenset[str]], Awaitable[Values]]
PARTS: Mapping[str, tuple[Measure, tuple[str, ...]]] = {
    "speed": (measure_speed, ("runs", "bulk", "lone")),
    "takeover": (measure_takeover, ("first", "complete")),
    "disk": (measure_disk, ("disk",)),
}
"""What is measured in one place, and the columns that it fills."""
