"""The worker under test as a process: it starts, is killed, and is replaced by another."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.clock import Clock
from noesium_stream.errors import RehearsalError
from noesium_stream.log.port import EventLog
from noesium_stream.testing.cast import Cast
from noesium_stream.testing.mortal import Death, MortalClock, MortalLog, When
from noesium_stream.worker import Worker

T = TypeVar("T")


class Process:
    """Consecutive workers in a task of their own, so that the cast applies only to their steps.

    Attributes:
        deaths: the number of killed workers.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        players: Cast,
        agent: type[BaseGraphicAgent],
        options: Any,
        home: Path,
    ) -> None:
        self._log = log
        self._clock = clock
        self._players = players
        self._agent = agent
        self._options = options
        self._home = home
        self._task: asyncio.Task[None] | None = None
        self._mortal: MortalLog | None = None
        self._death = Death()
        self._restart = True
        self._alive = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._go_on = asyncio.Event()
        self.deaths = 0

    async def start(self) -> None:
        """Return when the first worker runs; raise its error if it ends before."""
        self._task = asyncio.create_task(self._live(), name="rehearsal")
        await self.unless_it_fails(self._alive.wait())

    async def close(self) -> None:
        """Shut the worker down; raise the error with which it ended before."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    async def unless_it_fails(self, waiting: Coroutine[Any, Any, T]) -> T:
        """Wait for a result of the worker; raise the worker's error if it fails meanwhile."""
        if self._task is None:
            waiting.close()
            raise RehearsalError("The rehearsal has not begun.")
        awaited = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait([awaited, self._task], return_when=asyncio.FIRST_COMPLETED)
            if not awaited.done() and not self._task.cancelled():
                self._task.result()
            return await awaited
        finally:
            awaited.cancel()

    # -- death -----------------------------------------------------------------------------------------

    def arm(self, when: When, *, reaches_log: bool, restart: bool) -> None:
        """Die at the first commit with an event that `when` selects.

        Raises:
            RehearsalError: no worker is alive, or another death is armed.
        """
        if self._mortal is None or self._death.struck.is_set():
            raise RehearsalError("There is no worker that could crash.", hint="Call `restart` first.")
        if self._mortal.when is not None:
            raise RehearsalError(
                "A crash is armed already.",
                hint="Arm the next one after it: `await rehearsal.wait_for_crash()`.",
            )
        self._mortal.when, self._mortal.reaches_log = when, reaches_log
        self._restart = restart
        self._settled.clear()

    async def kill(self, *, restart: bool) -> None:
        """Die now."""
        if self._mortal is None or self._death.struck.is_set():
            raise RehearsalError("There is no worker that could crash.", hint="Call `restart` first.")
        self._restart = restart
        self._settled.clear()
        self._death.struck.set()
        await self.wait_dead()

    async def wait_dead(self) -> None:
        """Return when the armed death has happened and was handled."""
        await self.unless_it_fails(self._settled.wait())

    async def restart(self) -> None:
        """Start the next worker and return when it runs."""
        if self._alive.is_set() or not self._settled.is_set():
            raise RehearsalError("The worker lives; there is nothing to restart.")
        self._go_on.set()
        await self.unless_it_fails(self._alive.wait())

    async def _live(self) -> None:
        with self._players.on_stage():
            while True:
                await self._one_life()
                self.deaths += 1
                if not self._restart:
                    self._settled.set()
                    await self._go_on.wait()
                    self._go_on.clear()

    async def _one_life(self) -> None:
        """Run one worker until it is killed; raise its error if it ends otherwise."""
        death = self._death = Death()
        mortal = MortalLog(self._log, death)
        worker = Worker(
            cast(EventLog, mortal),
            [self._agent if self._options is None else (self._agent, self._options)],
            home=self._home,
            clock=MortalClock(self._clock, death),
            grace=0,  # a killed process does not wait
        )
        async with worker:
            self._mortal = mortal
            self._alive.set()
            self._settled.set()
            ends = [asyncio.create_task(worker.wait()), asyncio.create_task(death.struck.wait())]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not death.struck.is_set():
                    ends[0].result()
            finally:
                for task in ends:
                    task.cancel()
                self._alive.clear()
                self._mortal = None
