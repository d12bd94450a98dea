"""When a schedule ticks, and which of its ticks are due: pure functions, without a clock and without a log.

A tick is a moment in milliseconds since the epoch: an hour that comes twice has two, and none comes twice.

Jitter is no chance: it is a number that the schedule's id and the tick's time give, so every process computes
the same one, and it never delays a tick beyond the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import takewhile
from typing import Final, NamedTuple

from noesium_stream.agent.schedules.cron import check_cron, cron_ticks
from noesium_stream.errors import ConfigError
from noesium_stream.event.standard.schedule import LAST_MS, LONGEST_MS, MOST_TICKS, ScheduleTimes

MOST_MISSED: Final = 1_000
"""Most ticks that are counted as missed; beyond them only the fact is told that there are more."""

_BACK_MS: Final = (60_000, 3_600_000, 86_400_000, 32 * 86_400_000, 10 * LONGEST_MS)
_SHORTEST_MS: Final = 1_000


class Due(NamedTuple):
    """What is due of a schedule at a moment.

    Attributes:
        ticks: the ticks to start, in order.
        until_ms: up to here nothing else is due: what the next call begins with.
        missed: the number of ticks that came too late; `more`: there were more.
        first_missed_ms, last_missed_ms: the first and the last of them.
        next_ms: when something is due next; None: never.
    """

    ticks: tuple[int, ...]
    until_ms: int
    missed: int = 0
    more: bool = False
    first_missed_ms: int | None = None
    last_missed_ms: int | None = None
    next_ms: int | None = None


def check_times(times: ScheduleTimes) -> None:
    """Refuse times that no schedule can have.

    Raises:
        ConfigError: there is not exactly one of cron, interval and moment; the expression or the time zone is
            unknown; a number is out of its bounds; or it would end before it begins.
    """
    given = [times.cron is not None, times.every_ms is not None, times.at_ms is not None]
    if sum(given) != 1:
        raise ConfigError(
            "A schedule has one of these: a cron expression, an interval, a moment.",
            hint="Give cron='0 7 * * *', every=timedelta(minutes=5), or at=datetime(…).",
        )
    for name, value in (("phase", times.phase_ms), ("jitter", times.jitter_ms)):
        if not 0 <= value <= LONGEST_MS:
            raise ConfigError(f"The {name} of a schedule is between nothing and a year.")
    if times.cron is not None:
        check_cron(times.cron, times.zone)
    elif times.zone is not None:
        raise ConfigError("Only a cron expression has a time zone: an interval and a moment need none.")
    if times.every_ms is not None and not _SHORTEST_MS <= times.every_ms <= LONGEST_MS:
        raise ConfigError("The interval of a schedule is between a second and a year.")
    if times.phase_ms and times.every_ms is None:
        raise ConfigError("Only an interval has a phase.")
    if times.at_ms is not None and not 0 <= times.at_ms <= LAST_MS:
        raise ConfigError("The moment of a schedule lies between the years 1970 and 9999.")
    _check_ends(times)


def _check_ends(times: ScheduleTimes) -> None:
    first_ms, last_ms = times.from_ms, times.until_ms
    if times.at_ms is not None and (first_ms is not None or last_ms is not None):
        raise ConfigError("A schedule that ticks once needs no first and no last moment.")
    if any(one is not None and not 0 <= one <= LAST_MS for one in (first_ms, last_ms)):
        raise ConfigError("A schedule begins and ends between the years 1970 and 9999.")
    if first_ms is not None and last_ms is not None and last_ms < first_ms:
        raise ConfigError("The schedule would end before it begins.")


def ticks_after(times: ScheduleTimes, after_ms: int) -> Iterator[int]:
    """The ticks after a moment, ascending, each once; both in milliseconds since the epoch.

    Raises:
        ConfigError: the time zone or the expression is not known here.
    """
    found = _all_after(times, after_ms if times.from_ms is None else max(after_ms, times.from_ms - 1))
    last_ms = times.until_ms
    return found if last_ms is None else takewhile(lambda tick_ms: tick_ms <= last_ms, found)


def _all_after(times: ScheduleTimes, after_ms: int) -> Iterator[int]:
    """The same, without the schedule's first and last moment."""
    if times.cron is not None:
        return cron_ticks(times.cron, times.zone, after_ms)
    if times.every_ms is not None:
        return _by_interval(times.every_ms, times.phase_ms, after_ms)
    return iter(() if times.at_ms is None or times.at_ms <= after_ms else (times.at_ms,))


