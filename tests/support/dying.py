"""A trip (`trip.py`) that a real process makes, killed at every append; another process then ends it.

    python -m tests.support.dying FOLDER goes|refused|rows

For every mode and append: a process (worker and client, on a SQLite log of its own) dies at this append, then
another one finishes the run. Each point is printed as a line of JSON (`Point`). The modes:

- before: SIGKILL when all of the append is ready and nothing is written;
- within: SIGKILL inside the SQLite transaction, after a row was inserted and before it is committed;
- torn: the kernel kills it (SIGXFSZ) in the middle of a write to the write-ahead log, at a byte that varies;
- after: SIGKILL when the append is on the log, before anybody learns of it.

In the first and the last nothing shares a commit, so that there are as many places to die at as can be; in
the others commits are as large as they come.

`rows` kills a writer at each row of a commit to several partitions, and prints how many records are there.

Processes are forked from a parent that has everything loaded, and no thread and no event loop.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypedDict, cast

from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import RunFailedError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard.catalogue import standard_catalogue
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.sqlite.chunk import CHUNK_RECORDS
from noesium_stream.log.sqlite.group import LEASE_S
from noesium_stream.testing.hooked import Commit, HookedLog
from noesium_stream.worker import Worker
from noesium_stream.worker.commit import committer
from tests.support import trip
from tests.support.events import catalogue, counted, outgoing

MODES: Final = ("before", "within", "torn", "after")
ALONE: Final = ("before", "after")
TOGETHER: Final = committer.MAX_RECORDS
CATALOGUE: Final = standard_catalogue()
"""Its schemas are made once, in the parent: a third of what a process has to do."""

PATIENCE_S: Final = 120
"""A process that hangs for longer ends by SIGALRM, and its point fails."""

Append = Callable[[], Awaitable[list[Position]]]


class Point(TypedDict):
    """What became of a run that was cut at one append.

    `target` is an event of it, by name, `signal` what its process died of, `events` all of the append.
    `recorded` is what the log had then: steps that were done (number, path), idempotency keys of effects with
    an outcome. `first` and `second` are the diary's lines of the two processes. `end` is the run's result or
    failure, `completed` all steps that are done on the log at the end, `decided` what a person has decided
    about effects.
    """

    mode: str
    target: str
    signal: int
    events: list[str]
    recorded: dict[str, list[Any]]
    first: list[dict[str, Any]]
    second: list[dict[str, Any]]
    end: dict[str, Any]
    completed: list[list[Any]]
    decided: list[str]


class Later(SystemClock):
    """The time when the lease of a process that has died has run out."""

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return super().now_ms() + round(2_000 * LEASE_S)


class DeadlyLog(HookedLog):
    """A log of which one append, or commit of a writer, is the death of this process.

    Attributes:
        appends: the events of each append so far, by what they are called in every run of this kind.
    """

    def __init__(self, inner: EventLog, mode: str, fatal: str | None, log_file: Path) -> None:
        super().__init__(inner, self._commit)
        self.appends: list[list[str]] = []
        self._mode = mode
        self._fatal = fatal
        self._log_file = log_file
        self._seen: Counter[str] = Counter()

    async def append(self, envelopes: Sequence[EventEnvelope], *, topic: str | None = None) -> list[Position]:
        """See `EventLog.append`."""
        return await self._die_or(envelopes, lambda: self.inner.append(envelopes, topic=topic))

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        return await self._die_or([record.envelope for record in outgoing], lambda: commit(outgoing))

    def _called(self, event: EventEnvelope) -> str:
        name = f"{event.event_type} {event.idempotency_key or event.payload.get('effect_id', '')}"
        self._seen[name] += 1
        return f"{name} {self._seen[name]}"

    async def _die_or(self, envelopes: Sequence[EventEnvelope], append: Append) -> list[Position]:
        names = [self._called(event) for event in envelopes]
        self.appends.append(names)
        if self._fatal not in names:
            return await append()
        trip.note(dies=names)
        if self._mode == "before":
            die()
        elif self._mode == "within":
            die_at_row(self.inner, 1)
        elif self._mode == "torn":
            self._tear(len(self.appends))
        await append()
        if self._mode == "after":
            die()
        raise AssertionError(f"{self._mode}: a dead process goes on")

    def _tear(self, number: int) -> None:
        """Let the kernel refuse what is written to the `-wal` file from some byte of the next frame on."""
        # A frame has 24 bytes of its own and a page of 4096; an append writes one frame at least.
        room = self._log_file.with_name(f"{self._log_file.name}-wal").stat().st_size
        size = room + number * 1_499 % 4_120
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def die(*_: object) -> None:
    """The end of this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_row(log: Any, number: int) -> None:
    """Die when the `number`-th row from now on is in its table, within the transaction that puts it there."""
    connection, left = log.store.connection, number

    def inserted() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            die()

    connection.create_function("inserted", 0, inserted)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type='table' AND name GLOB 'chunk_*'")
    for (table,) in tables.fetchall():
        connection.execute(
            f"CREATE TEMP TRIGGER fatal_{table} AFTER INSERT ON main.{table} BEGIN SELECT inserted(); END"
        )


