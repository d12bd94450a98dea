"""Tells the scheduler of due ticks and of ended runs, as events of its topic.

What it appends may be there twice, and late: the decider sees that by the state. It is appended again after a
while if the state does not show it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from noesium_stream.agent.schedules.run_ends import RunEnd, RunEnds
from noesium_stream.agent.schedules.state import Schedule
from noesium_stream.agent.schedules.times import Due, due
from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CommitUnknownError,
    ConfigError,
    EventStoreError,
    LogForbiddenError,
    TopicConfigError,
)
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import ScheduleRunEnded, ScheduleWoken
from noesium_stream.log.port import EventLog

LONGEST_SLEEP_S: Final = 10.0
"""Longest wait before the clock is looked at again, in seconds: it may be set, and the machine may sleep."""
_AGAIN_S: Final = 1.0
_PATIENCE_S: Final = 30.0
"""Time after which a tick that was told and is not dealt with is told again, in seconds."""
_MOST_AT_ONCE: Final = 500
_IN_A_ROW: Final = 50


class ScheduleFeeder:
    """The feeder of one partition of schedules; see `agent.handler.Feeder`.

    Args:
        log: an open log.
        clock: the source of time and ids.
        producer: who appends the events.
        progress: takes one line for people.
    """

    def __init__(
        self, log: EventLog, clock: Clock, producer: AgentRef, progress: Callable[[str], None]
    ) -> None:
        self._log = log
        self._clock = clock
        self._producer = producer
        self._progress = progress
        self._rows: dict[str, Schedule] = {}
        self._wakes: dict[str, int] = {}
        """When something is due of a schedule, in milliseconds since the epoch, by name."""
        self._told: dict[str, tuple[int, float]] = {}
        """Up to where ticks were told, and when, by name; monotonic seconds."""
        self._names: dict[str, str] = {}
        """The schedules of open runs, by run id."""
        self._changed = asyncio.Event()
        self._ends = RunEnds(log, clock, self._run_ended, self._done, progress)
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, rows: Mapping[str, Schedule]) -> None:
        """Begin with these schedules.

        Raises `LogUnavailableError`.
        """
        busy = {row.plan.agent_type for row in rows.values() if row.open}
        for agent_type in {row.plan.agent_type for row in rows.values()}:
            await self._follow_type(agent_type, from_beginning=agent_type in busy)
        await self.follow(rows)
        self._task = asyncio.create_task(self._tell_due(), name="schedules")
        self._task.add_done_callback(self._done)

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

    async def wait(self) -> None:
        """See `Feeder.wait`."""
        await asyncio.shield(self._over)

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._over.done():
            self._over.set_exception(error)

    async def close(self) -> None:
        """See `Feeder.close`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._ends.close()
        if not self._over.done():
            self._over.set_result(None)

    # -- ticks ---------------------------------------------------------------------------------------

    def _wake_at(self, name: str, row: Schedule | None) -> None:
        self._wakes.pop(name, None)
        if row is None or row.paused:
            self._told.pop(name, None)
            return
        told = self._told.get(name)
        if told is not None and row.until_ms >= told[0]:
            del self._told[name]
        found = self._due(name, row)
        if found is None:
            return
        if found.ticks or found.missed:
            self._wakes[name] = self._clock.now_ms()
        elif found.next_ms is not None:
            self._wakes[name] = found.next_ms

    def _due(self, name: str, row: Schedule) -> Due | None:
        try:
            return due(
                row.schedule_id, row.plan.times, row.until_ms, self._clock.now_ms(), row.plan.catchup_ms
            )
        except ConfigError as error:
            self._progress(f"the schedule {name} cannot tick here: {error.message}")
            return None

    async def _tell_due(self) -> None:
        while True:
            self._changed.clear()
            events = self._events()
            if events and not await self._append(events):
                await self._clock.sleep(_AGAIN_S)
                continue
            now_s = self._clock.monotonic()
            for event in events:
                self._told[event.schedule] = event.until_ms, now_s
            await self._sleep()

    def _events(self) -> list[ScheduleWoken]:
        """What is due now and was not told a moment ago."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        found: list[ScheduleWoken] = []
        for name in [name for name, at_ms in self._wakes.items() if at_ms <= now_ms]:
            told = self._told.get(name)
            if told is not None and now_s - told[1] < _PATIENCE_S:
                continue
            row = self._rows[name]
            is_due = self._due(name, row)
            if is_due is None or not (is_due.ticks or is_due.missed):
                self._wake_at(name, row)  # the clock was put back
                continue
            found.append(
                ScheduleWoken(
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
            )
            if len(found) >= _MOST_AT_ONCE:
                break
        return found

    async def _sleep(self) -> None:
        """Sleep until something is due, or a schedule has changed."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        waits = [LONGEST_SLEEP_S]
        for name, at_ms in self._wakes.items():
            told = self._told.get(name)
            waits.append((at_ms - now_ms) / 1000 if told is None else told[1] + _PATIENCE_S - now_s)
        sleeping = asyncio.ensure_future(self._clock.sleep(max(0.0, min(waits))))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((sleeping, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            changed.cancel()

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
            if await self._append([event]):
                return
            await self._clock.sleep(_AGAIN_S)
            name = self._names.get(end.run_id)

    async def _append(self, events: Sequence[DomainEvent]) -> bool:
        """Append events under the names of their schedules; False: try again."""
        envelopes = [
            root_event(event, self._producer, self._clock, partition_key=event.payload()["schedule"])
            for event in events
        ]
        try:
            await self._log.append(envelopes)
        except CommitUnknownError:
            return False
        except EventStoreError as error:
            self._progress(f"schedules wait for the log: {error.message}")
            return False
        return True
