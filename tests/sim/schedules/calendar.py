"""The ticks of a schedule, found by a look at each minute: nothing of it is shared with the package."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

from noesium_stream.event.standard import ScheduleTimes

MINUTE_MS: Final = 60_000
_BEFORE: Final = timedelta(hours=3)
"""A time of the wall clock that comes twice was shown first within this span."""


def ticks_between(times: ScheduleTimes, after_ms: int, until_ms: int) -> list[int]:
    """The ticks after a moment, up to another one; all in milliseconds since the epoch."""
    first_ms = after_ms + 1 if times.from_ms is None else max(after_ms + 1, times.from_ms)
    last_ms = until_ms if times.until_ms is None else min(until_ms, times.until_ms)
    if times.at_ms is not None:
        return [times.at_ms] if first_ms <= times.at_ms <= last_ms else []
    if times.every_ms is not None:
        start_ms = first_ms + (times.phase_ms - first_ms) % times.every_ms
        return list(range(start_ms, last_ms + 1, times.every_ms))
    minutes = range(-(-first_ms // MINUTE_MS) * MINUTE_MS, last_ms + 1, MINUTE_MS)
    return [minute for minute in minutes if _is_tick(times.cron or "", times.zone or "UTC", minute)]


@cache
def _is_tick(cron: str, zone: str, minute_ms: int) -> bool:
    """Whether a job of cron is due in this minute; of five fields only minute and hour are no stars here."""
    minutes, hours, *days = cron.split()
    if days != ["*", "*", "*"]:
        raise ValueError(f"{cron} names days")
    moment, where = datetime.fromtimestamp(minute_ms // 1000, UTC), ZoneInfo(zone)
    wall = _shown(moment, where)
    if minutes.startswith("*") or hours.startswith("*"):
        return _fits(minutes, wall.minute) and _fits(hours, wall.hour)
    skipped = _skipped(_shown(moment - timedelta(minutes=1), where), wall)
    if any(_fits(minutes, one.minute) and _fits(hours, one.hour) for one in skipped):
        return True
    return _fits(minutes, wall.minute) and _fits(hours, wall.hour) and not _came_before(moment, wall, where)


def _skipped(before: datetime, after: datetime) -> Iterator[datetime]:
    """The times of the wall clock that lie between those that two minutes in a row show."""
    wall = before + timedelta(minutes=1)
    while wall < after:
        yield wall
        wall += timedelta(minutes=1)


def _came_before(moment: datetime, wall: datetime, where: ZoneInfo) -> bool:
    minutes = int(_BEFORE.total_seconds()) // 60
    return any(_shown(moment - timedelta(minutes=back), where) == wall for back in range(1, minutes))


def _shown(moment: datetime, where: ZoneInfo) -> datetime:
    return moment.astimezone(where).replace(tzinfo=None, fold=0)


def _fits(field: str, value: int) -> bool:
    """Whether a field of an expression has a value: a star, a star and a step, a range, or a number."""
    if field.startswith("*"):
        return value % int(field[2:] or 1) == 0
    first, _, last = field.partition("-")
    return int(first) <= value <= int(last or first)
