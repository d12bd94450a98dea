"""Who is there, who is killed at a point, and who goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.check import counted
from tests.chaos.launcher import Launched
from tests.chaos.points import Point
from tests.chaos.stage import PATIENCE_S, Stage, said
from tests.chaos.wire import WireProxy

MORE_S = 0.15
"""Once all is sent, something more is asked so often until the point has come."""


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
    plant: str | None = None
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
        self._arrived = asyncio.Event()
        self._number = self._chance.randint(1, point.most)

    async def play(self, passed: Callable[[str], None]) -> None:
        """From the first process to the last outcome; tells what has passed."""
        stage = self._stage
        victim, asking = await getattr(self, f"_{self._point.scene}")()
        try:
            await self._arrival(victim)
            passed("struck")
            killed = time.monotonic()
            # Now: on a busy machine others have taken over before all is asked.
            acquired = len(stage.reader.acquired)
            await stage.kill(victim)  # first of all: it may hold a lock that whoever asks is waiting for
        finally:
            self._arrived.set()
            await asking
        await stage.ask(0.7, 1.0)
        await self._succeed(victim, acquired)
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
        return asyncio.create_task(self._keep_asking())

    async def _keep_asking(self) -> None:
        """Who begins late, and has little to do with others beside it, comes to its point all the same."""
        await self._stage.ask(0.0, 0.7)
        while not self._arrived.is_set():
            await self._stage.ask_more()
            with suppress(TimeoutError):
                async with asyncio.timeout(MORE_S):
                    await self._arrived.wait()

    async def _some_ended(self) -> None:
        count = self._chance.randint(1, 5)
        await self._stage.reader.until(lambda: len(self._stage.reader.ended) >= count, PATIENCE_S)

    async def _armed(self, name: str, **options: Any) -> Launched:
        self._outcome.notes.append(f"number {self._number}")
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

    async def _succeed(self, victim: Launched, acquired: int) -> None:
        """The held request comes in late, or never; another process is there, or is started.

        Args:
            victim: who was killed.
            acquired: how often partitions had been acquired by then.
        """
        late = self._chance.choice(("lost", "at once", "later"))
        held = self._proxy is not None and self._point.wire == "request"
        if held:
            self._outcome.notes.append(f"EndTxn {late}")
        if self._proxy is not None and held and late == "at once":
            await self._proxy.deliver()
        role = "projection" if self._point.scene == "projection" else "worker"
        others = [one for one in self._stage.processes if one.alive and not one.told and one is not victim]
        if role == "projection" or not others:
            warm = self._chance.random() < 0.5
            self._outcome.notes.append("warm" if warm else "cold")
            await self._stage.start("next", role=role, home=victim.home if warm else None)
        else:
            self._outcome.notes.append(f"goes on: {', '.join(one.name for one in others)}")
        if self._proxy is not None and held and late == "later":
            reader = self._stage.reader
            await reader.until(lambda: len(reader.acquired) > acquired, PATIENCE_S)
            await self._proxy.deliver()
