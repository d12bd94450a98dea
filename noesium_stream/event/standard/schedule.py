"""Events of schedules: what people and the clock say of them, and what their owner has decided.

Decision record: a schedule is a row of a handler's state (`agent/schedules`), and these are the facts of one
topic, `events.schedule`, under the schedule's name as their key. The first group is all that the state is
folded from. What depends on a clock or on the tables of time zones is computed before `schedule.woken` is
written and lies in it, so that every fold of the topic gives the same state.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, Field

from noesium_stream.event.domain_event import Form
from noesium_stream.event.envelope_fields import MAX_INT
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import AgentType, Identifier, Name, Object, Permissions, Whole

SCHEDULE_NAME: Final = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
LONGEST_MS: Final = 366 * 86_400_000
"""Longest interval, jitter, catch-up window and time limit of a schedule: a year."""
MOST_TICKS: Final = 100
"""Most ticks in one `schedule.woken`."""
MAX_NOTE: Final = 1_000
MAX_ERROR: Final = 500
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since the epoch."""

ScheduleName = Annotated[str, Form(pattern=SCHEDULE_NAME, maxLength=100)]
Note = Annotated[str, Form(maxLength=MAX_NOTE)]
Moment = Annotated[int, Form(minimum=0, maximum=LAST_MS)]
"""Milliseconds since the epoch."""
Span = Annotated[int, Form(minimum=0, maximum=LONGEST_MS)]
"""Milliseconds."""


class Overlap(StrEnum):
    """What becomes of a tick while a run of an earlier one is open; the names are Temporal's."""

    SKIP = "skip"
    """It is skipped."""
    BUFFER_ONE = "buffer_one"
    """It waits for the end of that run; while one waits, further ones are skipped."""
    BUFFER_ALL = "buffer_all"
    """It waits for the end of that run, behind those that wait already."""
    CANCEL_OTHER = "cancel_other"
    """That run is cancelled, and the tick waits until it has ended; a later tick takes its place."""
    TERMINATE_OTHER = "terminate_other"
    """That run is cancelled, and the tick does not wait for its end."""
    ALLOW_ALL = "allow_all"
    """Its run starts beside the others."""


class ScheduleTimes(BaseModel, defer_build=True):
    """When a schedule ticks: by `cron` in `zone`, every `every_ms` from `phase_ms` on, or once at `at_ms`.

    Attributes:
        cron: five fields, as Debian's cron reads them.
        zone: a name of the IANA time zone database, such as `Europe/Berlin`.
        every_ms: the interval; its ticks are multiples of it since 1970, plus `phase_ms`.
        phase_ms: the offset of an interval's ticks.
        at_ms: the one moment.
        jitter_ms: most milliseconds by which a tick comes late, by a number that its own time gives.
        from_ms, until_ms: the first and the last moment at which it may tick; None: any.
    """

    cron: Annotated[str, Form(maxLength=200)] | None = None
    zone: Annotated[str, Form(maxLength=100)] | None = None
    every_ms: Annotated[int, Form(minimum=1_000, maximum=LONGEST_MS)] | None = None
    phase_ms: Span = 0
    at_ms: Moment | None = None
    jitter_ms: Span = 0
    from_ms: Moment | None = None
    until_ms: Moment | None = None


class ScheduleAdded(StandardEvent, event_type="schedule.added"):
    """A command: start runs of an agent at these times. Its `event_id` is the id of the schedule.

    Ticks before it do not count. Without effect if a schedule of this name is there.

    Attributes:
        schedule: the name.
        agent_type, input: what its runs are.
        times: when it ticks.
        overlap: what becomes of a tick while an earlier run is open.
        catchup_ms: how late a tick may be started; later ones are skipped.
        paused, note: whether it begins paused, and why.
        capability_id, agent_version, permissions, mode: of its runs, as in `run.requested`.
        limit_ms: time after its start by which each run has to have ended; None: any.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = (
        *("note", "capability_id", "agent_version", "permissions", "mode", "limit_ms"),
    )

    schedule: ScheduleName
    agent_type: AgentType
    input: Object = Field(default_factory=dict)
    times: ScheduleTimes
    overlap: Overlap = Overlap.SKIP
    catchup_ms: Span
    paused: bool = False
    note: Note | None = None
    capability_id: Name | None = None
    agent_version: Annotated[str, Form(maxLength=256)] | None = None
    permissions: Permissions | None = None
    mode: Annotated[str, Form(maxLength=100)] | None = None
    limit_ms: Annotated[int, Form(minimum=1, maximum=LONGEST_MS)] | None = None


class SchedulePaused(StandardEvent, event_type="schedule.paused"):
    """A command: it ticks no more until `schedule.resumed`."""

    schedule: ScheduleName
    note: Note | None = None


class ScheduleResumed(StandardEvent, event_type="schedule.resumed"):
    """A command: it ticks again; ticks during the pause are not made up."""

    schedule: ScheduleName
    note: Note | None = None


class ScheduleTriggered(StandardEvent, event_type="schedule.triggered"):
    """A command: a tick now, also of a paused schedule. `overlap`: of this tick; None: the schedule's."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("overlap",)

    schedule: ScheduleName
    overlap: Overlap | None = None


