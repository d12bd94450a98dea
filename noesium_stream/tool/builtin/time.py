"""The built-in toolkit `time`: the time now, in zones, and with durations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar

from pydantic import Field
from typing_extensions import TypedDict

from noesium_stream.clock import Clock, SystemClock, to_datetime
from noesium_stream.event.standard import DeterminismClass, SideEffectClass
from noesium_stream.tool.atomic import ToolSource
from noesium_stream.tool.builtin.time_parts import (
    MAX_DURATION,
    MAX_TIME,
    MAX_ZONE,
    Local,
    added,
    duration_text,
    shown_in,
    span_of,
    time_in,
    zone_named,
)
from noesium_stream.tool.function import tool
from noesium_stream.tool.toolkit import BaseToolkit, ToolkitConfig, register_toolkit

Time = Annotated[str, Field(max_length=MAX_TIME, description="ISO 8601, such as 2026-03-01T09:30+01:00.")]
Zone = Annotated[str, Field(max_length=MAX_ZONE, description="Such as Europe/Berlin, or UTC.")]
Span = Annotated[str, Field(max_length=MAX_DURATION, description="ISO 8601, such as P1M, P2DT12H, -PT90S.")]


class Moment(TypedDict):
    """A time in a zone.

    `ambiguous`: clocks there show it twice, and the first one is meant. `skipped`: clocks there are set
    forward over what was asked for, and the time is as much later.
    """

    time: str
    zone: str
    utc: str
    weekday: str
    ambiguous: bool
    skipped: bool


class Between(TypedDict):
    """The length of time between two times: negative if the second one is earlier."""

    seconds: float
    duration: str


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@register_toolkit("time")
class TimeToolkit(BaseToolkit):
    """Tools that tell the time and calculate with times. They need no permission.

    `current_time` is recorded as every call is: a run that is replayed sees the same time.
    """

    source: ClassVar[ToolSource] = ToolSource.BUILTIN

    def __init__(
        self, config: ToolkitConfig | None = None, *, clock: Clock | None = None, **settings: Any
    ) -> None:
        super().__init__(config, **settings)
        self._clock = clock or SystemClock()

    @tool(side_effects=SideEffectClass.PURE, tags=("category:time",))
    def current_time(self, zone: Zone = "UTC") -> Moment:
        """The time now, in a time zone."""
        return _moment(Local(to_datetime(self._clock.now_ms()).astimezone(zone_named(zone))))

    @tool(side_effects=SideEffectClass.PURE, tags=("category:time",))
    def convert_time(self, time: Time, to: Zone, zone: Zone | None = None) -> Moment:
        """Show a time in another time zone.

        A time without an offset is what clocks in `zone` show.
        """
        source = None if zone is None else zone_named(zone)
        found = time_in(time, source)
        return _moment(shown_in(found, zone_named(to)))

    @tool(side_effects=SideEffectClass.PURE, tags=("category:time",))
    def add_time(self, time: Time, duration: Span, zone: Zone | None = None) -> Moment:
        """Add a duration to a time, or subtract a negative one.

        Years, months, weeks and days are those of the calendar in `zone`; hours, minutes and seconds pass.
        """
        start = time_in(time, None if zone is None else zone_named(zone))
        return _moment(added(start.time, span_of(duration)))

    @tool(
        side_effects=SideEffectClass.PURE,
        determinism=DeterminismClass.DETERMINISTIC,
        tags=("category:time",),
    )
    def time_between(self, first: Time, second: Time) -> Between:
        """The length of time from one time to another; both with an offset."""
        length: timedelta = time_in(second, None).time - time_in(first, None).time
        return {"seconds": length.total_seconds(), "duration": duration_text(length)}


def _moment(found: Local) -> Moment:
    time: datetime = found.time
    return {
        "time": time.isoformat(),
        "zone": str(time.tzinfo),
        "utc": time.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "weekday": _DAYS[time.weekday()],
        "ambiguous": found.ambiguous,
        "skipped": found.skipped,
    }
