"""The decider of schedules: what an event does to a schedule, as a pure function.

`decide(schedule, event)` gives the next state and what is made of it: commands to agents, and facts for
people. The state is folded from the events alone, and what is made goes to the log in the same commit as the
owner's position, so every tick starts at most one run, whoever owns the schedule and however often he dies.

A tick is due once: ticks up to `Schedule.until_ms` are dealt with, whatever a clock says later. Repeated or
late events change nothing, and no event that its schema allows is an error: an owner must not stop at what
somebody has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from noesium_stream.agent.request import AgentRequest
from noesium_stream.agent.schedules.state import (
    MOST_OPEN,
    MOST_WAITING,
    Ended,
    Schedule,
    Tick,
    plan_of,
    tick_at,
    tick_by,
)
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.attributes import SCHEDULE
from noesium_stream.event.standard import (
    Overlap,
    RunCancelRequested,
    RunRequested,
    ScheduleAdded,
    SchedulePaused,
    ScheduleRefused,
    ScheduleRemoved,
    ScheduleResumed,
    ScheduleRunEnded,
    ScheduleTickBuffered,
    ScheduleTickSkipped,
    ScheduleTickStarted,
    ScheduleTriggered,
    ScheduleWoken,
    ToolLimits,
)
from noesium_stream.event.standard.schedule import LAST_MS, MOST_TICKS, overlap_of
from noesium_stream.log.headers import LATEST_MS

NONE: Final = Schedule()
"""The state of a name that no schedule has."""

Made = DomainEvent | AgentRequest


class Decision(NamedTuple):
    """The state after an event (None: there is no such schedule any more), and what is made of the event."""

    state: Schedule | None
    made: tuple[Made, ...] = ()


def decide(schedule: Schedule, event: EventEnvelope) -> Decision:
    """Say what an event does to the schedule of its name."""
    rule = _RULES.get(event.event_type)
    decision = Decision(schedule) if rule is None else rule(schedule, event, event.payload)
    return decision._replace(state=None) if decision.state == NONE else decision


# -- commands of people ------------------------------------------------------------------------------


def _added(schedule: Schedule, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    if schedule.schedule_id == event.event_id:
        return Decision(schedule)
    if schedule.schedule_id:
        return _refused(schedule, event, "a schedule of this name is there already")
    try:
        added = ScheduleAdded.model_validate(payload)
    except ValidationError:
        return _refused(schedule, event, "it is not a valid schedule")
    made = Schedule(
        schedule_id=event.event_id,
        name=added.schedule,
        plan=plan_of(added),
        added_ms=event.timestamp_ms,
        added_by=event.producer.agent_id,
        until_ms=_moment(event.timestamp_ms),
        paused=added.paused,
        note=added.note,
    )
    return Decision(made)


def _paused(schedule: Schedule, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    if not schedule.schedule_id:
        return _refused(schedule, event, _UNKNOWN)
    return Decision(replace(schedule, paused=True, note=payload.get("note")))


def _resumed(schedule: Schedule, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    if not schedule.schedule_id:
        return _refused(schedule, event, _UNKNOWN)
    if not schedule.paused:
        return Decision(replace(schedule, note=payload.get("note")))
    until_ms = max(schedule.until_ms, _moment(event.timestamp_ms))
    goes_on = replace(schedule, paused=False, note=payload.get("note"), until_ms=until_ms)
    return _Work(goes_on, event.timestamp_ms).next_waiting().done()


def _triggered(schedule: Schedule, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    if not schedule.schedule_id:
        return _refused(schedule, event, _UNKNOWN)
    tick = tick_by(schedule.schedule_id, event.event_id, _moment(event.timestamp_ms))
    if tick in schedule.open or tick in schedule.waiting:
        return Decision(schedule)
    overlap = payload.get("overlap")
    policy = schedule.plan.overlap if overlap is None else overlap_of(overlap)
    return _Work(schedule, event.timestamp_ms).take(tick, policy).done()


def _removed(schedule: Schedule, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    return Decision(NONE) if schedule.schedule_id else _refused(schedule, event, _UNKNOWN)


_UNKNOWN: Final = "there is no schedule of this name"


def _refused(schedule: Schedule, event: EventEnvelope, reason: str) -> Decision:
    refused = ScheduleRefused(
        schedule=event.payload["schedule"], command=event.event_type, command_id=event.event_id, reason=reason
    )
    return Decision(schedule, (refused,))


# -- what the clock and the runs say -----------------------------------------------------------------


def _woken(schedule: Schedule, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    if schedule.schedule_id != payload["schedule_id"] or schedule.paused:
        return Decision(schedule)
    before_ms, now_ms = schedule.until_ms, payload["now_ms"]
    until_ms = max(before_ms, min(payload["until_ms"], now_ms))
    work = _Work(replace(schedule, until_ms=until_ms), now_ms)
    _miss(work, payload, before_ms, until_ms)
    for tick_ms in sorted(set(payload["ticks"][:MOST_TICKS])):
        if before_ms < tick_ms <= until_ms:
            work.take(tick_at(schedule.schedule_id, tick_ms), schedule.plan.overlap)
    return work.done()


def _miss(work: _Work, payload: Mapping[str, Any], before_ms: int, until_ms: int) -> None:
    """Tell of ticks that came too late."""
    first_ms, last_ms = payload.get("missed_from_ms"), payload.get("missed_until_ms")
    if first_ms is None or last_ms is None or not payload["missed"]:
        return
    if before_ms < first_ms <= last_ms:
        work.skip("late", first_ms, last_ms, payload["missed"], more=payload["missed_more"])
    elif first_ms <= before_ms < last_ms <= until_ms:
        # An earlier event has dealt with some of them; how many others there are is not known.
        work.skip("late", before_ms + 1, last_ms, more=True)


def _run_ended(schedule: Schedule, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    run_id = payload["run_id"]
    tick = next((one for one in schedule.open if one.run_id == run_id), None)
    if tick is None:
        return Decision(schedule)
    last = Ended(tick.tick_ms, run_id, payload["status"], payload["ended_ms"], payload.get("error"))
    rest = replace(
        schedule,
        open=tuple(one for one in schedule.open if one.run_id != run_id),
        cancelled=tuple(one for one in schedule.cancelled if one != run_id),
        last=last,
    )
    return _Work(rest, event.timestamp_ms).next_waiting().done()


_RULES: Final[Mapping[str, Callable[[Schedule, EventEnvelope, Mapping[str, Any]], Decision]]] = {
    ScheduleAdded.TYPE: _added,
    SchedulePaused.TYPE: _paused,
    ScheduleResumed.TYPE: _resumed,
    ScheduleTriggered.TYPE: _triggered,
    ScheduleRemoved.TYPE: _removed,
    ScheduleWoken.TYPE: _woken,
    ScheduleRunEnded.TYPE: _run_ended,
}
INPUTS: Final = tuple(_RULES)
"""Types of the events that a schedule's state is folded from."""


