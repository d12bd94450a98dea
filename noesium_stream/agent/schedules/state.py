"""The state of a schedule; its size does not grow with the number of ticks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.clock import derived_id
from noesium_stream.event.standard.schedule import Overlap, ScheduleAdded, ScheduleTimes

MOST_OPEN: Final = 100
"""Most runs of one schedule that may be open at the same time."""
MOST_WAITING: Final = 100
"""Most ticks of one schedule that wait for the end of a run."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick that has to start a run, or has started one.

    Attributes:
        tick_ms: its time, in milliseconds since the epoch; of a triggered one the time of the command.
        run_id: its run: the same, whoever starts it and how often.
        triggered: whether somebody asked for it.
    """

    tick_ms: int
    run_id: str
    triggered: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The last run of a schedule that has ended; `status` as in a list of runs."""

    tick_ms: int
    run_id: str
    status: str
    ended_ms: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a schedule does, as `schedule.added` says it."""

    agent_type: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    times: ScheduleTimes = field(default_factory=ScheduleTimes)
    overlap: Overlap = Overlap.SKIP
    catchup_ms: int = 0
    capability_id: str | None = None
    agent_version: str | None = None
    permissions: list[str] | None = None
    mode: str | None = None
    limit_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule.

    Attributes:
        schedule_id: the id of the `schedule.added` that made it; empty: there is no such schedule.
        plan: what it does.
        added_ms: when it was added.
        added_by: the agent id of the program that added it.
        until_ms: all ticks up to here are dealt with.
        paused: whether it is paused.
        note: why it was paused or resumed.
        open: the ticks whose runs are open, oldest first.
        cancelled: the runs of these that were asked to end.
        waiting: the ticks that wait for the end of a run, in order.
        last: the last run that has ended.
        started, skipped: the numbers of ticks so far.
    """

    schedule_id: str = ""
    name: str = ""
    plan: Plan = field(default_factory=Plan)
    added_ms: int = 0
    added_by: str = ""
    until_ms: int = 0
    paused: bool = False
    note: str | None = None
    open: tuple[Tick, ...] = ()
    cancelled: tuple[str, ...] = ()
    waiting: tuple[Tick, ...] = ()
    last: Ended | None = None
    started: int = 0
    skipped: int = 0


def plan_of(added: ScheduleAdded) -> Plan:
    """The plan in a `schedule.added`."""
    return Plan(
        agent_type=added.agent_type,
        input=added.input,
        times=added.times,
        overlap=added.overlap,
        catchup_ms=added.catchup_ms,
        capability_id=added.capability_id,
        agent_version=added.agent_version,
        permissions=added.permissions,
        mode=added.mode,
        limit_ms=added.limit_ms,
    )


def tick_at(schedule_id: str, tick_ms: int) -> Tick:
    """The tick of this time; its run's id follows from it."""
    return Tick(tick_ms, derived_id("schedule", schedule_id, str(tick_ms)))


def tick_by(schedule_id: str, command_id: str, now_ms: int) -> Tick:
    """The tick that a command asks for."""
    return Tick(now_ms, derived_id("schedule", schedule_id, "trigger", command_id), triggered=True)
