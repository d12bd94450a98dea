"""Times, zones and durations as ISO 8601 writes them. Pure, but for the zones' data of this machine."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from noesium_stream.errors import ConfigError, ToolInputError
from noesium_stream.event.envelope_fields import short

MAX_TIME: Final = 40
MAX_ZONE: Final = 64
MAX_DURATION: Final = 100
"""Characters of a time, the name of a zone, and a duration."""

_DURATION: Final = re.compile(
    r"([+-]?)P(?=.)(?:(\d{1,5})Y)?(?:(\d{1,6})M)?(?:(\d{1,6})W)?(?:(\d{1,7})D)?"
    r"(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,11}(?:[.,]\d{1,6})?)S)?)?",
    re.ASCII,
)
_TOO_FAR: Final = "The result is not in the years 1 to 9999."


class Span(NamedTuple):
    """A duration: months and days of the calendar, and seconds that pass."""

    months: int
    days: int
    seconds: timedelta


class Local(NamedTuple):
    """A time in a zone.

    Attributes:
        time: with its zone.
        ambiguous: whether clocks show it twice, since they are set back; the first one is meant.
        skipped: whether clocks never show what was asked for, since they are set forward over it: the time is
            as much later.
    """

    time: datetime
    ambiguous: bool = False
    skipped: bool = False


def zone_named(name: str) -> tzinfo:
    """A zone of the IANA database, such as `Europe/Berlin`.

    Raises:
        ToolInputError: there is none of this name.
        ConfigError: this machine has no such database.
    """
    if name == "UTC":
        return UTC
    known = _zones()
    if not known:
        raise ConfigError(
            "This machine has no database of time zones.", hint="pip install 'noesium-stream[time]'"
        )
    if name not in known:
        raise ToolInputError(
            f"There is no time zone {short(name)}.", hint="Give a name such as Europe/Berlin, or UTC."
        )
    return ZoneInfo(name)


def time_in(text: str, zone: tzinfo | None) -> Local:
    """Read a time of ISO 8601, and show it in a zone.

    Args:
        text: with an offset, or without one: then it is what clocks in `zone` show.
        zone: None: the time's own offset.

    Raises:
        ToolInputError: it is no time, has neither offset nor zone, or cannot be shown there.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ToolInputError(
            f"{short(text)} is no time.", hint="Write ISO 8601, such as 2026-03-01T09:30:00+01:00."
        ) from None
    if found.tzinfo is None:
        if zone is None:
            raise ToolInputError(f"{short(text)} has no offset.", hint="Add one, such as Z, or give a zone.")
        return on_clocks(found, zone)
    return shown_in(Local(found), zone or timezone(found.utcoffset() or timedelta(0)))


def shown_in(found: Local, zone: tzinfo) -> Local:
    """The same time in another zone.

    Raises:
        ToolInputError: it is not in the years 1 to 9999 there, or in UTC.
    """
    try:
        found.time.astimezone(UTC)
        return found._replace(time=found.time.astimezone(zone))
    except OverflowError:
        raise ToolInputError(_TOO_FAR) from None


def on_clocks(shown: datetime, zone: tzinfo) -> Local:
    """The time at which clocks in a zone show `shown`, which has no zone itself.

    Raises:
        ToolInputError: it is not in the years 1 to 9999.
    """
    first, second = (shown.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    try:
        there = first.astimezone(UTC).astimezone(zone)
    except OverflowError:
        raise ToolInputError(_TOO_FAR) from None
    if there.replace(tzinfo=None) != shown:
        return Local(there, skipped=True)
    return Local(first, ambiguous=first.utcoffset() != second.utcoffset())


def span_of(text: str) -> Span:
    """Read a duration of ISO 8601, such as `P1M`, `-P2DT12H` or `PT0.5S`.

    Raises:
        ToolInputError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ToolInputError(
            f"{short(text)} is no duration.", hint="Write ISO 8601, such as P1M, P2DT12H or -PT90S."
        )
    sign = -1 if match[1] == "-" else 1
    years, months, weeks, days, hours, minutes = (int(match[at] or 0) for at in range(2, 8))
    seconds, _, fraction = (match[8] or "0").replace(",", ".").partition(".")
    exact = timedelta(
        hours=hours, minutes=minutes, seconds=int(seconds), microseconds=int(fraction.ljust(6, "0"))
    )
    return Span(sign * (12 * years + months), sign * (7 * weeks + days), sign * exact)


def added(start: datetime, span: Span) -> Local:
    """A time and a duration later, in the zone of the time: 1. months, 2. days, as clocks show; 3. seconds.

    Of a month that has no such day its last one counts.

    Raises:
        ToolInputError: the result is not in the years 1 to 9999.
    """
    zone = start.tzinfo
    assert zone is not None, "a time here has a zone"
    try:
        found = Local(start)
        if span.months or span.days:
            month = start.year * 12 + start.month - 1 + span.months
            year, month = month // 12, month % 12 + 1
            day = min(start.day, monthrange(year, month)[1]) if 1 <= year <= 9999 else 0
            shown = start.replace(tzinfo=None, fold=0, year=year, month=month, day=day)
            found = on_clocks(shown + timedelta(days=span.days), zone)
        if span.seconds:
            found = Local((found.time.astimezone(UTC) + span.seconds).astimezone(zone), skipped=found.skipped)
    except (OverflowError, ValueError):
        raise ToolInputError(_TOO_FAR) from None
    return shown_in(found, zone)


def duration_text(length: timedelta) -> str:
    """A length of time as a duration of ISO 8601, of days of 24 hours: `P1DT2H`, `-PT0.5S`."""
    sign, length = ("-", -length) if length < timedelta(0) else ("", length)
    minutes, seconds = divmod(length.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    shown = f"{seconds}.{length.microseconds:06}".rstrip("0").rstrip(".") if length.microseconds else seconds
    clock = "".join(f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M"), (shown, "S")) if count)
    days = f"{length.days}D" if length.days else ""
    return f"{sign}P{days}{f'T{clock}' if clock else ''}" if days or clock else "PT0S"


@lru_cache(1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())
