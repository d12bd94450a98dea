"""The processes, clients and people around one log, and what they leave."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.chaos.check import judged
from tests.chaos.launcher import HASH_SEEDS, Launched, Launcher
from tests.chaos.ledger import read_ledger
from tests.chaos.people import AWAY, People, Reader, patiently
from tests.chaos.refold import REPORT
from tests.chaos.workload import CALLER, KEYS, KINDS, SUMS, Command, Counted, Summed, workload_of
from tests.sim.cast import GO, ParcelSeen
from tests.support.invariants import Asked

PATIENCE_S = 400.0
PLANTED_PATIENCE_S = 60.0
"""So long after the kill everything has to have an outcome."""

STOP_S = 30.0
"""So long a worker may take to end after SIGTERM."""


class Stage:
    """The processes, clients and people around one log, for as long as its context lasts.

    Args:
        launcher: starts the processes.
        folder: for all that they keep; new.
        url: of the log.
        seed: of the workload, and of what else is left to chance; any text.
        plant: a bug that all workers have; see `plants`.
        gives_up: see `People`.
    """

    def __init__(
        self,
        launcher: Launcher,
        folder: Path,
        url: str,
        seed: str,
        plant: str | None = None,
        *,
        gives_up: bool = True,
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
        self._more = 0
        self._plant = plant
        self._gives_up = gives_up
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
        chance = Random(f"{self._seed} people")
        people = People(log, self.reader, self.ledger, self.alive, chance, gives_up=self._gives_up)
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

    async def ask_more(self) -> None:
        """Send a little more, each time."""
        self._more += 1
        await self._count(KEYS[self._more % len(KEYS)], 1_000 + self._more)
        orders = [["external", f"more{self._more}"], ["tool", "send", f"more{self._more}"]]
        await self._start(Client(self.log, agent_id="harness"), Command(CALLER, orders, f"more{self._more}"))

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

    async def settled(self) -> bool:
        """Whether, by and by, all has an outcome; what has not is among the faults later."""
        patience_s = PATIENCE_S if self._plant is None else PLANTED_PATIENCE_S
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