class ScheduleRemoved(StandardEvent, event_type="schedule.removed"):
    """A command: it is gone; open runs of it go on. The name is free again."""

    schedule: ScheduleName


class ScheduleWoken(StandardEvent, event_type="schedule.woken"):
    """A clock says which ticks of a schedule are due; ticks that its owner knows already change nothing.

    Attributes:
        schedule: the name.
        schedule_id: the id of the schedule that it was computed for.
        now_ms: the time of that clock.
        ticks: the due ticks, in ascending order.
        until_ms: nothing else is due up to here.
        missed: number of ticks that came too late to be started; `missed_more`: there were even more.
        missed_from_ms, missed_until_ms: the first and the last of them.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("missed_from_ms", "missed_until_ms")

    schedule: ScheduleName
    schedule_id: Identifier
    now_ms: Moment
    ticks: Annotated[list[Moment], Form(maxItems=MOST_TICKS)] = Field(default_factory=list)
    until_ms: Moment
    missed: Annotated[int, Form(minimum=0, maximum=MAX_INT)] = 0
    missed_more: bool = False
    missed_from_ms: Moment | None = None
    missed_until_ms: Moment | None = None


class ScheduleRunEnded(StandardEvent, event_type="schedule.run.ended"):
    """A run of a schedule has ended; `status` as in a list of runs, `error` if it has no result."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("error",)

    schedule: ScheduleName
    run_id: Identifier
    status: Name
    ended_ms: Moment
    error: Annotated[str, Form(maxLength=MAX_ERROR)] | None = None


class ScheduleTickStarted(StandardEvent, event_type="schedule.tick.started"):
    """A tick has started a run: the run's command is in the same commit. `triggered`: somebody asked for it.

    `agent_type` is the run's; `late_ms` is how long after its tick it was started.
    """

    schedule: ScheduleName
    schedule_id: Identifier
    tick_ms: Moment
    run_id: Identifier
    agent_type: AgentType
    triggered: bool = False
    late_ms: Whole = 0


class ScheduleTickBuffered(StandardEvent, event_type="schedule.tick.buffered"):
    """A tick waits for the end of an earlier run; `waiting` ticks wait with it."""

    schedule: ScheduleName
    schedule_id: Identifier
    tick_ms: Moment
    triggered: bool = False
    waiting: Whole


class ScheduleTickSkipped(StandardEvent, event_type="schedule.tick.skipped"):
    """Ticks start no run: `count` of them (`more`: at least), from `from_ms` to `until_ms`.

    `reason`: `overlap` (a run of it is open), `replaced` (a later tick took its place), `late` (it is older
    than the catch-up window), `full` (too many are open or wait).
    """

    schedule: ScheduleName
    schedule_id: Identifier
    reason: Name
    from_ms: Moment
    until_ms: Moment
    count: Whole = 1
    more: bool = False


class ScheduleRefused(StandardEvent, event_type="schedule.refused"):
    """A command about a schedule had no effect. `command` is its type, `command_id` its event id."""

    schedule: ScheduleName
    command: Name
    command_id: Identifier
    reason: Note


def overlap_of(value: Any) -> Overlap:
    """The policy of this name; `skip` if there is none."""
    try:
        return Overlap(value)
    except ValueError:
        return Overlap.SKIP
