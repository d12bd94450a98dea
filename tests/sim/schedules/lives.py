"""The schedules that a name has had, and their ticks as the calendar has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from noesium_stream.agent.schedules.decider import NONE, decide
from noesium_stream.agent.schedules.state import Schedule, plan_of
from noesium_stream.agent.schedules.times import delay_ms
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import Overlap, ScheduleAdded, ScheduleTimes
from noesium_stream.log.record import Record
from tests.sim.schedules.calendar import ticks_between

SLACK_MS = 10_000
"""What was due so long before the end has been dealt with."""
CALM_MS = 30_000
"""For so long before the end nothing befalls anybody, and nothing is left to be made up."""
LEAST_CATCHUP_MS = 10_000
_LONGEST_MS = 3 * 86_400_000


@dataclass(slots=True)
class Life:
    """A schedule from when it was added until it was removed, or until the end.

    Attributes:
        dealt_ms: up to here its ticks are dealt with.
        ticks: what was to be decided: the id of the event that says so, and the tick.
        policies: the overlap policies of these.
        missed: by event, how many ticks were too late.
        told_ms: when its ticks were due, and when somebody told of them.
        state: the state of a fold after the last event about it.
        faults: what does not hold of its times.
    """

    name: str
    schedule_id: str
    times: ScheduleTimes
    overlap: Overlap
    catchup_ms: int
    dealt_ms: int
    paused: bool
    removed: bool = False
    ticks: list[tuple[str, int]] = field(default_factory=list)
    policies: dict[tuple[str, int], Overlap] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)
    told_ms: list[tuple[int, int]] = field(default_factory=list)
    state: Schedule = NONE
    faults: list[str] = field(default_factory=list)

    def take(self, event: EventEnvelope, the_end: str) -> None:
        """Take the next event of its name."""
        payload = event.payload
        kind = event.event_type.removeprefix("schedule.")
        if kind == "paused":
            if payload.get("note") == the_end and not self.paused:
                self._left_over(event.timestamp_ms - SLACK_MS)
                self._told_late(event.timestamp_ms)
            self.paused = True
        elif kind == "resumed" and self.paused:
            self.paused, self.dealt_ms = False, max(self.dealt_ms, event.timestamp_ms)
        elif kind == "triggered":
            policy = payload.get("overlap")
            self._decide(event, event.timestamp_ms, self.overlap if policy is None else Overlap(policy))
        elif kind == "woken" and payload["schedule_id"] == self.schedule_id and not self.paused:
            self._woken(event, payload)

    def _decide(self, event: EventEnvelope, tick_ms: int, policy: Overlap) -> None:
        self.ticks.append((event.event_id, tick_ms))
        self.policies[event.event_id, tick_ms] = policy

    def _woken(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        until_ms, now_ms = payload["until_ms"], payload["now_ms"]
        if until_ms <= self.dealt_ms:
            return
        oldest_ms = now_ms - self.catchup_ms
        missed_ms = payload.get("missed_until_ms") or 0
        missed = 0
        due = list[int]()
        for tick_ms, at_ms in self.due_between(self.dealt_ms, until_ms):
            if at_ms > now_ms:
                self.faults.append(f"tick: {tick_ms} of {self.name} was told {at_ms - now_ms} ms early")
            if at_ms < oldest_ms and tick_ms <= missed_ms:
                missed += 1
            elif at_ms < oldest_ms:
                self.faults.append(f"tick: {tick_ms} of {self.name} is too late, and was not told as such")
            else:
                due.append(tick_ms)
            self.told_ms.append((at_ms, now_ms))
        told = [tick_ms for tick_ms in payload["ticks"] if tick_ms > self.dealt_ms]
        if told != due:
            self.faults.append(f"tick: {self.name} was told {told} at {now_ms}, and due is {due}")
        whole = (payload.get("missed_from_ms") or 0) > self.dealt_ms
        if whole and not payload["missed_more"] and payload["missed"] != missed:
            self.faults.append(f"tick: {self.name} was told that {payload['missed']} are late: {missed} are")
        if missed:  # how many is not known where some of those that are told were dealt with before
            self.missed[event.event_id] = payload["missed"] if whole else 1
        for tick_ms in told:
            self._decide(event, tick_ms, self.overlap)
        self.dealt_ms = until_ms

    def due_between(self, after_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
        """The ticks of a span, each with the time at which it is due."""
        found = ticks_between(self.times, after_ms, until_ms)
        following = ticks_between(self.times, until_ms, until_ms + _LONGEST_MS)[:1] if found else []
        for tick_ms, next_ms in zip(found, [*found[1:], *following, None], strict=False):
            yield tick_ms, tick_ms + delay_ms(self.schedule_id, tick_ms, self.times.jitter_ms, next_ms)

    def _told_late(self, end_ms: int) -> None:
        for at_ms, now_ms in self.told_ms:
            late_ms = now_ms - at_ms
            # A clock that was wrong has told of some before their time.
            if end_ms - CALM_MS < at_ms and now_ms <= end_ms and late_ms > SLACK_MS // 2:
                self.faults.append(f"tick: one of {self.name} was told {late_ms} ms late, when all was calm")

    def _left_over(self, until_ms: int) -> None:
        for tick_ms, at_ms in self.due_between(self.dealt_ms, until_ms):
            if at_ms <= until_ms:
                self.faults.append(f"tick: {tick_ms} of {self.name} was due, and nobody was told of it")


def lives_of(inputs: Sequence[Record], the_end: str) -> list[Life]:
    """The schedules of a name, one after the other."""
    found: list[Life] = []
    life: Life | None = None
    for record in inputs:
        event = record.envelope
        if event.event_type == "schedule.added" and life is None:
            life = _begun(event)
            found.append(life)
        elif life is not None:
            life.take(event, the_end)
        if life is None:
            continue
        if event.event_type == "schedule.removed":
            life.removed, life = True, None
        else:
            life.state = decide(life.state, event).state or NONE
    return found


def _begun(event: EventEnvelope) -> Life:
    added = ScheduleAdded.model_validate(event.payload)
    plan = plan_of(added)
    return Life(
        name=added.schedule,
        schedule_id=event.event_id,
        times=plan.times,
        overlap=plan.overlap,
        catchup_ms=max(plan.catchup_ms, LEAST_CATCHUP_MS),
        dealt_ms=event.timestamp_ms,
        paused=added.paused,
    )
