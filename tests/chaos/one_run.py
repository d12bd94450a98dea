"""One run, the processes that have it one after the other, and what it did outside.

    async with OneRun(launcher, folder, url) as one:
        victim = await one.start("victim", "before:run.cancelled")
        run = await one.ask([["undoable", "room"]])
        ...

Workers are those of the harness (`zygote`), their sessions are short. The log has one partition.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from noesium_stream.client import Client, Run
from noesium_stream.errors import EffectDecisionError, RunEndedError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.chaos.launcher import Launched, Launcher
from tests.chaos.ledger import read_ledger
from tests.chaos.workload import CALLER, KINDS
from tests.chaos.zygote import AGENTS
from tests.sim.cast import ParcelSeen
from tests.support.invariants import Asked, Call, broken, read_book

PATIENCE_S = 400.0

Found = Callable[[str], Any]


class TooSlowError(Exception):
    """A run's deadline has passed before what was to happen first."""


class OneRun:
    """See the module.

    Args:
        launcher: starts the processes.
        folder: for all that they keep; new.
        url: of the log, which nobody else uses.
        deadline: of runs that are to be ended by it.

    Attributes:
        url: of the log.
        kinds: the agents that it may have.
    """

    kinds: Sequence[str] = KINDS

    def __init__(self, launcher: Launcher, folder: Path, url: str, deadline: timedelta) -> None:
        self.deadline = deadline
        self.ledger = folder / "ledger.jsonl"
        self._launcher = launcher
        self._folder = folder
        self.url = url
        self._processes: list[Launched] = []
        self._asked: list[Asked] = []
        self.log: EventLog
        self.client: Client

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True)
        self.log = await open_log(self.url)
        self.log.catalogue.register(ParcelSeen)
        topology = self.log.topology
        topics = [topic for kind in self.kinds for topic in (topology.inbox(kind), topology.journal(kind))]
        await self.log.ensure_topics([topology.spec(topic) for topic in topics])
        self.client = Client(self.log, agent_id="anna")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for one in self._processes:
                error.add_note(f"{one.name} ({'lives' if one.alive else 'has ended'}) said: {one.said()}")
        await asyncio.gather(*(one.kill() for one in self._processes if one.code is None))
        await self.log.close()

    # -- processes ---------------------------------------------------------------------------------------

    async def start(self, name: str, point: str | None = None, number: int = 1, **options: Any) -> Launched:
        """Start a worker; it stands still at a point, if one is given."""
        found = await self._launcher.start(
            name,
            url=self.url,
            ledger=self.ledger,
            folder=self._folder,
            point=point,
            number=number,
            **{"agents": AGENTS[:1], **options},
        )
        self._processes.append(found)
        return found

    async def kill(self, victim: Launched) -> None:
        """SIGKILL, which must be what ends it."""
        code = await victim.kill()
        assert code == -signal.SIGKILL, (code, victim.said())

    async def stands(self, victim: Launched) -> None:
        """Return when it stands still at its point."""
        await victim.arrived()
        assert victim.stands, victim.said()

    async def owners(self, count: int) -> None:
        """Return when the partition was acquired so often in all."""
        journal = self.log.topology.journal(CALLER)
        async with (
            asyncio.timeout(PATIENCE_S),
            aclosing(self.log.read(journal, {}, types=("partition.acquired",))) as records,
        ):
            async for _ in records:
                count -= 1
                if count == 0:
                    return

    # -- the run -----------------------------------------------------------------------------------------

    async def ask(self, orders: list[Any], deadline: timedelta | None = None, kind: str = CALLER) -> Run:
        """Start a run."""
        run = await self.client.start(kind, {"orders": orders}, deadline=deadline)
        self._asked.append(Asked(run.id, kind))
        return run

    async def seen(self, run: Run, event_type: str, count: int = 1) -> EventEnvelope:
        """The run's `count`th event of this type, as soon as it is on the log.

        Raises:
            TooSlowError: its deadline has passed before.
        """
        async with asyncio.timeout(PATIENCE_S), aclosing(run.events()) as events:
            async for event in events:
                count -= event.event_type == event_type
                if count == 0:
                    return event
                if event.event_type == "run.deadline.passed":
                    raise TooSlowError(f"the run's deadline has passed before {event_type}")
        raise AssertionError(f"the run has ended without {event_type}")

    async def types(self, run: Run) -> Counter[str]:
        """How often what is on the log of the run now."""
        return Counter([event.event_type async for event in run.events(follow=False)])

    @asynccontextmanager
    async def person(self, run: Run, found: Found | None = None) -> AsyncIterator[list[str]]:
        """Somebody who decides about effects of which nobody knows; gives the decisions.

        `found` says by an effect's id what it has given, if it was done; by default the ledger does.
        """
        decided: list[str] = []

        async def decide() -> None:
            async with aclosing(run.events()) as events:
                async for event in events:
                    if event.event_type != "effect.outcome.unknown":
                        continue
                    effect_id = event.payload["effect_id"]
                    result = (found or self._result)(effect_id)
                    decided.append("retry" if result is None else "result")
                    with suppress(EffectDecisionError, RunEndedError):
                        await run.resolve_effect(effect_id, decided[-1], result)

        task = asyncio.create_task(decide())
        try:
            yield decided
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _result(self, effect_id: str) -> Any:
        done = [call for call in self.calls() if call.key == effect_id and call.outcome == "done"]
        return done[0].result if done else None

    def calls(self, kind: str | None = None) -> list[Call]:
        """What reached the outside, in the order in which it began."""
        return [call for call in read_ledger(self.ledger) if kind is None or call.kind == kind]

    async def holds(self) -> None:
        """Judge the log and the ledger by all rules of `tests.support.invariants`."""
        book = await read_book(self.log, self.kinds)
        assert broken(book, self._asked, self.calls()) == []


async def time_is(at_s: float) -> None:
    """Return when it is later than this (since the epoch)."""
    while (left := at_s - time.time()) > 0:
        await asyncio.sleep(left)
