"""Ticks of a cron expression in a time zone, as Debian's cron has them when the clock is put back or forward.

- A job at fixed times (`30 2 * * *`) runs once in the night in which its time comes twice, the first time;
  if the clock leaps over its time, it runs at the first moment after the gap.
- A job of every hour or every minute (`*` or `*/n` there) runs by the time that passes: in both of the
  doubled hours, and not in a gap.

Decision record: `cronsim` finds the times of the wall clock, in days without a time zone, and this module
turns them into moments. Its own iteration over a zone depends on where it begins: at Lord Howe, where the
clock is put back by half an hour, it loses ticks if it begins before that. Here the ticks after a moment are
the same wherever one begins (`tests/property/test_schedule_times.py`), so a restart at any moment loses none
and repeats none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from heapq import heappop, heappush
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from noesium_stream.clock import to_ms
from noesium_stream.errors import ConfigError
from noesium_stream.event.standard.schedule import LAST_MS

_FIELDS: Final = 5
_LONGEST_EXPRESSION: Final = 200
_LONGEST_ZONE: Final = 100
_AROUND: Final = timedelta(hours=3)
"""Longer than any clock is put back: what lies so far from a moment does not depend on a change there."""
_HINT: Final = "Give minute, hour, day of month, month and day of week: '30 7 * * MON-FRI'."


def check_cron(expression: str, zone: str | None) -> None:
    """Refuse an expression or a time zone that is not known, or that names no time.

    Raises:
        ConfigError
    """
    if next(cron_ticks(expression, zone, 1_767_225_600_000), None) is None:
        raise ConfigError(f"The cron expression {expression!r} names a time that never comes.")


@lru_cache(maxsize=256)
def time_zone(name: str) -> tzinfo:
    """The time zone of this name.

    Raises:
        ConfigError: there is none.
    """
    try:
        if len(name) > _LONGEST_ZONE:
            raise ValueError("too long")
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"There is no time zone {name[:80]!r}.",
            hint="Give a name of the IANA database, such as Europe/Berlin or UTC.",
        ) from error


def cron_ticks(expression: str, zone: str | None, after_ms: int) -> Iterator[int]:
    """The ticks after a moment, ascending, each once; all in milliseconds since the epoch.

    Args:
        expression: of five fields.
        zone: the name of the time zone; None: UTC.
        after_ms: the moment.

    Raises:
        ConfigError: the expression or the zone is not known.
    """
    where = time_zone(zone or "UTC")
    fields = expression.split() if len(expression) <= _LONGEST_EXPRESSION else ()
    if len(fields) != _FIELDS:
        raise ConfigError(f"{expression[:80]!r} is no cron expression of five fields.", hint=_HINT)
    try:
        walls = CronSim(expression, _wall_before(after_ms, where))
    except (CronSimError, ValueError) as error:
        raise ConfigError(f"{expression!r} is no cron expression: {error}.", hint=_HINT) from error
    by_passing_time = fields[0].startswith("*") or fields[1].startswith("*")
    return _ascending(walls, where, by_passing_time, after_ms)


def _wall_before(after_ms: int, where: tzinfo) -> datetime:
    """A time of the wall clock before which no tick after a moment lies."""
    after = datetime.fromtimestamp(after_ms // 1000, UTC)
    wall = after.astimezone(where).replace(tzinfo=None, fold=0)
    offsets = {moment.astimezone(where).utcoffset() for moment in (after - _AROUND, after, after + _AROUND)}
    # A second earlier, because only times after the one that it is given are found.
    return wall - (timedelta(seconds=1) if len(offsets) == 1 else _AROUND)


def _ascending(walls: CronSim, where: tzinfo, by_passing_time: bool, after_ms: int) -> Iterator[int]:
    """The moments of these times of the wall clock that lie after `after_ms`, in order, each once."""
    last_ms = after_ms
    for tick_ms in _in_order(walls, where, by_passing_time):
        if tick_ms > LAST_MS:
            return
        if tick_ms > last_ms:
            last_ms = tick_ms
            yield tick_ms


def _in_order(walls: CronSim, where: tzinfo, by_passing_time: bool) -> Iterator[int]:
    second_round: list[int] = []  # of a doubled hour: it follows the later times of the first round
    try:
        for wall in walls:
            found = _moments(wall, where, by_passing_time)
            while second_round and found and second_round[0] < found[0]:
                yield heappop(second_round)
            yield from found[:1]
            for moment in found[1:]:
                heappush(second_round, moment)
    except OverflowError:
        pass  # beyond the last date that there is
    yield from sorted(second_round)


def _moments(wall: datetime, where: tzinfo, by_passing_time: bool) -> list[int]:
    """The moments at which a wall clock shows this time and a job is due: none, one or two."""
    first, second = wall.replace(tzinfo=where), wall.replace(tzinfo=where, fold=1)
    if first.utcoffset() == second.utcoffset():
        return [to_ms(first.astimezone(UTC))]
    if first.astimezone(UTC).astimezone(where).replace(tzinfo=None, fold=0) != wall:  # it lies in a gap
        return [] if by_passing_time else [_end_of_gap(second.astimezone(UTC), first.astimezone(UTC), where)]
    moments = [to_ms(first.astimezone(UTC)), to_ms(second.astimezone(UTC))]
    return moments if by_passing_time else moments[:1]


def _end_of_gap(before: datetime, after: datetime, where: tzinfo) -> int:
    """The moment between two others at which the clock is put forward; a binary search, to the second."""
    offset = before.astimezone(where).utcoffset()
    low, high = to_ms(before) // 1000, to_ms(after) // 1000
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, UTC).astimezone(where).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high * 1000
