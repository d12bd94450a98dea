"""`tool/builtin/time.py`: the time now, in zones, and with durations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import ConfigError, ToolError, ToolInputError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import TimeToolkit
from noesium_stream.tool.builtin import time_parts
from noesium_stream.tool.builtin.time_parts import Span, duration_text, span_of
from noesium_stream.tool.toolkit import TOOLKITS
from tests.support.tool_calls import Calls


@pytest.fixture
def call() -> Calls:
    return Calls(TimeToolkit(clock=VirtualClock(1_792_933_200_000)), Path("/nowhere"))


async def test_the_time_now_is_shown_in_a_zone(call: Calls) -> None:
    assert await call("current_time") == {
        "time": "2026-10-25T13:00:00+00:00",
        "zone": "UTC",
        "utc": "2026-10-25T13:00:00Z",
        "weekday": "Sunday",
        "ambiguous": False,
        "skipped": False,
    }
    assert (await call("current_time", zone="Asia/Tokyo"))["time"] == "2026-10-25T22:00:00+09:00"


@pytest.mark.parametrize(
    ("arguments", "time"),
    [
        ({"time": "2026-07-01T12:00Z", "to": "Europe/Berlin"}, "2026-07-01T14:00:00+02:00"),
        ({"time": "2026-01-01T12:00+05:30", "to": "UTC"}, "2026-01-01T06:30:00+00:00"),
        ({"time": "2026-07-01T12:00", "zone": "Europe/Berlin", "to": "UTC"}, "2026-07-01T10:00:00+00:00"),
        ({"time": "2026-07-01", "zone": "UTC", "to": "America/New_York"}, "2026-06-30T20:00:00-04:00"),
    ],
)
async def test_a_time_is_shown_in_another_zone(call: Calls, arguments: dict[str, str], time: str) -> None:
    assert (await call("convert_time", **arguments))["time"] == time


async def test_a_time_that_clocks_show_twice_or_never_is_said_to_be_so(call: Calls) -> None:
    twice = await call("convert_time", time="2026-10-25T02:30", zone="Europe/Berlin", to="UTC")
    assert (twice["time"], twice["ambiguous"], twice["skipped"]) == ("2026-10-25T00:30:00+00:00", True, False)
    never = await call("convert_time", time="2026-03-29T02:30", zone="Europe/Berlin", to="Europe/Berlin")
    assert (never["time"], never["ambiguous"], never["skipped"]) == ("2026-03-29T03:30:00+02:00", False, True)


@pytest.mark.parametrize(
    ("time", "duration", "zone", "end"),
    [
        ("2026-01-31T10:00Z", "P1M", None, "2026-02-28T10:00:00+00:00"),
        ("2024-02-29T10:00Z", "-P1Y", None, "2023-02-28T10:00:00+00:00"),
        ("2026-01-15T10:00+01:00", "P2W3DT4H5M6.5S", None, "2026-02-01T14:05:06.500000+01:00"),
        ("2026-03-28T12:00", "P1D", "Europe/Berlin", "2026-03-29T12:00:00+02:00"),
        ("2026-03-28T12:00", "PT24H", "Europe/Berlin", "2026-03-29T13:00:00+02:00"),
        ("2026-03-28T02:30", "P1D", "Europe/Berlin", "2026-03-29T03:30:00+02:00"),
        ("2026-10-25T00:30Z", "PT1H", "Europe/Berlin", "2026-10-25T02:30:00+01:00"),
        ("2026-11-26T00:00Z", "-P14M", None, "2025-09-26T00:00:00+00:00"),
    ],
)
async def test_a_duration_is_added(call: Calls, time: str, duration: str, zone: str | None, end: str) -> None:
    found = await call("add_time", time=time, duration=duration, zone=zone)
    assert found["time"] == end


async def test_the_time_between_is_told(call: Calls) -> None:
    found = await call("time_between", first="2026-03-28T12:00+01:00", second="2026-03-29T12:00+02:00")
    assert found == {"seconds": 82_800.0, "duration": "PT23H"}


@given(st.timedeltas(timedelta(days=-999_999), timedelta(days=999_999)))
def test_a_duration_reads_as_it_is_written(length: timedelta) -> None:
    assert span_of(duration_text(length)) == Span(0, *_parts(length)), duration_text(length)


def _parts(length: timedelta) -> tuple[int, timedelta]:
    sign = -1 if length < timedelta(0) else 1
    return sign * abs(length).days, sign * (abs(length) - timedelta(days=abs(length).days))


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("current_time", {"zone": "../../etc/passwd"}),
    ("current_time", {"zone": "/etc/passwd"}),
    ("current_time", {"zone": "Europe"}),
    ("current_time", {"zone": "europe/berlin\x1b[2J"}),
    ("current_time", {"zone": ""}),
    ("current_time", {"zone": "a\0b"}),
    ("current_time", {"zone": "U" * 65}),
    ("convert_time", {"time": "2026-07-01T12:00", "to": "UTC"}),
    ("convert_time", {"time": "0001-01-01T00:00+14:00", "to": "UTC"}),
    ("convert_time", {"time": "9999-12-31T23:59Z", "to": "Asia/Tokyo"}),
    ("convert_time", {"time": "9" * 40, "to": "UTC"}),
    ("convert_time", {"time": "٢٠٢٦-٠١-٠١T00:00Z", "to": "UTC"}),
    ("add_time", {"time": "2026-01-01T00:00Z", "duration": "P99999Y"}),
    ("add_time", {"time": "2026-01-01T00:00Z", "duration": "-P99999Y"}),
    ("add_time", {"time": "2026-01-01T00:00Z", "duration": "P9999999D"}),
    ("add_time", {"time": "2026-01-01T00:00Z", "duration": "PT999999999H"}),
    ("add_time", {"time": "0001-01-01T00:00Z", "duration": "-PT1S"}),
    ("add_time", {"time": "2026-01-01T00:00Z", "duration": "P"}),
    ("add_time", {"time": "2026-01-01T00:00Z", "duration": "P1DT"}),
    ("add_time", {"time": "2026-01-01T00:00Z", "duration": "1 day"}),
    ("add_time", {"time": "2026-01-01T00:00Z", "duration": "P٣D"}),
    ("time_between", {"first": "2026-01-01", "second": "2026-01-01T00:00Z"}),
]


@pytest.mark.parametrize(("name", "arguments"), HOSTILE)
async def test_what_cannot_be_read_is_refused(call: Calls, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError) as refused:
        await call(name, **arguments)
    assert isinstance(refused.value, ToolInputError)
    assert refused.value.message.isprintable()


async def test_without_zones_on_the_machine_it_says_what_to_install(
    call: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_parts, "_zones", frozenset)
    assert (await call("current_time"))["zone"] == "UTC"
    with pytest.raises(ConfigError, match="no database of time zones"):
        await call("current_time", zone="Europe/Berlin")


def test_its_tools_change_nothing_and_need_nothing() -> None:
    assert TOOLKITS.get("time") is TimeToolkit
    for one in TimeToolkit().tools():
        assert (one.side_effect_class, one.permissions) == (SideEffectClass.PURE, ())


def test_every_result_is_exact_in_utc() -> None:
    start = datetime(2026, 1, 31, tzinfo=UTC)
    assert time_parts.added(start, span_of("P1MT1H")).time == datetime(2026, 2, 28, 1, tzinfo=UTC)
