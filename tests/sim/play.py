"""Plays one seed: workers, clients, people and a reader on one simulated broker, and judges what is left."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from noesium_stream.agent import BaseAgent, BaseGraphicAgent
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.topics import Topology
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.slots import CONCURRENCY
from tests.sim.broker import SESSION_S, Broker, Link
from tests.sim.cast import Caller, Carrier, NewCaller, NewCarrier, Runner, Walker
from tests.sim.clock import START_MS, SimClock
from tests.sim.counting import on_the_log
from tests.sim.disk import MEMORY, Disks, files_of_processes
from tests.sim.log import Remembered, sim_log
from tests.sim.loop import Lane, SimLoop, StalledError
from tests.sim.people import People
from tests.sim.plan import TROUBLE_S, Mishap, Plan, plan_of
from tests.sim.reading import Reader
from tests.sim.savings import worked_out_once
from tests.sim.tool_cast import FreeTooler, Tooler
from tests.sim.tool_rules import wrong_replays, wrong_tool_calls
from tests.sim.verdict import late_calls, wrong_ends, wrong_versions, wrong_words
from tests.sim.world import WORLD, World
from tests.support import invariants
from tests.support.invariants import Book
from tests.support.watching import AWAY

PATIENCE_S: Final = 900.0
"""So long after the last mishap everything has to have an outcome."""

STOPPING_S: Final = 60.0
"""So long a worker that was told to stop may take at most (its effects, what was sent, its group)."""

_PLAYS_OF_GARBAGE: Final = 50
"""After so many plays all that they left behind is looked at."""

Carried = tuple[Sequence[type[BaseGraphicAgent]], Sequence[type[BaseGraphicAgent]]]
OLD: Final = (Caller, Carrier)
NEW: Final = (NewCaller, NewCarrier)
FETCHERS: Final = (Runner, Walker)
TOOL_CALLERS: Final = (Tooler, FreeTooler)


@dataclass(slots=True)
class Outcome:
    """What became of a seed.

    Attributes:
        faults: what did not hold; empty: all did.
        trace: equal for equal plays.
        counts: what happened, for the curious.
    """

    seed: int
    faults: list[str]
    trace: int
    counts: dict[str, int]
    said: list[str]
    book: Book | None = None


MakeStage = Callable[[SimLoop, int, Path], "Stage"]


def play(seed: int, *, keep: bool = False, make_stage: MakeStage | None = None) -> Outcome:
    """Play a seed from its beginning; `keep`: what is on the log is handed back too.

    `make_stage` makes another kind of world than the usual one.
    """
    with (
        _no_collecting(),
        TemporaryDirectory(prefix="noesium-sim-", dir=MEMORY) as folder,
        files_of_processes(),
        worked_out_once(),
    ):
        return _play(seed, Path(folder), keep, make_stage or usual_stage)


@contextmanager
def _no_collecting() -> Iterator[None]:
    """The collector of garbage would end forgotten generators when it likes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def usual_stage(loop: SimLoop, seed: int, folder: Path) -> Stage:
    """The world of `plan_of`."""
    return Stage(loop, plan_of(seed), folder)


def _play(seed: int, folder: Path, keep: bool, make_stage: MakeStage) -> Outcome:
    loop = SimLoop(Random(f"{seed} schedule"))
    asyncio.set_event_loop(loop)
    stage = make_stage(loop, seed, folder)
    try:
        book = None
        try:
            book = loop.run_until_complete(stage.play())
        except StalledError:
            stage.faults.append("lost: nobody can go on, and not everything has an outcome")
        trace = loop.trace
        counts = stage.counts(book)
        return Outcome(seed, stage.faults, trace, counts, stage.said, book if keep else None)
    finally:
        stage.end()
        loop.clear()
        asyncio.set_event_loop(None)
        loop.close()


@dataclass
class Machine:
    """A worker process.

    Attributes:
        carries: the agents that new runs begin with, and other versions of them.
        instance_id: what its events say; None until it runs.
        leaving: it was told to stop.
    """

    name: str
    lane: Lane
    link: Link
    carries: Carried
    worker: Worker | None = None
    instance_id: str | None = None
    leaving: bool = False
    ended: bool = False
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def alive(self) -> bool:
        return not self.lane.dead and not self.ended


