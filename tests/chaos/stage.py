"""One run: a workload, a process that is killed at a point, others that finish, and the verdict."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.chaos.check import counted, judged
from tests.chaos.launcher import HASH_SEEDS, Launched, Launcher
from tests.chaos.ledger import read_ledger
from tests.chaos.people import AWAY, People, Reader, patiently
from tests.chaos.points import POINTS, Point
from tests.chaos.refold import REPORT
from tests.chaos.wire import WireProxy
from tests.chaos.workload import KINDS, SUMS, Command, Counted, Summed, workload_of
from tests.sim.cast import GO, ParcelSeen
from tests.support.invariants import Asked

PATIENCE_S = 60.0
"""So long after the kill everything has to have an outcome."""

STOP_S = 10.0
"""So long a worker may take to end after SIGTERM."""


@dataclass(slots=True)
class Outcome:
    """What became of one run.

    Attributes:
        faults: what did not hold; empty: all did.
        caught_up_s: from the kill until everything had an outcome; None: it has not.
        took_s: all of it.
        notes: what happened, for the curious.
    """

    seed: int
    point: str
    log: str
    faults: list[str] = field(default_factory=list)
    caught_up_s: float | None = None
    took_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        verdict = ", ".join(f"{count} {word}" for word, count in counted(self.faults).items())
        caught = "never" if self.caught_up_s is None else f"{self.caught_up_s:.1f} s"
        place = f"seed {self.seed} {self.point} {self.log}"
        phases = " ".join(f"{name} {took_s:.1f}" for name, took_s in self.phases.items())
        told = "; ".join(self.notes)
        return f"{place}: {verdict}; caught up: {caught}; {self.took_s:.1f} s ({phases}); {told}"


class Stage:
    """The processes, clients and people around one log, for as long as its context lasts.

    Args:
        launcher: starts the processes.
        folder: for all that they keep; new.
        url: of the log.
        seed: of the workload, and of what else is left to chance; any text.
        plant: a bug that all workers have; see `plants`.
    """

    def __init__(
        self, launcher: Launcher, folder: Path, url: str, seed: str, plant: str | None = None
    ) -> None:
        self.url = url
        self.folder = folder
        self.ledger = folder / "ledger.jsonl"
        self.chance = Random(seed)
        self.workload = workload_of(self.chance.randrange(1 << 32))
        self.asked: dict[str, Asked] = {}
        self.facts: list[tuple[str, int]] = []
        self.processes: list[Launched] = []
        self.faults: list[str] = []
        self.kept: dict[str, str] = {}
        self.log: EventLog
        self.reader: Reader
        self._seed = seed
        self._plant = plant
        self._launcher = launcher
        self._helping: asyncio.Task[None] | None = None
        self._clock = SystemClock()

    async def __aenter__(self) -> Stage:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = log = await open_log(self.url)
        for event in (Counted, Summed, ParcelSeen):
            log.catalogue.register(event)
        topology = log.topology
        topics = [topology.events("things"), topology.events("sums"), topology.journal(SUMS)]
        for kind in KINDS:
            topics += [topology.inbox(kind), topology.journal(kind)]
        await log.ensure_topics([topology.spec(topic) for topic in topics])
        self.reader = Reader(log, self.chance.randrange(1, 150))
        self.reader.begin()
        people = People(log, self.reader, self.ledger, self.alive, Random(f"{self._seed} people"))
        self._helping = asyncio.create_task(people.help())
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._helping is not None:
            self._helping.cancel()
            await asyncio.wait([self._helping])
            if not self._helping.cancelled():
                self._helping.result()
        await self.reader.close()
        await asyncio.gather(*(one.kill() for one in self.processes if one.code is None))
        await self.log.close()

    # -- processes ---------------------------------------------------------------------------------------

    async def start(self, name: str, *, url: str | None = None, **options: Any) -> Launched:
        """Start a process on the log (or by another way to it); see `Launcher.start`."""
        one = await self._launcher.start(
            name,
            url=url or self.url,
            ledger=self.ledger,
            folder=self.folder,
            seed=self._seed,
            plant=self._plant,
            hash_seed=self.chance.randrange(len(HASH_SEEDS)),
            **options,
        )
        self.processes.append(one)
        return one

    def alive(self) -> set[str]:
        """The names of the processes that live."""
        return {one.name for one in self.processes if one.alive}

    async def kill(self, victim: Launched) -> None:
        """SIGKILL, and keep what it has kept, as it is then."""
        code = await victim.kill()
        if code != -signal.SIGKILL:
            self.faults.append(
                f"worker: {victim.name} ended with {code} before it was killed: {said(victim)}"
            )
        name = f"killed-{victim.name}"
        shutil.copytree(victim.home, self.folder / "kept" / name)
        self.kept[name] = str(self.folder / "kept" / name)

    async def stop(self) -> None:
        """Let all that live end in order, and keep what they have kept."""
        alive = [one for one in self.processes if one.alive]
        for one in alive:
            one.signal(signal.SIGTERM)
        for one in alive:
            try:
                code = await one.ended(STOP_S)
            except TimeoutError:
                self.faults.append(f"worker: {one.name} has not ended: {said(one)}")
                await one.kill()
            else:
                if code != 0:
                    self.faults.append(f"worker: {one.name} ended with {code}: {said(one)}")
        for one in self.processes:
            self.kept.setdefault(f"left-{one.home.name}", str(one.home))

    # -- clients -----------------------------------------------------------------------------------------

    async def ask(self, first: float, last: float) -> None:
        """Send a part of the workload: from one share of it to another, 0 to 1."""
        things: list[Command | tuple[str, int]] = [*self.workload.commands, *self.workload.facts]
        Random(f"{self._seed} order").shuffle(things)
        client = Client(self.log, agent_id="harness")
        for thing in things[round(first * len(things)) : round(last * len(things))]:
            if isinstance(thing, Command):
                await self._start(client, thing)
            else:
                await self._count(*thing)

    async def _count(self, key: str, number: int) -> None:
        event = Counted(number=number).to_envelope(
            AgentRef("harness", "harness"),
            TraceContext(self._clock.token(16), self._clock.token(8)),
            partition_key=key,
            clock=self._clock,
        )
        await until_there(partial(self.log.append, [event]))
        self.facts.append((key, number))

    async def _start(self, client: Client, command: Command) -> None:
        for _ in range(command.copies):
            run = await until_there(
                lambda: client.start(
                    command.agent_type, {"orders": command.orders}, idempotency_key=command.key
                )
            )
            self.asked[run.id] = Asked(run.id, command.agent_type, [command.gives])
        for _ in range(command.signals):
            await patiently(partial(run.signal, GO, GO))

    def all_ended(self) -> bool:
        """Whether all runs that are known of have an outcome."""
        return self.asked.keys() | self.reader.known.keys() <= self.reader.ended

    async def settled(self, patience_s: float = PATIENCE_S) -> bool:
        """Whether, by and by, all has an outcome; what has not is among the faults later."""
        try:
            async with asyncio.timeout(patience_s):
                await self.reader.until(self.all_ended, patience_s)
                await self._summed()
        except TimeoutError:
            return False
        return True

    async def _summed(self) -> None:
        left = len(self.facts)
        async for batch in self.log.read_batches(self.log.topology.events("sums"), {}):
            left -= len(batch)
            if left <= 0:
                return

    # -- the end -----------------------------------------------------------------------------------------

    async def judge(self) -> list[str]:
        """What did not hold; nothing is under way any more."""
        reports = await self._refolded()
        topics = [self.log.topology.journal(kind) for kind in KINDS]
        ends = [await self.log.end(topic) for topic in topics]
        count = 0
        for topic, end in zip(topics, ends, strict=True):
            async for batch in self.log.read_batches(topic, {}, until=end):
                count += len(batch)
        with suppress(TimeoutError):  # what it was not given is a fault
            await self.reader.until(lambda: sum(map(len, self.reader.seen.values())) >= count, 10.0)
        calls = read_ledger(self.ledger)
        self.faults += await judged(self.log, self.asked.values(), self.facts, calls, self.reader, reports)
        return self.faults

    async def _refolded(self) -> list[dict[str, Any]]:
        folds = []
        for index in range(len(HASH_SEEDS)):
            folds.append(
                await self._launcher.start(
                    f"fold{index}",
                    url=self.url,
                    ledger=self.ledger,
                    folder=self.folder,
                    role="fold",
                    hash_seed=index,
                    more=self.kept,
                )
            )
        reports = []
        for one in folds:
            code = await one.ended()
            assert code == 0, one.said()
            reports.append(json.loads((one.home / REPORT).read_text()))
        return reports


def said(process: Launched) -> str:
    """The end of what a process said."""
    return process.said()[-2000:]


async def until_there(send: Callable[[], Awaitable[Any]]) -> Any:
    """Send until the log has it."""
    while True:
        try:
            return await send()
        except AWAY:
            await asyncio.sleep(0.2)


async def play(
    launcher: Launcher,
    folder: Path,
    url: str,
    name: str,
    seed: int,
    bootstrap: str | None = None,
    plant: str | None = None,
) -> Outcome:
    """Kill a process at a point, let others finish, and judge.

    Args:
        launcher: starts the processes.
        folder: for all that they keep; new.
        url: of a log that nobody else uses.
        name: of the point.
        seed: of what is left to chance.
        bootstrap: of the broker, if the log is Kafka's.
        plant: a bug that all workers have.
    """
    outcome = Outcome(seed, name, url.partition(":")[0])
    begun = time.monotonic()
    last = begun

    def passed(phase: str) -> None:
        nonlocal last
        now = time.monotonic()
        outcome.phases[phase], last = now - last, now

    async with Stage(launcher, folder, url, f"{name} {seed}", plant) as stage:
        passed("made")
        scene = Scene(stage, POINTS[name], name, outcome, bootstrap)
        try:
            await scene.play(passed)
            await stage.stop()
            passed("stopped")
            await stage.judge()
            passed("judged")
        except TimeoutError:
            tails = [f"{one.name}: {said(one)}" for one in stage.processes]
            stage.faults.append(f"lost: waited for too long; {tails}")
        finally:
            await scene.close()
        outcome.faults = stage.faults
    passed("closed")
    outcome.took_s = last - begun
    return outcome


class Scene:
    """Who is there, who is killed, and who goes on."""

    def __init__(
        self, stage: Stage, point: Point, name: str, outcome: Outcome, bootstrap: str | None
    ) -> None:
        self._stage = stage
        self._point = point
        self._name = name
        self._outcome = outcome
        self._chance = stage.chance
        self._wire = bootstrap if point.wire is not None else None
        self._proxy: WireProxy | None = None
        self._number = self._chance.randint(1, point.most)
        outcome.notes.append(f"number {self._number}")

    async def play(self, passed: Callable[[str], None]) -> None:
        """From the first process to the last outcome; tells what has passed."""
        stage = self._stage
        victim, asking = await getattr(self, f"_{self._point.scene}")()
        try:
            await self._arrival(victim)
        finally:
            await asking
        passed("struck")
        killed = time.monotonic()
        await stage.kill(victim)
        await stage.ask(0.7, 1.0)
        await self._succeed(victim)
        if await stage.settled():
            self._outcome.caught_up_s = time.monotonic() - killed
        passed("settled")

    async def close(self) -> None:
        """Nothing is forwarded any more."""
        if self._proxy is not None:
            await self._proxy.close()

    # -- who is struck -----------------------------------------------------------------------------------

    async def _worker(self) -> tuple[Launched, asyncio.Task[None]]:
        """At work from the beginning; perhaps beside another one."""
        if self._chance.random() < 0.4:
            self._number = (self._number + 3) // 4
            await self._stage.start("standby")
        victim = await self._armed("victim")
        return victim, self._ask()

    async def _taker(self) -> tuple[Launched, asyncio.Task[None]]:
        """It takes over from one that died, or that was told to stop."""
        first = await self._stage.start("first")
        asking = self._ask()
        await self._some_ended()
        if self._chance.random() < 0.5:
            await self._stage.kill(first)
        else:
            first.signal(signal.SIGTERM)
        # With the state that the first one has kept, or without.
        home = first.home if self._chance.random() < 0.3 else None
        if home is not None:
            self._number = 1
            await first.ended()
        return await self._armed("victim", home=home), asking

    async def _giver(self) -> tuple[Launched, asyncio.Task[None]]:
        """Another one joins, and it gives up a part."""
        victim = await self._armed("victim")
        asking = self._ask()
        await self._some_ended()
        await self._stage.start("joiner")
        return victim, asking

    async def _joiner(self) -> tuple[Launched, asyncio.Task[None]]:
        """It joins another one, and is given a part."""
        await self._stage.start("first")
        asking = self._ask()
        await self._some_ended()
        return await self._armed("victim"), asking

    async def _leaver(self) -> tuple[Launched, asyncio.Task[None]]:
        """It was told to stop."""
        victim = await self._armed("victim")
        asking = self._ask()
        await self._some_ended()
        victim.signal(signal.SIGTERM)
        return victim, asking

    async def _projection(self) -> tuple[Launched, asyncio.Task[None]]:
        """It is no worker, but folds what one writes."""
        await self._stage.start("worker")
        return await self._armed("victim", role="projection"), self._ask()

    def _ask(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._stage.ask(0.0, 0.7))

    async def _some_ended(self) -> None:
        count = self._chance.randint(1, 5)
        await self._stage.reader.until(lambda: len(self._stage.reader.ended) >= count, PATIENCE_S)

    async def _armed(self, name: str, **options: Any) -> Launched:
        if self._wire is None:
            return await self._stage.start(name, point=self._name, number=self._number, **options)
        self._proxy = WireProxy(self._wire, self._point.wire, self._number)
        await self._proxy.open()
        url = self._stage.url.replace(self._wire, self._proxy.bootstrap)
        return await self._stage.start(name, url=url, **options)

    async def _arrival(self, victim: Launched) -> None:
        """Return when it has come to its point.

        Raises:
            AssertionError: it has ended before, or goes on for ever.
        """
        if self._proxy is None:
            with suppress(TimeoutError):
                await victim.arrived()
            assert victim.stands, f"{self._name} {self._number}: it never came to that: {said(victim)}"
            self._outcome.notes += victim.lines[-1:]
        else:
            async with asyncio.timeout(PATIENCE_S):
                await self._proxy.held.wait()

    # -- who goes on -------------------------------------------------------------------------------------

    async def _succeed(self, victim: Launched) -> None:
        """The held request comes in late, or never; another process is there, or is started."""
        late = self._chance.choice(("lost", "at once", "later"))
        held = self._proxy is not None and self._point.wire == "request"
        if held:
            self._outcome.notes.append(f"EndTxn {late}")
        if self._proxy is not None and held and late == "at once":
            await self._proxy.deliver()
        role = "projection" if self._point.scene == "projection" else "worker"
        others = [one for one in self._stage.processes if one.alive and one is not victim]
        if role == "projection" or not others:
            warm = self._chance.random() < 0.5
            self._outcome.notes.append("warm" if warm else "cold")
            await self._stage.start("next", role=role, home=victim.home if warm else None)
        else:
            self._outcome.notes.append(f"goes on: {', '.join(one.name for one in others)}")
        if self._proxy is not None and held and late == "later":
            before = len(self._stage.reader.acquired)
            reader = self._stage.reader
            await reader.until(lambda: len(reader.acquired) > before, PATIENCE_S)
            await self._proxy.deliver()