def forked(work: Callable[[], Coroutine[Any, Any, object]]) -> int:
    """Do `work` in a process of its own; return what that ended with: an exit code, or minus a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(PATIENCE_S)
            asyncio.run(work())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def await_last_thread() -> None:
    """Return when the kernel has taken away the threads that have ended; a fork would leave others behind."""
    deadline = SystemClock().monotonic() + PATIENCE_S
    while len(os.listdir("/proc/self/task")) > 1:
        if SystemClock().monotonic() > deadline:
            fail("the parent has threads")
        os.sched_yield()


class Journey:
    """One run on a log of its own, by as many processes as it takes."""

    def __init__(self, folder: Path, refused: bool) -> None:
        self._folder = folder
        self._refused = refused
        self._file = folder / "log.db"
        self._diary = folder / "diary.jsonl"
        self._report = folder / "report.json"

    def point(self, mode: str, target: str) -> Point:
        """Cut it at the append of this event, and end it."""
        self._folder.mkdir()
        died = forked(partial(self.travel, mode, target))
        first = trip.read_diary(self._diary)
        # A sync node's thread may write a last line while its process dies.
        fatal = [line["dies"] for line in first if "dies" in line]
        if died > 0 or len(fatal) != 1:
            fail(f"{mode} {target}: ended with {died}, {fatal}")
        if forked(self._end) != 0:
            fail(f"{mode} {target}: the second process did not end the run")
        point = {
            "mode": mode,
            "target": target,
            "signal": -died,
            "events": fatal[0],
            "first": [line for line in first if "dies" not in line],
            "second": trip.read_diary(self._diary)[len(first) :],
            **json.loads(self._report.read_text()),
        }
        return cast(Point, point)

    async def travel(self, mode: str, target: str | None = None) -> list[list[str]]:
        """Make the run, and die at the append of an event; return what was appended."""
        trip.keep_diary(self._diary)
        # As 1, all that is submitted is a commit of its own, and so a place to die at.
        committer.MAX_RECORDS = 1 if mode in ALONE else TOGETHER  # type: ignore[misc]
        async with self._opened(SystemClock()) as log:
            deadly = DeadlyLog(log, mode, target, self._file)
            await self._run(cast(EventLog, deadly), SystemClock())
            return deadly.appends

    async def _end(self) -> None:
        trip.keep_diary(self._diary)
        clock = Later()
        async with self._opened(clock) as log:
            recorded = await self._recorded(log)
            run, end = await self._run(log, clock)
            events = [event async for event in run.events(follow=False)]
            decided = [e.payload["decision"] for e in events if e.event_type == "effect.resolved"]
            report = {"recorded": recorded, "end": end, "completed": completed(events), "decided": decided}
            self._report.write_text(json.dumps(report))

    @asynccontextmanager
    async def _opened(self, clock: Clock) -> AsyncIterator[EventLog]:
        # A kill loses nothing that was handed to the kernel: there is no need to wait for the disk.
        url = f"sqlite:///{self._file}?partitions=1&synchronous=NORMAL"
        log = await open_log(url, catalogue=CATALOGUE, clock=clock)
        try:
            yield log
        finally:
            await log.close()

    async def _recorded(self, log: EventLog) -> dict[str, list[Any]]:
        async with Client(log) as client:
            events = [
                event
                for info in await client.list_runs()
                async for event in (await client.get_run(info.run_id)).events(follow=False)
            ]
        keys = {e.payload["effect_id"]: e.payload["idempotency_key"] for e in events if is_intent(e)}
        outcomes = [keys[e.payload["effect_id"]] for e in events if is_outcome(e)]
        return {"completed": completed(events), "outcomes": outcomes}

    async def _run(self, log: EventLog, clock: Clock) -> tuple[Run, dict[str, Any]]:
        agents = [agent_from_graph(trip.trip(), "trip")]
        async with (
            Worker(log, agents, home=self._folder, clock=clock) as worker,
            Client(log, clock=clock) as client,
        ):
            given = {"refuse": self._refused, "booked": []}
            run = await client.start("trip", given, idempotency_key="trip")
            broken = asyncio.create_task(worker.wait())
            helping = asyncio.create_task(assist(run))
            try:
                await asyncio.wait([broken, helping], return_when=asyncio.FIRST_COMPLETED)
                if broken.done():
                    broken.result()
                await helping
                return run, await end_of(run)
            finally:
                for task in (broken, helping):
                    task.cancel()


async def assist(run: Run) -> None:
    """Do what people do for the run until it has ended."""
    async for event in run.events():
        if event.event_type == "approval.requested":
            if [one.status for one in await run.approvals()] == ["open"]:
                await run.approve(value="yes", by="anna")
        elif event.event_type == "effect.outcome.unknown":
            for effect in await run.unresolved_effects():
                if trip.done[effect.name, effect.idempotency_key]:
                    await run.resolve_effect(effect.effect_id, "result", "posted")
                else:
                    await run.resolve_effect(effect.effect_id, "retry")


async def end_of(run: Run) -> dict[str, Any]:
    """The run's final state, or what became of it."""
    try:
        result = await run.result()
        return {**result, "booked": sorted(result["booked"]), "status": "completed"}
    except RunFailedError as error:
        [failed] = [e async for e in run.events(follow=False) if e.event_type == "run.failed"]
        undone = [one["outcome"] for one in failed.payload["compensated"]]
        return {"status": "failed", "error": str(error), "compensated": undone}


