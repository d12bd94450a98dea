"""The rule of a watchdog, for any events of a key: once for each beginning at most, and pure."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.agent.watchdog.rule import ELAPSED, NOTHING, Overdue, Rule, judge
from noesium_stream.clock import VirtualClock
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext

BASE_MS = 1_767_225_600_000


def event(kind: str, at_ms: int, event_id: str, **payload: Any) -> EventEnvelope:
    return EventEnvelope(
        event_id=event_id,
        event_type=kind,
        timestamp_ms=BASE_MS + at_ms,
        producer=AgentRef("p", "client"),
        trace=TraceContext("0" * 32, "0" * 16),
        partition_key="k",
        payload=payload,
    )


def ids(number: int) -> str:
    clock = VirtualClock(seed=number)
    return clock.uuid7()


@st.composite
def histories(draw: st.DrawFn) -> list[EventEnvelope]:
    """Beginnings and ends whose times rise, and times that a feeder tells, also twice and late."""
    now, events = 0, []
    for number in range(draw(st.integers(0, 20))):
        now += draw(st.integers(0, 15))
        kind = draw(st.sampled_from(["test.a", "test.b", ELAPSED]))
        payload = {}
        if kind == ELAPSED:
            begun = draw(st.integers(0, number))
            payload = {
                "watchdog": "dog",
                "begun_id": ids(begun),
                "due_ms": 0,
                "now_ms": BASE_MS + now - draw(st.integers(0, 15)),
            }
        events.append(event(kind, now, ids(number), **payload))
    return events


def told(rule: Rule, events: list[EventEnvelope]) -> list[Overdue]:
    row, found = NOTHING, []
    for one in events:
        row, late = judge(rule, row, one)
        if late is not None:
            found.append(late)
    return found


@given(histories(), st.booleans())
def test_each_beginning_is_overdue_at_most_once_however_often_time_is_told(
    events: list[EventEnvelope], beats: bool
) -> None:
    ends = ("test.a",) if beats else ("test.b",)
    rule = Rule("dog", ("test.a",), ends, 10)
    once = told(rule, events)
    assert len({one.event_id for one in once}) == len(once)
    twice = [again for one in events for again in ((one, one) if one.event_type == ELAPSED else (one,))]
    assert told(rule, twice) == once


@given(histories())
def test_nothing_that_ended_in_time_is_overdue(events: list[EventEnvelope]) -> None:
    rule = Rule("dog", ("test.a",), ("test.b",), 10)
    for one in told(rule, events):
        end = next(
            (
                other
                for other in events[[each.event_id for each in events].index(one.event_id) :]
                if other.event_type == "test.b"
            ),
            None,
        )
        said = [
            other for other in events if other.event_type == ELAPSED and other.payload["now_ms"] >= one.due_ms
        ]
        assert said or (end is not None and end.timestamp_ms > one.due_ms)


def test_a_heart_that_beats_in_time_is_not_overdue_and_one_that_stops_is() -> None:
    rule = Rule("dog", ("test.a",), ("test.a",), 10)
    beats = [event("test.a", at, ids(at)) for at in (0, 9, 18, 27)]
    assert told(rule, beats) == []
    stopped = event(ELAPSED, 37, ids(99), watchdog="dog", begun_id=ids(27), due_ms=0, now_ms=BASE_MS + 37)
    assert [one.event_id for one in told(rule, [*beats, stopped])] == [ids(27)]
    late = event("test.a", 50, ids(50))
    assert [one.event_id for one in told(rule, [*beats, late])] == [ids(27)]
