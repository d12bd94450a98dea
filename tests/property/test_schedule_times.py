"""Ticks: the same wherever one begins, each once, whatever the clock does and whenever the process dies."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from noesium_stream.agent.schedules import due
from noesium_stream.agent.schedules.times import due_times, ticks_after
from noesium_stream.event.standard import ScheduleTimes

CHANGES = {
    "Europe/Berlin": ("2026-03-29T01:00", "2026-10-25T01:00"),
    "America/New_York": ("2026-03-08T07:00", "2026-11-01T06:00"),
    "Australia/Lord_Howe": ("2026-04-04T15:00", "2026-10-03T15:30"),
    "Africa/Casablanca": ("2026-02-15T02:00", "2026-03-22T02:00"),
    "Pacific/Apia": ("2011-12-30T10:00", "2011-12-30T10:00"),
}
"""Moments at which the clocks of a zone change, in UTC."""
CRON = (
    *("30 2 * * *", "15 1 * * *", "0 3 * * *", "45 1,2 * * *", "0 0 * * *", "0,30 1-3 * * SUN"),
    *("*/15 * * * *", "0 * * * *", "20 */2 * * *", "* 2 * * *"),
)
HOUR = 3_600_000
DAY = 24 * HOUR


def utc(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@st.composite
def around_a_change(draw: st.DrawFn) -> tuple[ScheduleTimes, int, int]:
    """Times, and the hours around a change of the clocks: from, to."""
    zone = draw(st.sampled_from(sorted(CHANGES)))
    change = utc(draw(st.sampled_from(CHANGES[zone])))
    times = ScheduleTimes(cron=draw(st.sampled_from(CRON)), zone=zone)
    return times, change - draw(st.integers(1, 30)) * HOUR, change + draw(st.integers(1, 30)) * HOUR


def ticks(times: ScheduleTimes, after: int, until: int) -> list[int]:
    return list(takewhile(lambda tick: tick <= until, ticks_after(times, after)))


@settings(max_examples=150, deadline=None)
@given(around_a_change(), st.data())
def test_the_ticks_after_a_moment_are_the_same_wherever_one_begins(
    around: tuple[ScheduleTimes, int, int], data: st.DataObject
) -> None:
    times, start, end = around
    whole = ticks(times, start, end)
    assert whole == sorted(set(whole))
    cut = data.draw(st.integers(start, end) | st.sampled_from([start, *whole]))
    assert ticks(times, cut, end) == [tick for tick in whole if tick > cut]


@settings(max_examples=60, deadline=None)
@given(around_a_change())
def test_a_fixed_time_has_one_tick_for_each_day_and_shows_that_time_unless_it_lies_in_a_gap(
    around: tuple[ScheduleTimes, int, int],
) -> None:
    times, start, end = around
    zone = ZoneInfo(times.zone or "")
    times = times.model_copy(update={"cron": "30 2 * * *"})
    days = [datetime.fromtimestamp(tick / 1000, zone) for tick in ticks(times, start, end + 3 * DAY)]
    assert len({day.date() for day in days}) >= len(days) - 1  # of Apia a day is missing
    other = [day for day in days if (day.hour, day.minute) != (2, 30)]
    assert len(other) <= 1


@pytest.mark.parametrize(
    ("cron", "zone", "day", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["02:30+02:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["03:00+02:00"]),
        ("30 1 * * *", "America/New_York", "2026-11-01", ["01:30-04:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["02:30+11:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05", ["01:45+11:00"]),
        (
            "*/30 2 * * *",
            "Europe/Berlin",
            "2026-10-25",
            ["02:00+02:00", "02:30+02:00", "02:00+01:00", "02:30+01:00"],
        ),
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-29", []),
    ],
)
def test_what_a_night_of_the_change_has(cron: str, zone: str, day: str, expected: list[str]) -> None:
    first = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    start = round(first.timestamp() * 1000) - 1
    found = [
        datetime.fromtimestamp(tick / 1000, ZoneInfo(zone)).isoformat()
        for tick in ticks(ScheduleTimes(cron=cron, zone=zone), start, start + 20 * HOUR)
    ]
    assert [
        one.removeprefix(f"{day}T").replace(":00+", "+").replace(":00-", "-") for one in found
    ] == expected


TIMES = st.one_of(
    st.builds(ScheduleTimes, cron=st.sampled_from(CRON), zone=st.sampled_from(sorted(CHANGES))),
    st.builds(
        ScheduleTimes,
        every_ms=st.integers(1_000, 3 * HOUR),
        phase_ms=st.integers(0, HOUR),
        jitter_ms=st.integers(0, 2 * HOUR),
    ),
    st.builds(ScheduleTimes, at_ms=st.integers(0, 3 * DAY).map(lambda ms: utc("2026-03-28T12:00") + ms)),
)


@settings(max_examples=150, deadline=None)
@given(TIMES, st.lists(st.integers(-2 * HOUR, 6 * HOUR), max_size=25), st.integers(0, 4 * HOUR))
@example(ScheduleTimes(every_ms=1_000), [6 * HOUR], 60_000)
def test_each_tick_is_due_once_or_missed_once_however_the_clock_is_set(
    times: ScheduleTimes, steps: list[int], catchup: int
) -> None:
    start = now = until = utc("2026-03-28T12:00")
    given_out: list[int] = []
    missed = 0
    counted = True
    for step in steps:  # a negative one: the clock is put back
        now += step
        while True:
            found = due("s", times, until, now, catchup)
            assert found.until_ms >= until
            until = found.until_ms
            given_out += found.ticks
            missed += found.missed
            counted = counted and not found.more
            if not found.ticks:
                break
        assert found.next_ms is None or found.next_ms > now
    assert given_out == sorted(set(given_out))
    dealt_with = [tick for tick, _ in takewhile(lambda one: one[0] <= until, due_times("s", times, start))]
    assert set(given_out) <= set(dealt_with)
    if counted:
        assert len(given_out) + missed == len(dealt_with)
    else:
        assert len(given_out) + missed <= len(dealt_with)


@settings(max_examples=100, deadline=None)
@given(st.integers(1_000, HOUR), st.integers(0, 3 * HOUR), st.integers(0, 10**12), st.text(max_size=9))
def test_jitter_keeps_the_order_and_is_the_same_for_everybody(
    every: int, jitter: int, after: int, schedule_id: str
) -> None:
    times = ScheduleTimes(every_ms=every, jitter_ms=jitter)
    found = [one for one, _ in zip(due_times(schedule_id, times, after), range(20), strict=False)]
    assert [at for _, at in found] == sorted(at for _, at in found)
    assert all(0 <= at - tick < max(1, min(jitter, every)) for tick, at in found)
    later = due_times(schedule_id, times, found[4][0])
    assert [one for one, _ in zip(later, range(15), strict=False)] == found[5:]
