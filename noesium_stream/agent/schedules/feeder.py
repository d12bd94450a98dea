"""Tells the scheduler of due ticks and of ended runs, as events of its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from noesium_stream.agent.schedules.run_ends import RunEnd, RunEnds
from noesium_stream.agent.schedules.state import Schedule
from noesium_stream.agent.schedules.times import Due, due
from noesium_stream.agent.time_feeder import AGAIN_S, LONGEST_SLEEP_S, MOST_AT_ONCE, Keyed, TimeFeeder
from noesium_stream.clock import Clock
from noesium_stream.errors import ConfigError, LogForbiddenError, TopicConfigError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import ScheduleRunEnded, ScheduleWoken
from noesium_stream.log.port import EventLog

_PATIENCE_S: Final = 30.0
"""Time after which a tick that was told and is not dealt with is told again, in seconds."""
_IN_A_ROW: Final = 50
LEAST_CATCHUP_MS: Final = 10_000
"""A tick that is no later than this is started, whatever its schedule says: no timer is exact."""


class ScheduleFeeder(TimeFeeder):
    """The feeder of one partition of schedules.

    Args:
        log: an open log.
        clock: the source of time and ids.
        producer: who appends the events.
        progress: takes one line for people.
    """

    def __init__(
        self, log: EventLog, clock: Clock, producer: AgentRef, progress: Callable[[str], None]
    ) -> None:
        super().__init__(log, clock, producer, progress, waiting="schedules wait")
        self._rows: dict[str, Schedule] = {}
        self._wakes: dict[str, int] = {}
        """When something is due of a schedule, in milliseconds since the epoch, by name."""
        self._last: dict[str, tuple[int, float]] = {}
        """Up to where ticks were told, and when, by name; monotonic seconds."""
        self._names: dict[str, str] = {}
        """The schedules of open runs, by run id."""
        self._ends = RunEnds(log, clock, self._run_ended, self._done, progress)

    async def begin(self, rows: Mapping[str, Schedule]) -> None:
        """Begin with these schedules.

        Raises `LogUnavailableError`.
        """
        busy = {row.plan.agent_type for row in rows.values() if row.open}
        for agent_type in {row.plan.agent_type for row in rows.values()}:
            await self._follow_type(agent_type, from_beginning=agent_type in busy)
        await self.follow(rows)
        self._start("schedules")

    async def follow(self, rows: Mapping[str, Schedule | None]) -> None:
        """See `Feeder.follow`: whoever waits for a run's end does so before the run can begin."""
        for number, (name, row) in enumerate(rows.items()):
            if number % _IN_A_ROW == _IN_A_ROW - 1:
                await asyncio.sleep(0)  # the times of thousands of schedules take seconds
            before = self._rows.pop(name, None)
            if row is not None:
                await self._follow_type(row.plan.agent_type, from_beginning=False)
                self._rows[name] = row
            opened = () if row is None else row.open
            self._expect(name, {one.run_id for one in opened}, before)
            self._wake_at(name, row)
        self._changed.set()

    async def _follow_type(self, agent_type: str, *, from_beginning: bool) -> None:
        """Follow the ends of an agent's runs; one that cannot be followed holds up no other schedule."""
        try:
            await self._ends.follow(agent_type, from_beginning=from_beginning)
        except (LogForbiddenError, TopicConfigError) as error:
            self._progress(f"schedules do not see the ends of {agent_type}'s runs: {error.message}")

    def _expect(self, name: str, opened: set[str], before: Schedule | None) -> None:
        for run_id in opened:
            self._names[run_id] = name
            self._ends.expect(run_id)
        for one in () if before is None else before.open:
            if one.run_id not in opened:
                self._names.pop(one.run_id, None)
                self._ends.forget(one.run_id)

    async def close(self) -> None:
        """See `Feeder.close`."""
        await self._ends.close()
        await super().close()

    # -- ticks ---------------------------------------------------------------------------------------

    def _wake_at(self, name: str, row: Schedule | None) -> None:
        self._wakes.pop(name, None)
        if row is None or row.paused:
            self._last.pop(name, None)
            return
        told = self._last.get(name)
        if told is not None and row.until_ms >= told[0]:
            del self._last[name]
        found = self._due_of(name, row)
        if found is None:
            return
        if found.ticks or found.missed:
            self._wakes[name] = self._clock.now_ms()
        elif found.next_ms is not None:
            self._wakes[name] = found.next_ms

    def _due_of(self, name: str, row: Schedule) -> Due | None:
        catchup_ms = max(row.plan.catchup_ms, LEAST_CATCHUP_MS)
        try:
            return due(row.schedule_id, row.plan.times, row.until_ms, self._clock.now_ms(), catchup_ms)
        except ConfigError as error:
            self._progress(f"the schedule {name} cannot tick here: {error.message}")
            return None

    def _due(self) -> Sequence[Keyed]:
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        found: list[Keyed] = []
        for name in [name for name, at_ms in self._wakes.items() if at_ms <= now_ms]:
            told = self._last.get(name)
            if told is not None and now_s - told[1] < _PATIENCE_S:
                continue
            row = self._rows[name]
            is_due = self._due_of(name, row)
            if is_due is None or not (is_due.ticks or is_due.missed):
                self._wake_at(name, row)  # the clock was put back
                continue
            woken = ScheduleWoken(
                schedule=name,
                schedule_id=row.schedule_id,
                now_ms=now_ms,
                ticks=list(is_due.ticks),
                until_ms=is_due.until_ms,
                missed=is_due.missed,
                missed_more=is_due.more,
                missed_from_ms=is_due.first_missed_ms,
                missed_until_ms=is_due.last_missed_ms,
            )
            found.append((name, woken))
            if len(found) >= MOST_AT_ONCE:
                break
        return found

    def _told(self, events: Sequence[Keyed]) -> None:
        now_s = self._clock.monotonic()
        for name, event in events:
            assert isinstance(event, ScheduleWoken)
            row = self._rows.get(name)
            # The handler may have dealt with it before its append was acknowledged.
            if row is not None and row.until_ms < event.until_ms:
                self._last[name] = event.until_ms, now_s

    def _rest_s(self) -> float:
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        rests = [LONGEST_SLEEP_S]
        for name, at_ms in self._wakes.items():
            told, due_s = self._last.get(name), (at_ms - now_ms) / 1000
            rests.append(due_s if told is None else max(due_s, told[1] + _PATIENCE_S - now_s))
        return min(rests)

    # -- ends of runs --------------------------------------------------------------------------------

    async def _run_ended(self, end: RunEnd) -> None:
        name = self._names.get(end.run_id)
        while name is not None:
            event = ScheduleRunEnded(
                schedule=name,
                run_id=end.run_id,
                status=end.status,
                ended_ms=end.ended_ms,
                error=end.error,
            )
            if await self._append([(name, event)]):
                return
            await self._clock.sleep(AGAIN_S)
            name = self._names.get(end.run_id)
