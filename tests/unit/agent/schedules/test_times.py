"""Times of schedules: what is refused, and what is counted as missed."""

from __future__ import annotations

import pytest

from noesium_stream.agent.schedules import check_times, due
from noesium_stream.agent.schedules.times import MOST_MISSED
from noesium_stream.errors import ConfigError
from noesium_stream.event.standard import ScheduleTimes
from noesium_stream.event.standard.schedule import MOST_TICKS

START = 1_767_225_600_000


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({}, "one of these"),
        ({"cron": "* * * * *", "every_ms": 5_000}, "one of these"),
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": "* * * * * *"}, "five fields"),
        ({"cron": "61 * * * *"}, "no cron expression"),
        ({"cron": "9" * 5_000 + " * * * *"}, "five fields"),
        ({"cron": "0 0 30 2 *"}, "no cron expression"),
        ({"cron": "* * * * *", "zone": "Mars/Base"}, "no time zone 'Mars/Base'"),
        ({"cron": "* * * * *", "zone": "../../etc/passwd"}, "no time zone"),
        ({"cron": "* * * * *", "zone": "Europe"}, "no time zone"),
        ({"cron": "* * * * *", "zone": "x" * 9_000}, "no time zone"),
        ({"every_ms": 10, "phase_ms": 0}, "between a second and a year"),
        ({"every_ms": 5_000, "zone": "UTC"}, "Only a cron"),
        ({"at_ms": 5, "phase_ms": 5}, "Only an interval"),
        ({"at_ms": -5}, "between the years"),
        ({"every_ms": 5_000, "jitter_ms": -1}, "jitter"),
    ],
)
def test_times_that_no_schedule_has_are_refused(times: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_times(ScheduleTimes.model_construct(**{**ScheduleTimes().model_dump(), **times}))


def test_what_is_older_than_the_window_is_missed_and_the_rest_is_made_up() -> None:
    found = due("s", ScheduleTimes(every_ms=60_000), START, START + 10 * 60_000, 3 * 60_000)
    assert found.ticks == tuple(START + minute * 60_000 for minute in (7, 8, 9, 10))
    assert (found.missed, found.more) == (6, False)
    assert (found.first_missed_ms, found.last_missed_ms) == (START + 60_000, START + 6 * 60_000)
    assert found.next_ms == START + 11 * 60_000


def test_years_without_a_worker_are_leapt_over() -> None:
    now = START + 3 * 365 * 86_400_000
    year_ms = 366 * 86_400_000
    for times in (
        ScheduleTimes(every_ms=1_000, jitter_ms=700),
        ScheduleTimes(every_ms=1_000, jitter_ms=year_ms),
        ScheduleTimes(cron="* * * * *"),
        ScheduleTimes(cron="* * * * *", jitter_ms=year_ms),
    ):
        found = due("s", times, START, now, 30_000)
        assert (found.missed, found.more) == (MOST_MISSED, True)
        assert found.first_missed_ms is not None
        assert found.first_missed_ms <= START + 60_000
        assert all(tick >= now - 30_000 - 60_000 for tick in found.ticks)  # a minute of jitter at most


def test_many_due_ticks_come_in_portions() -> None:
    times = ScheduleTimes(every_ms=1_000)
    first = due("s", times, START, START + 250_000, 86_400_000)
    assert len(first.ticks) == MOST_TICKS
    assert first.next_ms is not None
    assert first.next_ms < START + 250_000
    second = due("s", times, first.until_ms, START + 250_000, 86_400_000)
    assert second.ticks[0] == first.ticks[-1] + 1_000
