"""Plays one seed: workers, clients, people and a reader on one simulated broker, and judges what is left."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from noesium_stream.client import Client, Run
from noesium_stream.errors import (
    ApprovalClosedError,
    ApprovalError,
    CommitUnknownError,
    EffectDecisionError,
    LogFullError,
    LogUnavailableError,
    RunEndedError,
    RunNotFoundError,
)
from noesium_stream.log.embedded import EmbeddedLog
from noesium_stream.log.generations import generations
from noesium_stream.log.record import Record
from noesium_stream.log.topics import Topology
from noesium_stream.worker import Worker
from tests.sim.broker import SESSION_S, Broker, Link
from tests.sim.cast import CALLER, CARRIER, GO, Caller, Carrier, answer_of
from tests.sim.clock import START_MS, SimClock
from tests.sim.disk import Disks, files_of_processes
from tests.sim.log import sim_log
from tests.sim.loop import Lane, SimLoop, StalledError, here
from tests.sim.plan import TROUBLE_S, Command, Growth, Mishap, Plan, plan_of
from tests.sim.world import WORLD, World
from tests.support import invariants
from tests.support.invariants import Asked, Book, Folded

PATIENCE_S: Final = 900.0
"""So long after the last mishap everything has to have an outcome."""

STOPPING_S: Final = 60.0
"""So long a worker that was told to stop may take at most (its effects, what was sent, its group)."""

AWAY: Final = (LogUnavailableError, LogFullError, CommitUnknownError)
KINDS: Final = (CALLER, CARRIER)


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


def play(seed: int, *, keep: bool = False) -> Outcome:
    """Play a seed from its beginning; `keep`: what is on the log is handed back too."""
    with TemporaryDirectory(prefix="noesium-sim-") as folder, files_of_processes():
        return _play(seed, Path(folder), keep)


def _play(seed: int, folder: Path, keep: bool) -> Outcome:
    was_enabled = gc.isenabled()
    gc.disable()  # it would end forgotten generators when it likes
    loop = SimLoop(Random(f"{seed} schedule"))
    asyncio.set_event_loop(loop)
    stage = Stage(loop, plan_of(seed), folder)
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
        if was_enabled:
            gc.enable()


@dataclass
class Machine:
    """A worker process.

    Attributes:
        instance_id: what its events say; None until it runs.
        leaving: it was told to stop.
    """

    name: str
    lane: Lane
    link: Link
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
        self.asked: dict[str, Asked] = {}
        self.reader = Reader(self)
        self._calm = False
        self._links: list[Link] = []
        self._cancelled: set[str] = set()
        self._busy = 0
        self._grown: dict[Growth, int] = {}

    # -- the play --------------------------------------------------------------------------------------

    async def play(self) -> Book:
        self.reader.begin()
        for _ in range(self.plan.workers):
            self.add_machine()
        for mishap in self.plan.mishaps:
            self.loop.outside.call_later(mishap.at_s, self._befall, mishap)
        self.loop.outside.call_later(TROUBLE_S, self._calm_down)
        clients = [*self._spawn_client(), *self._spawn_operator()]
        await asyncio.sleep(TROUBLE_S / 4)
        until = TROUBLE_S + PATIENCE_S
        while self.loop.time() < until and not (self._busy == 0 and self.reader.all_ended()):
            await asyncio.sleep(0.5)
        self._calm_down()
        await asyncio.sleep(2 * SESSION_S)
        until = self.loop.time() + STOPPING_S
        while self.loop.time() < until and any(m.leaving and m.alive for m in self.machines):
            await asyncio.sleep(1.0)
        for task in clients:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.faults.append(f"client: {task.exception()!r}")
        return await self._judge()

    def end(self) -> None:
        """Nothing is served any more."""
        for link in self._links:
            link.calm()
            link.cut = True

    def say(self, line: str) -> None:
        self.said.append(f"{self.loop.time():10.4f} {line}")

    def link(self, lane: Lane, odds: dict[str, float]) -> Link:
        link = Link(self.broker, lane, Random(f"{self.plan.seed} link {lane.name}"), odds)
        self._links.append(link)
        return link

    def log(self, link: Link, skew_ms: int = 0) -> EmbeddedLog:

        return sim_log(link, self.clock(link.lane.name, skew_ms), self.topology)

    def clock(self, name: str, skew_ms: int = 0) -> SimClock:
        return SimClock(self.loop, Random(f"{self.plan.seed} clock {name}"), skew_ms)

    # -- workers ---------------------------------------------------------------------------------------

    def add_machine(self) -> None:
        """Start a worker process of its own."""
        number = len(self.machines)
        lane = self.loop.lane(f"worker{number}")
        machine = Machine(lane.name, lane, self.link(lane, {} if self._calm else self.plan.odds))
        self.machines.append(machine)
        skews = self.plan.skews_ms
        home = self.disks.home(number)
        lane.spawn(self._work(machine, home, skews[number % len(skews)]), lane.name)

    async def _work(self, machine: Machine, home: Path, skew_ms: int) -> None:
        WORLD.set(self.world)
        name = machine.name
        self.say(f"{name} starts")
        log = self.log(machine.link, skew_ms)
        worker = Worker(
            log,
            [(Caller, None), (Carrier, None)],
            home=home,
            progress=lambda line: self.say(f"{name}: {line}"),
            clock=self.clock(name, skew_ms),
            grace_s=self.plan.grace_s,
            keeps_state=self.plan.keeps_state,
        )
        machine.worker = worker
        machine.instance_id = worker._hosts[0]._context.agent_ref.instance_id
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
        if sum(machine.alive and not machine.leaving for machine in self.machines) < self.plan.workers:
            self.add_machine()

    # -- mishaps ---------------------------------------------------------------------------------------

    def _befall(self, mishap: Mishap) -> None:
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
            machine.leaving = True
            lane.call_later(0, machine.stop.set)
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
        self._replace_now()

    # -- clients and people ----------------------------------------------------------------------------

    def _spawn_client(self) -> list[asyncio.Task[Any]]:
        lane = self.loop.lane("client")
        kinds = ("refused", "full", "request lost", "answer lost", "late", "slow")
        odds = {kind: odds for kind, odds in self.plan.odds.items() if kind in kinds}
        client = Client(self.log(self.link(lane, odds)), clock=self.clock("client"))
        tasks = [lane.spawn(self._ask(client, command), "ask") for command in self.plan.commands]
        people = self.loop.lane("people")
        helper = Client(self.log(self.link(people, odds)), agent_id="anna", clock=self.clock("people"))
        return [*tasks, people.spawn(self._help(helper), "help")]

    def _spawn_operator(self) -> list[asyncio.Task[Any]]:
        if not self.plan.growths:
            return []
        lane = self.loop.lane("operator")
        kinds = ("refused", "full", "request lost", "answer lost", "late", "slow")
        odds = {kind: odds for kind, odds in self.plan.odds.items() if kind in kinds}
        client = Client(self.log(self.link(lane, odds)), agent_id="olga", clock=self.clock("operator"))
        return [lane.spawn(self._grow_all(client), "grow")]

    async def _grow_all(self, client: Client) -> None:
        self._busy += 1
        try:
            for growth in self.plan.growths:
                await asyncio.sleep(max(0.0, growth.at_s - self.loop.time()))
                await _patiently(partial(self._grow, client, growth))
        finally:
            self._busy -= 1

    async def _grow(self, client: Client, growth: Growth) -> None:
        newest = (await generations(client.log, growth.agent_type))[-1]
        wanted = self._grown.setdefault(growth, newest.partitions + growth.more)
        if newest.partitions < wanted:
            self.say(f"{growth.agent_type} is to have {wanted} partitions")
            await client.grow(growth.agent_type, wanted)

    async def _ask(self, client: Client, command: Command) -> None:
        self._busy += 1
        try:
            await asyncio.sleep(command.at_s)
            run = None
            for _ in range(command.copies if command.key is not None else 1):
                run = await self._start(client, command) or run
                await asyncio.sleep(self.chance.choice((0.0, 0.1, 20.0)) * self.chance.random())
            if run is not None:
                await asyncio.gather(
                    *(self._later(after, run, "signal") for after in command.signals),
                    *[self._later(after, run, "cancel") for after in [command.cancel_after_s] if after],
                )
        finally:
            self._busy -= 1

    async def _start(self, client: Client, command: Command) -> Run | None:
        while True:
            try:
                run = await client.start(
                    command.agent_type, {"orders": command.orders}, idempotency_key=command.key
                )
            except CommitUnknownError:
                if command.key is None:
                    return None
                await asyncio.sleep(1.0)
            except (LogUnavailableError, LogFullError):
                await asyncio.sleep(1.0)
            else:
                self.say(f"run {run.id} was asked for: {command.orders}")
                gives = {"got": [answer_of(order) for order in command.orders]}
                self.asked[run.id] = Asked(run.id, command.agent_type, [gives])
                return run

    async def _later(self, after_s: float, run: Run, what: str) -> None:
        await asyncio.sleep(after_s)
        if what == "cancel":
            self.say(f"run {run.id} is to be cancelled")
            self._cancelled.add(run.id)
            await _patiently(lambda: run.cancel("enough"))
        else:
            await _patiently(lambda: run.signal(GO, GO))

    async def _help(self, client: Client) -> None:
        chance = Random(f"{self.plan.seed} people")
        while True:
            await asyncio.sleep(0.2 + chance.random() ** 3 * 12.0)
            for kind, run_id, approval_id in list(self.reader.questions()):
                # Two people may answer at once, neither of whom knows of the other.
                answer = partial(client.handle(kind, run_id).approve, approval_id)
                at_once = chance.choice((0, 1, 1, 2))
                await asyncio.gather(*(_patiently(answer) for _ in range(at_once)))
            for kind, run_id, effect_id in list(self.reader.unknown()):
                await self._decide(client.handle(kind, run_id), effect_id, chance)

    async def _decide(self, run: Run, effect_id: str, chance: Random) -> None:
        alive = {machine.name for machine in self.machines if machine.alive}
        status = self.world.status(effect_id, alive)
        if status == "running":
            return
        if status == "done":
            result = next(c.result for c in self.world.calls if c.key == effect_id and c.outcome == "done")
            await _patiently(lambda: run.resolve_effect(effect_id, "result", result))
        else:
            decision = chance.choice(("retry", "fail"))
            self.say(f"run {run.id}: {effect_id} is {status}: {decision}")
            await _patiently(lambda: run.resolve_effect(effect_id, decision))

    # -- the end ---------------------------------------------------------------------------------------

    async def _judge(self) -> Book:
        log = self.log(self.link(self.loop.outside, {}))
        book = await invariants.read_book(log, KINDS)
        self.faults += invariants.broken(book, self.asked.values(), self.world.calls)
        self.faults += self._wrong_ends(book)
        for machine in self.machines:
            if machine.leaving and machine.alive:
                self.faults.append(f"worker: {machine.name} was told to stop, and has not ended")
        self.faults += self._late_calls(book)
        self.faults += self.reader.faults(book)
        return book

    def _wrong_ends(self, book: Book) -> Iterator[str]:
        """Runs that failed or were cancelled without a reason."""
        for run_id, events in book.runs.items():
            end = invariants.outcome_of(book, run_id)
            if end is None:
                continue
            said = end.payload.get("message", "")
            types = {event.event_type for event in events}
            given_up = any(
                event.event_type == "effect.resolved" and event.payload["decision"] == "fail"
                for event in events
            )
            told = "told to fail" in said or "capability.unresolved" in types or given_up
            child = "CapabilityError" in end.payload.get("error_type", "")
            if end.event_type == "run.failed" and not (told or child):
                self_said = f"{end.payload['error_type']}: {said}"
                yield f"failed: run {run_id} for no reason: {self_said}"
            if end.event_type == "run.cancelled" and "run.cancel.requested" not in types:
                yield f"failed: run {run_id} was cancelled, and nobody asked for it"
            if end.event_type == "command.expired":
                yield f"failed: run {run_id} expired"

    def _late_calls(self, book: Book) -> Iterator[str]:
        """Calls by processes that were not the owners of the run any more."""
        names = {machine.instance_id: machine.name for machine in self.machines}
        owners: dict[tuple[str, int], list[tuple[float, str]]] = {}
        places: dict[str, tuple[str, int]] = {}
        for kind, records in book.journals.items():
            for record in records:
                place = (kind, record.partition)
                if record.event_type == "partition.acquired":
                    at_s = (record.timestamp_ms - START_MS) / 1000
                    instance = record.envelope.payload["instance_id"]
                    owners.setdefault(place, []).append((at_s, names.get(instance, instance)))
                elif record.event_type == "effect.requested":
                    places[record.envelope.payload["idempotency_key"]] = place
        for call in self.world.calls:
            if call.kind not in ("external", "undo") or call.key not in places:
                continue
            before = [who for at_s, who in owners[places[call.key]] if at_s + 0.001 < call.begun_s]
            if before and before[-1] != call.process:
                yield (
                    f"late: {call.process} called {call.words} ({call.key}) at {call.begun_s:.4f}, when the "
                    f"owner was {before[-1]}"
                )

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
            found["records"] = sum(1 for _ in book.all())
            found["runs"] = len(book.runs)
            journals = [r for records in book.journals.values() for r in records]
            found["acquired"] = sum(r.event_type == "partition.acquired" for r in journals)
            found["forwarded"] = sum(r.event_type == "request.forwarded" for r in journals)
            found["unknown"] = sum(r.event_type == "effect.outcome.unknown" for r in journals)
        return found


class Reader:
    """Reads all journals live: what people see, and a fold to compare with."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._seen: dict[str, list[Record]] = defaultdict(list)
        self._state: Folded = {}
        self._snapshot: tuple[Folded, dict[str, dict[int, int]]] | None = None
        self._cursor: dict[str, dict[int, int]] = defaultdict(dict)
        self._read_too = set(KINDS)
        self._open: dict[str, str] = {}
        self._ended: set[str] = set()
        self._questions: dict[str, tuple[str, str, str]] = {}
        self._unknown: dict[str, tuple[str, str, str]] = {}
        self._called: set[str] = set()
        self._snapshot_at = stage.chance.randrange(1, 120)

    def begin(self) -> None:
        lane = self._stage.loop.lane("reader")
        log = self._stage.log(self._stage.link(lane, {}))
        for kind in KINDS:
            lane.spawn(self._read(log, kind, 1), f"read {kind}")

    async def _read(self, log: EmbeddedLog, kind: str, generation: int) -> None:
        topic, name = log.topology.journal(kind, generation), _name(kind, generation)
        if generation == 1:
            await log.ensure_topics([log.topology.spec(topic)])
        async for batch in log.read_batches(topic, {}):
            for record in batch:
                self._seen[name].append(record)
                invariants.fold(self._state, record)
                self._cursor[name][record.partition] = record.offset + 1
                self._take(kind, record)
                later = _name(kind, generation + 1)
                if record.event_type == "partition.outgrown" and later not in self._read_too:
                    self._read_too.add(later)
                    here().spawn(self._read(log, kind, generation + 1), f"read {later}")
                self._snapshot_at -= 1
                if self._snapshot_at == 0:
                    cursor = {kind: dict(offsets) for kind, offsets in self._cursor.items()}
                    self._snapshot = dict(self._state), cursor

    def _take(self, kind: str, record: Record) -> None:
        event, run_id = record.envelope, record.key
        payload = event.payload
        if event.event_type == "run.started":
            self._open[run_id] = kind
        elif event.event_type in invariants.TERMINAL:
            self._ended.add(run_id)
        elif event.event_type == "capability.invoked" and event.partition_key != run_id:
            self._called.add(payload["run_id"])
        elif event.event_type == "approval.requested":
            self._questions[payload["approval_id"]] = (kind, run_id, payload["approval_id"])
        elif event.event_type in ("approval.answered", "approval.expired"):
            self._questions.pop(payload["approval_id"], None)
        elif event.event_type == "effect.outcome.unknown" or payload.get("awaits_decision"):
            self._unknown[payload["effect_id"]] = (kind, run_id, payload["effect_id"])
        elif event.event_type in ("effect.resolved", "effect.completed"):
            self._unknown.pop(payload["effect_id"], None)

    def questions(self) -> Iterator[tuple[str, str, str]]:
        """Open ones: agent type, run, question."""
        return (found for found in self._questions.values() if found[1] not in self._ended)

    def unknown(self) -> Iterator[tuple[str, str, str]]:
        """Effects that wait for a person: agent type, run, effect."""
        return (found for found in self._unknown.values() if found[1] not in self._ended)

    def all_ended(self) -> bool:
        """Whether all runs that are known of have ended."""
        known = self._open.keys() | self._stage.asked.keys() | self._called
        return known <= self._ended

    def faults(self, book: Book) -> Iterator[str]:
        """Where a live reader, a reader from a snapshot and one from the beginning differ."""
        whole: Folded = {}
        tail, cursor = self._snapshot or ({}, {})
        tail = dict(tail)
        for kind, records in book.journals.items():
            yield from invariants.seen_otherwise(self._seen[kind], records)
            for record in records:
                invariants.fold(whole, record)
                if record.offset >= cursor.get(kind, {}).get(record.partition, 0):
                    invariants.fold(tail, record)
        if whole != self._state:
            yield "diverged: the state that was folded live is another than that from the beginning"
        if whole != tail:
            yield "diverged: the state from a snapshot on is another than that from the beginning"


def _name(kind: str, generation: int) -> str:
    return kind if generation == 1 else f"{kind}.g{generation}"


async def _patiently(send: Callable[[], Any]) -> None:
    """Send until the log has it; what is closed by then needs nothing."""
    while True:
        try:
            await send()
        except AWAY:
            await asyncio.sleep(1.0)
        except (ApprovalClosedError, ApprovalError, EffectDecisionError, RunEndedError, RunNotFoundError):
            return
        else:
            return


def played(seeds: Sequence[int]) -> list[Outcome]:
    """Play one after the other."""
    outcomes = []
    for seed in seeds:
        outcomes.append(play(seed))
        outcomes[-1].said.clear()
    gc.collect()
    return outcomes