def completed(events: Sequence[EventEnvelope]) -> list[list[Any]]:
    """The steps that are done, by number and path, as often as the log says so."""
    done = [e.payload for e in events if e.event_type == "kernel.node.completed"]
    return [[payload["step"], payload["task_path"]] for payload in done]


def is_intent(event: EventEnvelope) -> bool:
    """Whether an effect is about to be performed."""
    return event.event_type == "effect.requested"


def is_outcome(event: EventEnvelope) -> bool:
    """Whether it is known what came of an effect."""
    return event.event_type in ("effect.completed", "effect.failed")


def fail(reason: str) -> NoReturn:
    """End the parent."""
    sys.exit(reason)


def cut_rows(folder: Path) -> None:
    """Kill a writer at each row of one commit; print what the next process finds: records per partition."""
    number, died = 0, -signal.SIGKILL
    while died == -signal.SIGKILL:
        number += 1
        path, report = folder / f"rows-{number}.db", folder / f"rows-{number}.json"
        died = forked(partial(_commit_rows, path, number))
        if forked(partial(_count_rows, path, report)) != 0:
            fail(f"row {number}: the log cannot be read")
        print(json.dumps({"died": died, "found": json.loads(report.read_text())}), flush=True)


async def _commit_rows(path: Path, number: int) -> None:
    log = await open_log(f"sqlite:///{path}?partitions=2", catalogue=catalogue())
    journal, inbox = log.topology.journal("demo"), log.topology.inbox("demo")
    await log.ensure_topics([log.topology.spec(topic) for topic in (journal, inbox)])
    writer = await log.writer("w")
    die_at_row(log, number)
    many = CHUNK_RECORDS + 1  # two rows
    await writer.commit(
        [
            *outgoing([counted(1)] * 3, inbox, 0),
            *outgoing([counted(1)] * 2, inbox, 1),
            *outgoing([counted(1)] * many, journal, 0),
            *outgoing([counted(1)], journal, 1),
        ]
    )
    await log.close()


async def _count_rows(path: Path, report: Path) -> None:
    log = await open_log(f"sqlite:///{path}?partitions=2", catalogue=catalogue())
    found: dict[str, int] = {}
    for topic in (log.topology.inbox("demo"), log.topology.journal("demo")):
        async for record in log.read(topic, {}, until=await log.end(topic)):
            place = f"{topic.rsplit('.', 1)[1]}/{record.partition}"
            found[place] = found.get(place, 0) + 1
    writer = await log.writer("w")
    await writer.commit(outgoing([counted(2)], log.topology.journal("demo"), 1))
    await log.close()
    report.write_text(json.dumps(found))


def main(folder: Path, what: str) -> None:
    """Cut a commit, or a run everywhere."""
    if what == "rows":
        cut_rows(folder)
        return
    refused = what == "refused"
    for mode in MODES:
        # Undisturbed, and in this process: what all the others need is then loaded, made and compiled.
        base = folder / mode
        base.mkdir()
        appends = asyncio.run(Journey(base, refused).travel(mode))
        await_last_thread()
        gc.freeze()
        # How events share commits varies a little: each append is known by the first of its events.
        # What is torn means nothing to the file system: there a third of them will do.
        for number, target in enumerate(targets(appends)[:: 3 if mode == "torn" else 1]):
            print(json.dumps(Journey(base / str(number), refused).point(mode, target)), flush=True)


def targets(appends: Sequence[Sequence[str]]) -> list[str]:
    """The first event of each append, and one of each type that is no first one."""
    found = [names[0] for names in appends]
    types = {name.split()[0] for name in found}
    for name in (name for names in appends for name in names):
        if name.split()[0] not in types:
            types.add(name.split()[0])
            found.append(name)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
