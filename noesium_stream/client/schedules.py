"""Schedules from any program: add, list, pause, resume, trigger, remove.

What is said of a schedule is an event of the topic `events.schedule`; a worker of the scheduler
(`noesium worker agents.scheduler`) acts on it, now or when one comes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from re import fullmatch
from typing import Any, Final

from noesium_stream.agent.schedules.projection import Schedules
from noesium_stream.agent.schedules.state import Ended, Schedule, Tick
from noesium_stream.agent.schedules.times import check_times, due_times
from noesium_stream.capabilities.version import in_range
from noesium_stream.client.client import Client
from noesium_stream.client.folded import folded_rows
from noesium_stream.clock import Clock, SystemClock, to_ms, to_rfc3339
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError, ScheduleError
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.standard import (
    Overlap,
    ScheduleAdded,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleResumed,
    ScheduleTimes,
    ScheduleTriggered,
)
from noesium_stream.event.standard.schedule import LONGEST_MS, MAX_NOTE, SCHEDULE_NAME
from noesium_stream.event.trust.grants import limits_of
from noesium_stream.log.topics import agent_name

CATCHUP: Final = timedelta(hours=1)
"""How late a tick may be started if nothing else is said: longer than a restart, a deploy or a takeover, and
shorter than the pause after which a report of yesterday is of no use."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as the log has it now; moments are milliseconds since the epoch.

    Attributes:
        name: its name.
        schedule_id: its id; a schedule that is added again under its name has another one.
        agent_type, input: what its runs are.
        when: its times, for people.
        overlap: what becomes of a tick while a run is open.
        paused, note: whether it is paused, and why.
        next_ms: its next three ticks, with their jitter; none if it is paused or over.
        open: the ticks whose runs are open, with their `run_id`.
        waiting: the ticks that wait for the end of a run.
        last: the last run that has ended; None: none has.
        started, skipped: the numbers of ticks so far.
        added_by: the agent id of the program that added it.
        problem: why its times cannot be computed on this machine; None: they can.
    """

    name: str
    schedule_id: str
    agent_type: str
    input: Mapping[str, Any]
    when: str
    overlap: str
    paused: bool
    note: str | None
    next_ms: tuple[int, ...]
    open: tuple[Tick, ...]
    waiting: tuple[Tick, ...]
    last: Ended | None
    started: int
    skipped: int
    added_by: str
    problem: str | None = None


class ScheduleClient:
    """The schedules of a log.

        schedules = ScheduleClient(client)
        await schedules.add("report", "researcher", {"question": "…"}, cron="0 7 * * MON-FRI")

    Args:
        client: an open client.
        clock: the source of time.
        folder: where projections keep their states on this machine: the schedules are then folded there, and
            each call reads the later events only. None: each call folds the topic in memory.
    """

    def __init__(self, client: Client, *, clock: Clock | None = None, folder: Path | None = None) -> None:
        self._client = client
        self._folder = folder
        self._clock = clock or SystemClock()

    async def add(
        self,
        name: str,
        agent_type: str,
        input: Mapping[str, Any] | None = None,
        *,
        cron: str | None = None,
        zone: str | None = None,
        every: Duration | None = None,
        phase: Duration = 0,
        at: datetime | None = None,
        starts: datetime | None = None,
        ends: datetime | None = None,
        overlap: str = Overlap.SKIP,
        catchup: Duration = CATCHUP,
        jitter: Duration = 0,
        paused: bool = False,
        note: str | None = None,
        limit: Duration | None = None,
        version: str | None = None,
        capability: str | None = None,
        permissions: Collection[str] | None = None,
        mode: str | None = None,
    ) -> ScheduleInfo:
        """Add a schedule: it starts a run of an agent type with `input` at each tick.

        It ticks by `cron` (five fields, in the time zone `zone`, by default UTC), or at each multiple of
        `every` since 1970 plus `phase`, or once `at` a moment. A cron job at a fixed time runs once in the
        night in which the clock goes back, and right after the gap if the clock leaps over its time.

        Args:
            name: letters, digits, `-`, `_` and `.`, at most 100.
            agent_type: whose runs it starts.
            input: their input.
            cron: see above.
            zone: see above.
            every: see above; a second at least.
            phase: see above.
            at: see above; with a time zone.
            starts: the first moment at which it may tick, with a time zone; None: any.
            ends: the last one; the schedule stays in the list, and is over.
            overlap: what becomes of a tick while a run of an earlier one is open: `skip`, `buffer_one`,
                `buffer_all`, `cancel_other`, `terminate_other` or `allow_all` (see `Overlap`).
            catchup: how late a tick may be started if no worker was there; older ones are skipped. Ten
                seconds at least.
            jitter: by how much a tick comes late at most; each by another time, always the same one.
            paused: whether it begins paused.
            note: why.
            limit: time by which each run has to have ended; it is ended then.
            version: range of the agent's versions, as in `Client.start`.
            capability: as in `Client.start`.
            permissions: as in `Client.start`.
            mode: as in `Client.start`.

        Raises:
            ScheduleError: there is a schedule of this name.
            ConfigError: something of this is not valid; the message names it.
            StateError: the input has no JSON form.
            RecordTooLargeError, LogUnavailableError
        """
        times = ScheduleTimes(
            cron=cron,
            zone=zone,
            every_ms=None if every is None else _ms(every, "every"),
            phase_ms=_ms(phase, "phase"),
            at_ms=None if at is None else _moment_ms(at),
            jitter_ms=_ms(jitter, "jitter"),
            from_ms=None if starts is None else _moment_ms(starts),
            until_ms=None if ends is None else _moment_ms(ends),
        )
        check_times(times)
        if times.until_ms is not None and times.until_ms <= self._clock.now_ms():
            raise ConfigError(
                f"{to_rfc3339(times.until_ms)} has passed already: the schedule would never tick."
            )
        if times.at_ms is not None and times.at_ms <= self._clock.now_ms():
            raise ConfigError(f"{to_rfc3339(times.at_ms)} has passed already: the schedule would never tick.")
        if version is not None:
            in_range("0.0.0", version)
        limits = limits_of(permissions, mode)
        limit_ms = None if limit is None else max(1, _ms(limit, "limit"))
        added = ScheduleAdded(
            schedule=_name(name),
            agent_type=agent_name(agent_type),
            input=to_json(dict(input or {}), "input"),
            times=times,
            overlap=_overlap(overlap),
            catchup_ms=_ms(catchup, "catchup"),
            paused=paused,
            note=_note(note),
            capability_id=capability,
            agent_version=version,
            permissions=None if limits is None else limits.permissions,
            mode=None if limits is None else limits.mode,
            limit_ms=limit_ms,
        )
        if name in await self._read():
            raise ScheduleError(
                f"There is a schedule {name} already.",
                hint=f"`noesium schedule remove {name}` removes it; or take another name.",
            )
        await self._client.publish(added, key=name)
        return await self.get(name)

    async def list(self) -> list[ScheduleInfo]:
        """List all schedules, by name.

        Raises `LogUnavailableError`.
        """
        return [self._info(one) for _, one in sorted((await self._read()).items())]

    async def get(self, name: str) -> ScheduleInfo:
        """Return one schedule.

        Raises:
            ScheduleError: there is none of this name.
        """
        found = (await self._read()).get(name)
        if found is None:
            raise ScheduleError(
                f"There is no schedule {name!r:.120} on this log.", hint="`noesium schedule list` lists them."
            )
        return self._info(found)

    async def pause(self, name: str, note: str | None = None) -> None:
        """Let a schedule tick no more until `resume`; raises `ScheduleError` as `get` does."""
        await self.get(name)
        await self._client.publish(SchedulePaused(schedule=name, note=_note(note)), key=name)

    async def resume(self, name: str, note: str | None = None) -> None:
        """Let it tick again; ticks of the pause are not made up. Raises as `pause`."""
        await self.get(name)
        await self._client.publish(ScheduleResumed(schedule=name, note=_note(note)), key=name)

    async def trigger(self, name: str, *, overlap: str | None = None) -> None:
        """Let it tick now, also if it is paused; `overlap`: for this tick. Raises as `pause`."""
        policy = None if overlap is None else _overlap(overlap)
        await self.get(name)
        await self._client.publish(ScheduleTriggered(schedule=name, overlap=policy), key=name)

    async def remove(self, name: str) -> None:
        """Remove it; its open runs go on. Raises as `pause`."""
        await self.get(name)
        await self._client.publish(ScheduleRemoved(schedule=name), key=name)

    async def _read(self) -> dict[str, Schedule]:
        """Fold the topic, as the scheduler does."""
        return await folded_rows(self._client.log, Schedules(), self._folder)

    def _info(self, one: Schedule) -> ScheduleInfo:
        plan, problem, coming = one.plan, None, tuple[int, ...]()
        if not one.paused:
            try:
                found = due_times(one.schedule_id, plan.times, one.until_ms)
                coming = tuple(at_ms for _, at_ms in islice(found, _SHOWN))
            except ConfigError as error:
                problem = error.message
        return ScheduleInfo(
            name=one.name,
            schedule_id=one.schedule_id,
            agent_type=plan.agent_type,
            input=plan.input,
            when=shown_times(plan.times),
            overlap=plan.overlap.value,
            paused=one.paused,
            note=one.note,
            next_ms=coming,
            open=one.open,
            waiting=one.waiting,
            last=one.last,
            started=one.started,
            skipped=one.skipped,
            added_by=one.added_by,
            problem=problem,
        )


def shown_times(times: ScheduleTimes) -> str:
    """The times of a schedule, for people."""
    if times.cron is not None:
        text = f"{times.cron} {times.zone or 'UTC'}"
    elif times.every_ms is not None:
        text = f"every {timedelta(milliseconds=times.every_ms)}"
        text += f" + {timedelta(milliseconds=times.phase_ms)}" if times.phase_ms else ""
    else:
        text = f"at {to_rfc3339(times.at_ms or 0)}"
    text += "" if times.from_ms is None else f" from {to_rfc3339(times.from_ms)}"
    text += "" if times.until_ms is None else f" until {to_rfc3339(times.until_ms)}"
    return f"{text} ± {timedelta(milliseconds=times.jitter_ms)}" if times.jitter_ms else text


def _ms(duration: Duration, name: str) -> int:
    ms = round(in_seconds(duration, name) * 1000)
    if not 0 <= ms <= LONGEST_MS:
        raise ConfigError(f"{name}={duration!r} is not between nothing and a year.")
    return ms


def _moment_ms(at: datetime) -> int:
    if at.tzinfo is None:
        raise ConfigError(f"The moment {at} has no time zone.", hint="Give one: tzinfo=UTC.")
    return to_ms(at)


def _name(name: str) -> str:
    if not isinstance(name, str) or fullmatch(SCHEDULE_NAME[1:-1], name) is None:
        raise ConfigError(
            f"{name!r:.120} cannot name a schedule.",
            hint="Use letters, digits, -, _ and dots, at most 100, beginning with a letter or a digit.",
        )
    return name


def _note(note: str | None) -> str | None:
    if note is not None and len(note) > MAX_NOTE:
        raise ConfigError(f"The note has more than {MAX_NOTE:,} characters.")
    return note


def _overlap(name: str) -> Overlap:
    try:
        return Overlap(name)
    except ValueError:
        known = ", ".join(Overlap)
        raise ConfigError(f"There is no overlap policy {name!r:.80}.", hint=f"Give one of {known}.") from None
