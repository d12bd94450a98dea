"""The decider of schedules: whatever comes, twice or late, each tick has one fate, and a run starts once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from noesium_stream.agent.request import AgentRequest
from noesium_stream.agent.schedules import Decision, Schedule, Schedules, decide
from noesium_stream.clock import VirtualClock
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import (
    Overlap,
    RunRequested,
    ScheduleAdded,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleResumed,
    ScheduleRunEnded,
    ScheduleTickSkipped,
    ScheduleTickStarted,
    ScheduleTimes,
    ScheduleTriggered,
    ScheduleWoken,
)
from noesium_stream.event.standard.catalogue import standard_catalogue
from noesium_stream.projection.state.codec import StateCodec

START = 1_767_225_600_000
ANNE = AgentRef("anne", "client")
CATALOGUE = standard_catalogue()


class Play:
    """A schedule that is folded from events; each event is validated, as it would be on the log."""

    def __init__(self, overlap: Overlap, *, paused: bool = False) -> None:
        self.clock = VirtualClock(START)
        self.fold = Schedules()
        self.codec: StateCodec[Schedule] = StateCodec(self.fold)
        self.state: Schedule = self.fold.initial_state()
        self.events: list[EventEnvelope] = []
        self.made: list[Any] = []
        times = ScheduleTimes(every_ms=1_000)
        self.send(
            ScheduleAdded(
                schedule="s", agent_type="a", times=times, overlap=overlap, catchup_ms=5_000, paused=paused
            )
        )

    def send(self, event: DomainEvent) -> Decision:
        trace = TraceContext("a" * 32, "b" * 16)
        envelope = event.to_envelope(ANNE, trace, partition_key="s", clock=self.clock)
        return self.take(envelope)

    def take(self, envelope: EventEnvelope) -> Decision:
        CATALOGUE.validate(envelope)
        assert self.fold.key(envelope) == "s"
        self.events.append(envelope)
        # As the owner does: the row comes from its file.
        before = self.codec.decode(self.codec.encode(self.state))
        assert before == self.state
        decision = decide(before, envelope)
        assert decide(self.codec.decode(self.codec.encode(self.state)), envelope)[0] == decision.state
        self.state = self.fold.initial_state() if decision.state is None else decision.state
        self.made += decision.made
        return decision

    def wake(self, ticks: list[int], *, schedule_id: str | None = None) -> Decision:
        now = self.clock.now_ms()
        ticks = [START + 1_000 * tick for tick in ticks]
        woken = ScheduleWoken(
            schedule="s",
            schedule_id=schedule_id or self.state.schedule_id or "gone",
            now_ms=now,
            ticks=ticks,
            until_ms=max([*ticks, 0]),
        )
        return self.send(woken)

    def started(self) -> list[str]:
        return [one.event.run_id for one in self.made if _starts(one)]

    def told(self) -> list[str]:
        return [one.run_id for one in self.made if isinstance(one, ScheduleTickStarted)]

    def skipped(self) -> int:
        return sum(one.count for one in self.made if isinstance(one, ScheduleTickSkipped))


def _starts(one: Any) -> bool:
    return isinstance(one, AgentRequest) and isinstance(one.event, RunRequested)


ACTION = st.one_of(
    st.tuples(st.just("wake"), st.lists(st.integers(1, 40), max_size=4)),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["pause", "resume", "trigger", "again", "stale", "advance"]), st.just(0)),
)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(Overlap), st.lists(ACTION, max_size=40), st.randoms(use_true_random=False))
def test_whatever_comes_each_tick_has_one_fate(
    overlap: Overlap, actions: list[tuple[str, Any]], chance: Any
) -> None:
    play = Play(overlap)
    taken: set[int] = set()
    triggered = 0
    for action, value in actions:
        before = play.state.until_ms
        paused = play.state.paused
        if action == "wake":
            play.clock.advance(max([*value, 0]))
            play.wake(sorted(value))
            if not paused:
                taken |= {tick for tick in value if START + 1_000 * tick > before}
        elif action == "end" and play.state.open:
            one = play.state.open[value % len(play.state.open)]
            ended = ScheduleRunEnded(schedule="s", run_id=one.run_id, status="completed", ended_ms=START)
            play.send(ended)
        elif action == "pause":
            play.send(SchedulePaused(schedule="s"))
        elif action == "resume":
            play.send(ScheduleResumed(schedule="s"))
        elif action == "trigger":
            play.send(ScheduleTriggered(schedule="s"))
            triggered += 1
        elif action == "again" and play.events:  # what a feeder of an earlier owner appends once more
            again = chance.choice([e for e in play.events if e.event_type != "schedule.triggered"])
            if again.event_type in ("schedule.woken", "schedule.run.ended"):
                made = len(play.made)
                play.take(again)
                assert not any(map(_starts, play.made[made:])) or again.payload.get("ticks")
        elif action == "stale":
            assert play.wake([39], schedule_id="another").made == ()
        elif action == "advance":
            play.clock.advance(3)
        assert play.state.until_ms >= before
    started = play.started()
    assert (
        Counter(started).most_common(1) == ([] if not started else [(started[0], 1)])
        or max(Counter(started).values()) == 1
    )
    assert started == play.told()
    assert play.state.started == len(started)
    assert play.state.skipped == play.skipped()
    assert len(started) + play.skipped() + len(play.state.waiting) == len(taken) + triggered
    if overlap not in (Overlap.ALLOW_ALL,):
        assert len(play.state.open) <= 1


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**53 - 1),
    st.lists(st.integers(0, 253_402_300_799_999), max_size=100),
    st.integers(0, 253_402_300_799_999),
    st.integers(0, 2**53 - 1),
    st.booleans(),
    st.sampled_from(Overlap),
)
def test_no_valid_event_stops_the_owner(
    moment: int, ticks: list[int], until: int, missed: int, more: bool, overlap: Overlap
) -> None:
    play = Play(overlap)
    play.clock = VirtualClock(min(moment, 253_402_300_799_999))
    woken = ScheduleWoken(
        schedule="s",
        schedule_id=play.state.schedule_id,
        now_ms=min(moment, 253_402_300_799_999),
        ticks=ticks,
        until_ms=until,
        missed=missed,
        missed_more=more,
        missed_from_ms=ticks[0] if ticks else None,
        missed_until_ms=until,
    )
    for event in (woken, ScheduleTriggered(schedule="s"), ScheduleRemoved(schedule="s"), woken):
        for one in play.send(event).made:
            made = one.event if isinstance(one, AgentRequest) else one
            envelope = made.to_envelope(ANNE, TraceContext("a" * 32, "b" * 16), clock=play.clock)
            CATALOGUE.validate(envelope)