# -- ticks and overlap -------------------------------------------------------------------------------


class _Work:
    """A schedule while one event is decided, with what is made so far."""

    def __init__(self, schedule: Schedule, now_ms: int) -> None:
        self._state = schedule
        self._now_ms = _moment(now_ms)
        self._made: list[Made] = []

    def done(self) -> Decision:
        """The decision."""
        return Decision(self._state, tuple(self._made))

    def take(self, tick: Tick, policy: Overlap) -> _Work:
        """Start a tick's run, let it wait, or skip it, as the overlap policy says."""
        state = self._state
        if policy is Overlap.TERMINATE_OTHER:
            self._cancel(state.open)
            self._state = replace(self._state, open=(), cancelled=())
        if not self._state.open or policy is Overlap.ALLOW_ALL:
            self._start_or_skip(tick)
        elif policy is Overlap.CANCEL_OTHER:
            self._cancel(one for one in state.open if one.run_id not in state.cancelled)
            asked = tuple(one.run_id for one in state.open)
            for other in state.waiting:
                self.skip("replaced", other.tick_ms, other.tick_ms)
            self._state = replace(self._state, cancelled=asked, waiting=())
            self._wait(tick)
        elif policy is Overlap.SKIP or (policy is Overlap.BUFFER_ONE and state.waiting):
            self.skip("overlap", tick.tick_ms, tick.tick_ms)
        else:
            self._wait(tick)
        return self

    def next_waiting(self) -> _Work:
        """Start the first waiting tick if no run is open."""
        state = self._state
        if state.waiting and not state.open and not state.paused:
            self._state = replace(state, waiting=state.waiting[1:])
            self._start_or_skip(state.waiting[0])
        return self

    def skip(self, reason: str, from_ms: int, until_ms: int, count: int = 1, *, more: bool = False) -> None:
        """Tell that ticks start no run."""
        state = self._state
        self._made.append(
            ScheduleTickSkipped(
                schedule=state.name,
                schedule_id=state.schedule_id,
                reason=reason,
                from_ms=from_ms,
                until_ms=until_ms,
                count=count,
                more=more,
            )
        )
        self._state = replace(state, skipped=state.skipped + count)

    def _wait(self, tick: Tick) -> None:
        state = self._state
        if len(state.waiting) >= MOST_WAITING:
            self.skip("full", tick.tick_ms, tick.tick_ms)
            return
        self._state = replace(state, waiting=(*state.waiting, tick))
        self._made.append(
            ScheduleTickBuffered(
                schedule=state.name,
                schedule_id=state.schedule_id,
                tick_ms=tick.tick_ms,
                triggered=tick.triggered,
                waiting=len(self._state.waiting),
            )
        )

    def _start_or_skip(self, tick: Tick) -> None:
        state, plan = self._state, self._state.plan
        if len(state.open) >= MOST_OPEN:
            self.skip("full", tick.tick_ms, tick.tick_ms)
            return
        limited = plan.permissions is not None or plan.mode is not None
        requested = RunRequested(
            run_id=tick.run_id,
            agent_type=plan.agent_type,
            input=plan.input,
            deadline_ms=None if plan.limit_ms is None else min(self._now_ms + plan.limit_ms, LATEST_MS),
            agent_version=plan.agent_version,
            capability_id=plan.capability_id,
            limits=ToolLimits(permissions=plan.permissions, mode=plan.mode) if limited else None,
            attributes={SCHEDULE: state.name},
        )
        self._made.append(AgentRequest(requested, plan.agent_type))
        self._made.append(
            ScheduleTickStarted(
                schedule=state.name,
                schedule_id=state.schedule_id,
                tick_ms=tick.tick_ms,
                run_id=tick.run_id,
                agent_type=plan.agent_type,
                triggered=tick.triggered,
                late_ms=max(0, self._now_ms - tick.tick_ms),
            )
        )
        self._state = replace(state, open=(*state.open, tick), started=state.started + 1)

    def _cancel(self, ticks: Iterable[Tick]) -> None:
        state = self._state
        why = f"the next tick of the schedule {state.name} has come"
        self._made.extend(
            AgentRequest(RunCancelRequested(run_id=one.run_id, reason=why), state.plan.agent_type)
            for one in ticks
        )


def _moment(ms: int) -> int:
    """A time of an envelope, within the bounds of a moment."""
    return min(max(ms, 0), LAST_MS)
