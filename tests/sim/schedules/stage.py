"""Schedules in a simulated world: `python -m tests.sim --schedules --seeds 200`.

People add schedules, pause and resume them, let them tick, remove them, and add others under their names.
Workers run the scheduler and `sleeper`, whose runs last for as long as chance says. They are killed, stand
still and lose the log, as in every play. The clock of the world leaps by hours, in a night in which a zone
changes its own, and that of one worker is wrong for a while. `rules` judges what is on the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from noesium_stream.agent import BaseAgent
from noesium_stream.agent.schedules import SCHEDULES, Scheduler
from noesium_stream.client.schedules import ScheduleClient
from noesium_stream.clock import to_datetime
from noesium_stream.errors import ConfigError, ScheduleError
from noesium_stream.log.embedded.log import EmbeddedLog
from tests.sim.cast import Caller
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop
from tests.sim.people import PAUSE_S, People
from tests.sim.plan import TROUBLE_S
from tests.sim.play import Stage
from tests.sim.schedules.plan import SLEEPER, Jump, Planned, Said, SchedulePlan, schedule_plan_of
from tests.sim.schedules.rules import THE_END, broken_schedules
from tests.sim.schedules.wall import JumpingClock, Wall
from tests.sim.verdict import wrong_ends
from tests.support import invariants
from tests.support.book import read_topic
from tests.support.invariants import Book
from tests.support.watching import patiently

CALM_S: Final = 45.0
"""So long after the troubles schedules tick on: longer than a tick that was told waits to be told again."""
ENDING_S: Final = 300.0


class Sleeper(Caller):
    agent_type = SLEEPER


class Planners(People):
    """They say what ticks."""

    _plan: SchedulePlan
    _stage: ScheduleStage

    def begin(self) -> list[asyncio.Task[Any]]:
        for jump in self._plan.jumps:
            self._stage.loop.outside.call_later(jump.at_s, self._stage.jump, jump)
        names = sorted({one.who for one in self._plan.said})
        saying = [self._at_work(name, self._say_all(name)) for name in names]
        return [*saying, self._at_work("olaf", self._end(saying)), *super().begin()]

    def _schedules(self, name: str) -> ScheduleClient:
        return ScheduleClient(self._client(name, name), clock=self._stage.clock(name))

    async def _say_all(self, name: str) -> None:
        schedules = self._schedules(name)
        for said in self._plan.said:
            if said.who == name:
                await asyncio.sleep(max(0.0, said.at_s - self._stage.loop.time()))
                await self._say(schedules, said)

    async def _say(self, schedules: ScheduleClient, said: Said) -> None:
        name = said.planned.name
        sayings: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "add": partial(_add, schedules, said.planned),
            "pause": partial(schedules.pause, name),
            "resume": partial(schedules.resume, name),
            "trigger": partial(schedules.trigger, name, overlap=said.overlap),
            "remove": partial(schedules.remove, name),
        }
        try:
            await patiently(sayings[said.kind], PAUSE_S)
        except (ScheduleError, ConfigError) as error:  # it is there, or is not there any more, or is over
            self._stage.say(f"{said.who}: {said.kind} {name}: {error.message}")
        else:
            self._stage.say(f"{said.who}: {said.kind} {name}")

    async def _end(self, saying: Sequence[asyncio.Task[Any]]) -> None:
        """Pause all schedules when all is calm, and wait for the ends of their runs."""
        await asyncio.gather(*saying)
        await asyncio.sleep(max(0.0, TROUBLE_S - self._stage.loop.time()) + CALM_S)
        schedules = self._schedules("olaf")
        for one in await patiently(schedules.list, PAUSE_S):
            await patiently(partial(schedules.pause, one.name, THE_END), PAUSE_S)
        until = self._stage.loop.time() + ENDING_S
        while self._stage.loop.time() < until:
            if not any(one.open for one in await patiently(schedules.list, PAUSE_S)):
                return
            await asyncio.sleep(3.0)


async def _add(schedules: ScheduleClient, planned: Planned) -> None:
    times = planned.times
    await schedules.add(
        planned.name,
        SLEEPER,
        {"orders": planned.orders},
        cron=times.cron,
        zone=times.zone,
        every=None if times.every_ms is None else times.every_ms / 1000,
        phase=times.phase_ms / 1000,
        at=None if times.at_ms is None else to_datetime(times.at_ms),
        starts=None if times.from_ms is None else to_datetime(times.from_ms),
        ends=None if times.until_ms is None else to_datetime(times.until_ms),
        overlap=planned.overlap,
        catchup=planned.catchup_ms / 1000,
        jitter=times.jitter_ms / 1000,
        paused=planned.paused,
        limit=None if planned.limit_ms is None else planned.limit_ms / 1000,
    )


class ScheduleStage(Stage):
    """A world in which time starts runs."""

    plan: SchedulePlan

    def __init__(self, loop: SimLoop, plan: SchedulePlan, folder: Path) -> None:
        self.wall = Wall(loop, plan.begins_ms)
        super().__init__(loop, plan, folder)
        self.broker.store.clock = self.clock("broker")

    def clock(self, name: str, skew_ms: int = 0) -> SimClock:
        return JumpingClock(self.wall, name, self.loop, Random(f"{self.plan.seed} clock {name}"), skew_ms)

    def jump(self, jump: Jump) -> None:
        """Put a clock forward or back."""
        process = None if jump.machine is None else f"worker{jump.machine}"
        self.say(f"the clock of {process or 'the world'} is put forward by {jump.ms / 1000} s")
        self.wall.jump(jump.ms, process)

    def seconds_of(self, timestamp_ms: int) -> float:
        return self.wall.seconds_of(timestamp_ms)

    def _people(self) -> People:
        return Planners(self)

    def _agents(self, machine: Any) -> Sequence[type[BaseAgent]]:
        return (Sleeper, Scheduler)

    async def _broken_rules(self, log: EmbeddedLog, book: Book) -> list[str]:
        told = await read_topic(log, f"{log.topology.namespace}.{SCHEDULES}")
        self.told = len(told)
        faults = [*invariants.torn_commits([*book.all(), *told]), *broken_schedules(told, book)]
        for records in book.journals.values():
            faults += invariants.broken_runs(records)
            faults += invariants.broken_copies(records)
            faults += invariants.fenced_writers(records)
        for kind, inbox in book.inboxes.items():
            faults += invariants.sent_twice(inbox)
            faults += invariants.passed_over(inbox, book.journals[kind], book.runs)
        return [
            *faults,
            *invariants.lost_or_doubled(book, ()),
            *invariants.wrong_effects(book, self.world.calls),
            *invariants.not_undone(book),
            *wrong_ends(book),
        ]


def schedule_stage(loop: SimLoop, seed: int, folder: Path) -> Stage:
    """The world of `schedule_plan_of`."""
    return ScheduleStage(loop, schedule_plan_of(seed), folder)