class Stage:
    """One world."""

    def __init__(self, loop: SimLoop, plan: Plan, folder: Path) -> None:
        self.loop = loop
        self.plan = plan
        self.disks = Disks(folder, Random(f"{plan.seed} disks"), plan.workers)
        self.chance = Random(f"{plan.seed} stage")
        self.topology = Topology(partitions=plan.partitions)
        self.broker = Broker(loop, Random(f"{plan.seed} broker"))
        self.world = World(Random(f"{plan.seed} world"))
        self.world.refusals.update(plan.refusals)
        self.faults: list[str] = []
        self.said: list[str] = []
        self.machines: list[Machine] = []
        self.reader = Reader(self, self.chance)
        self.people = self._people()
        self._calm = False
        self._links: list[Link] = []
        self._remembered = Remembered()
        self._releases = Random(f"{plan.seed} releases")
        self._lanes: dict[str, Lane] = {}

    # -- the play --------------------------------------------------------------------------------------

    async def play(self) -> Book:
        self.reader.begin()
        for _ in range(self.plan.workers):
            self.add_machine()
        for mishap in self.plan.mishaps:
            self.loop.outside.call_later(mishap.at_s, self._befall, mishap)
        self.loop.outside.call_later(TROUBLE_S, self._calm_down)
        people = self.people.begin()
        await asyncio.sleep(self.plan.lingers_s)
        until = TROUBLE_S + PATIENCE_S
        await self._until_all_done(until)
        self._calm_down()
        await asyncio.sleep(2 * SESSION_S)
        # A command of which its client never learned that it is on the log may have been begun only now.
        await self._until_all_done(until)
        until = self.loop.time() + STOPPING_S
        while self.loop.time() < until and any(m.leaving and m.alive for m in self.machines):
            await asyncio.sleep(1.0)
        for task in people:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.faults.append(f"client: {task.exception()!r}")
        return await self._judge()

    async def _until_all_done(self, until: float) -> None:
        while self.loop.time() < until and not self._all_done():
            await asyncio.sleep(1.0)

    def _all_done(self) -> bool:
        return self.people.busy == 0 and not self.reader.watch.open_runs(self.people.asked)

    def end(self) -> None:
        """Nothing is served any more."""
        for link in self._links:
            link.calm()
            link.cut = True

    def say(self, line: str) -> None:
        self.said.append(f"{self.loop.time():10.4f} {line}")

    def lane(self, name: str) -> Lane:
        """The process of somebody who is no worker."""
        if name not in self._lanes:
            self._lanes[name] = self.loop.lane(name)
        return self._lanes[name]

    def link(self, lane: Lane, odds: dict[str, float]) -> Link:
        link = Link(self.broker, lane, Random(f"{self.plan.seed} link {lane.name}"), odds)
        self._links.append(link)
        return link

    def log(self, link: Link, skew_ms: int = 0) -> EmbeddedLog:
        return sim_log(link, self.clock(link.lane.name, skew_ms), self.topology)

    def log_to_look_at(self, link: Link) -> EmbeddedLog:
        """For those who are no part of what is tried."""
        return sim_log(link, self.clock(link.lane.name), self.topology, self._remembered)

    def clock(self, name: str, skew_ms: int = 0) -> SimClock:
        return SimClock(self.loop, Random(f"{self.plan.seed} clock {name}"), skew_ms)

    def seconds_of(self, timestamp_ms: int) -> float:
        """The virtual time of a moment in milliseconds since the epoch."""
        return (timestamp_ms - START_MS) / 1000

    # -- workers ---------------------------------------------------------------------------------------

    def add_machine(self) -> None:
        """Start a worker process of its own."""
        number = len(self.machines)
        lane = self.loop.lane(f"worker{number}")
        link = self.link(lane, {} if self._calm else self.plan.odds)
        machine = Machine(lane.name, lane, link, self._carried())
        self.machines.append(machine)
        skews = self.plan.skews_ms
        home = self.disks.home(number)
        lane.spawn(self._work(machine, home, skews[number % len(skews)]), lane.name)

    def _carried(self) -> Carried:
        """What a worker that starts now carries; in the end all carry all."""
        if not self.plan.upgrades:
            return OLD, ()
        if self._calm:
            return NEW, OLD
        return self._releases.choice(((OLD, ()), (NEW, ()), (NEW, OLD), (OLD, NEW)))

    def _people(self) -> People:
        return People(self)

    def _agents(self, machine: Machine) -> Sequence[type[BaseAgent]]:
        """The agents that a worker carries."""
        return (*machine.carries[0], *self._others())

    def _others(self) -> Sequence[type[BaseGraphicAgent]]:
        fetchers = FETCHERS if self.plan.fetches else ()
        return (*fetchers, *(TOOL_CALLERS if self.plan.tools else ()))

    async def _work(self, machine: Machine, home: Path, skew_ms: int) -> None:
        WORLD.set(self.world)
        name = machine.name
        self.say(f"{name} starts")
        log = self.log(machine.link, skew_ms)
        worker = Worker(
            log,
            [*self._agents(machine)],
            other_versions=machine.carries[1],
            home=home,
            progress=lambda line: self.say(f"{name}: {line}"),
            clock=self.clock(name, skew_ms),
            grace=self.plan.grace_s,
            keep_state=self.plan.keeps_state,
            concurrency=self.plan.at_once or CONCURRENCY,
        )
        machine.worker = worker
        machine.instance_id = worker.instance_id
        try:
            async with worker:
                ends = [asyncio.create_task(worker.wait()), asyncio.create_task(machine.stop.wait())]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in ends:
                    if not task.done():
                        task.cancel()
                if ends[0].done():
                    ends[0].result()
        except AWAY as error:
            self.say(f"{name} ends: {error!r}")
        except Exception as error:
            self.faults.append(f"worker: {name} ended with {error!r}")
        machine.ended = True
        self.say(f"{name} has ended")
        self._replace()

    def _replace(self) -> None:
        """Another process is started by and by where too few are left."""
        alive = [machine for machine in self.machines if machine.alive and not machine.leaving]
        if not alive or (len(alive) < self.plan.workers and self.chance.random() < 0.7):
            self.loop.outside.call_later(self.chance.choice((0.01, 1.0, 9.0)), self._replace_now)

    def _replace_now(self) -> None:
        if self._too_few():
            self.add_machine()

    def _too_few(self) -> bool:
        return sum(machine.alive and not machine.leaving for machine in self.machines) < self.plan.workers

    # -- mishaps ---------------------------------------------------------------------------------------

    def _befall(self, mishap: Mishap) -> None:
        if self._calm:
            return  # what it did to a worker would go on while the play is judged
        if mishap.kind == "join":
            self.add_machine()
            return
        alive = [machine for machine in self.machines if machine.alive]
        if not alive:
            return
        machine = alive[mishap.victim % len(alive)]
        lane = machine.lane
        self.say(f"{mishap.kind} {machine.name} for {mishap.seconds:.2f} s after {mishap.steps} callbacks")
        if mishap.kind == "kill":
            lane.fatal = lane.steps + 1 + mishap.steps
        elif mishap.kind == "pause":
            lane.rests[lane.steps + 1 + mishap.steps] = mishap.seconds
        elif mishap.kind == "cut":
            machine.link.cut = True
            self.loop.outside.call_later(mishap.seconds, self._heal, machine.link)
        elif mishap.kind == "stop":
            self._stop(machine)
        self.loop.outside.call_later(mishap.seconds / 2, self._replace)

    def _heal(self, link: Link) -> None:
        link.cut = False
        self.broker.store.changes.notify()

    def _calm_down(self) -> None:
        self._calm = True
        for link in self._links:
            link.calm()
        for machine in self.machines:
            machine.lane.fatal = None
            machine.lane.rests.clear()
            if self.plan.upgrades and machine.alive and not machine.carries[1]:
                self._stop(machine)
        while self._too_few():
            self.add_machine()

    def _stop(self, machine: Machine) -> None:
        machine.leaving = True
        machine.lane.call_later(0, machine.stop.set)

    # -- the end ---------------------------------------------------------------------------------------

    async def _judge(self) -> Book:
        log = self.log_to_look_at(self.link(self.loop.outside, {}))
        book = await invariants.read_book(log, self.plan.kinds)
        self.faults += await self._broken_rules(log, book)
        for machine in self.machines:
            if machine.leaving and machine.alive:
                self.faults.append(f"worker: {machine.name} was told to stop, and has not ended")
        names = {m.instance_id: m.name for m in self.machines if m.instance_id is not None}
        self.faults += late_calls(book, self.world.calls, names, self.seconds_of)
        self.faults += self.reader.watch.faults(book)
        # A callback that raises is nobody's to catch: what it was to do has not been done.
        raised = [
            said for said in self.loop.complaints if said["message"].startswith("Exception in callback")
        ]
        self.faults += [f"raised: {said['message']}: {said['exception']!r}" for said in raised]
        return book

    async def _broken_rules(self, log: EmbeddedLog, book: Book) -> list[str]:
        """What does not hold of this kind of world."""
        people, calls = self.people, self.world.calls
        return [
            *invariants.broken(book, people.asked.values(), calls, people.spoiled),
            *wrong_ends(book),
            *wrong_versions(book),
            *wrong_words(book),
            *wrong_tool_calls(book, calls),
            *await wrong_replays(log, book, self.disks.home(0)),
        ]

    def counts(self, book: Book | None) -> dict[str, int]:
        """What happened."""
        found = {
            "machines": len(self.machines),
            "calls": len(self.world.calls),
            "faults drawn": sum(len(link.faults) for link in self._links),
            "callbacks": sum(lane.steps for lane in self.loop._lanes),
            "seconds": round(self.loop.time()),
        }
        if book is not None:
            found.update(on_the_log(book))
        return found


def played(seeds: Sequence[int], make_stage: MakeStage | None = None) -> Iterator[Outcome]:
    """Play one after the other."""
    with _no_collecting():
        gc.freeze()  # what is there has not to be looked at each time
        for count, seed in enumerate(seeds, 1):
            outcome = play(seed, make_stage=make_stage)
            outcome.said.clear()
            yield outcome
            # At once, while the processor has it at hand; what outlives it is looked at now and then.
            gc.collect(2 if count % _PLAYS_OF_GARBAGE == 0 else 0)