def _by_interval(every_ms: int, phase_ms: int, after_ms: int) -> Iterator[int]:
    tick_ms = phase_ms + ((after_ms - phase_ms) // every_ms + 1) * every_ms
    while tick_ms <= LAST_MS:
        yield tick_ms
        tick_ms += every_ms


def delay_ms(schedule_id: str, tick_ms: int, jitter_ms: int, next_tick_ms: int | None) -> int:
    """By how much a tick comes late: below `jitter_ms`, and before the next tick comes."""
    most = jitter_ms if next_tick_ms is None else min(jitter_ms, next_tick_ms - tick_ms)
    if most <= 0:
        return 0
    digest = hashlib.sha256(f"{schedule_id}/{tick_ms}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % most


def due_times(schedule_id: str, times: ScheduleTimes, after_ms: int) -> Iterator[tuple[int, int]]:
    """The ticks after a moment, each with the time at which it is due: both ascend.

    Raises `ConfigError`, as `ticks_after`.
    """
    found = ticks_after(times, after_ms)
    tick_ms = next(found, None)
    while tick_ms is not None:
        following = next(found, None) if times.jitter_ms else None
        yield tick_ms, tick_ms + delay_ms(schedule_id, tick_ms, times.jitter_ms, following)
        tick_ms = following if times.jitter_ms else next(found, None)


def due(schedule_id: str, times: ScheduleTimes, until_ms: int, now_ms: int, catchup_ms: int) -> Due:
    """Say which ticks of a schedule are due now.

    A tick that was due more than `catchup_ms` ago is missed. At most `MOST_TICKS` are returned; then
    `next_ms` lies in the past, and the next call has the others. `until_ms` never falls.

    Args:
        schedule_id: what the jitter depends on.
        times: when it ticks.
        until_ms: the ticks up to here are dealt with.
        now_ms: the present time.
        catchup_ms: how late a tick may be.

    Raises:
        ConfigError: the time zone or the expression is not known here.
    """
    oldest_ms = now_ms - catchup_ms
    missed, more, until_ms = _missed(schedule_id, times, until_ms, oldest_ms)
    ticks: list[int] = []
    next_ms = None
    for tick_ms, at_ms in due_times(schedule_id, times, until_ms):
        if at_ms > now_ms or len(ticks) >= MOST_TICKS:
            next_ms = at_ms
            break
        ticks.append(tick_ms)
    return Due(
        tuple(ticks),
        ticks[-1] if ticks else until_ms,
        len(missed),
        more,
        missed[0] if missed else None,
        max(missed[-1], until_ms) if more else missed[-1] if missed else None,
        next_ms,
    )


def _missed(
    schedule_id: str, times: ScheduleTimes, until_ms: int, oldest_ms: int
) -> tuple[list[int], bool, int]:
    """The ticks that were due before `oldest_ms`, whether there are more, and up to where they are."""
    missed: list[int] = []
    for tick_ms, at_ms in due_times(schedule_id, times, until_ms):
        if at_ms >= oldest_ms:
            break
        if len(missed) >= MOST_MISSED:
            return missed, True, _leap(schedule_id, times, until_ms, oldest_ms)
        missed.append(tick_ms)
        until_ms = tick_ms
    return missed, False, until_ms


def _leap(schedule_id: str, times: ScheduleTimes, until_ms: int, oldest_ms: int) -> int:
    """The last tick that was due before `oldest_ms`, without a look at each one before it.

    A tick is due before the next one comes. So only the last tick before `oldest_ms` may be due after it: one
    begins close to it, and farther back if there is none.
    """
    start_ms = until_ms
    for back_ms in _BACK_MS:
        start_ms = max(until_ms, oldest_ms - back_ms)
        first = next(due_times(schedule_id, times, start_ms), None)
        if start_ms == until_ms or (first is not None and first[1] < oldest_ms):
            break
    for tick_ms, at_ms in due_times(schedule_id, times, start_ms):
        if at_ms >= oldest_ms:
            break
        until_ms = tick_ms
    return until_ms
