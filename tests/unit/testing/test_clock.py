"""The clock that moves by itself: order, idleness, threads, repeatability."""

from __future__ import annotations

import asyncio
import time

import pytest

from noesium_stream.errors import RehearsalError
from noesium_stream.testing import AutoClock
from tests.support.reading import PATIENCE_S

MONTH_S = 30 * 86_400.0


async def test_a_month_of_hourly_timers_takes_next_to_no_time():
    clock = AutoClock()
    began, first = time.perf_counter(), clock.now_ms()
    for _ in range(30 * 24):
        await clock.sleep(3600)
    assert clock.now_ms() - first == MONTH_S * 1000
    assert clock.monotonic() == MONTH_S
    assert time.perf_counter() - began < PATIENCE_S


async def test_sleepers_wake_in_the_order_of_their_times_and_see_them():
    clock = AutoClock()
    woken: list[tuple[float, float]] = []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic()))

    await asyncio.gather(*(sleep(seconds) for seconds in (MONTH_S, 1.0, 60.0, 1.0)))
    assert woken == [(1.0, 1.0), (1.0, 1.0), (60.0, 60.0), (MONTH_S, MONTH_S)]


async def test_time_stands_still_while_anything_else_can_go_on():
    clock = AutoClock()
    sleeper = asyncio.create_task(clock.sleep(1))
    for _ in range(500):
        await asyncio.sleep(0)
    assert clock.monotonic() == 0
    await sleeper
    assert clock.monotonic() == 1


async def test_time_waits_for_a_thread():
    clock = AutoClock()
    sleeper = asyncio.create_task(clock.sleep(3600))
    await asyncio.sleep(0)
    seen = await asyncio.to_thread(lambda: (time.sleep(0.03), clock.monotonic())[1])
    assert (seen, sleeper.done()) == (0, False)
    await sleeper
    assert clock.monotonic() == 3600


async def test_a_cancelled_sleeper_moves_nothing():
    clock = AutoClock()
    long, short = asyncio.create_task(clock.sleep(MONTH_S)), asyncio.create_task(clock.sleep(5))
    await asyncio.sleep(0)
    long.cancel()
    await short
    for _ in range(20):
        await asyncio.sleep(0)
    assert clock.monotonic() == 5


async def test_moved_by_hand_it_wakes_who_is_due_and_nobody_else():
    clock = AutoClock()
    due, later = asyncio.create_task(clock.sleep(10)), asyncio.create_task(clock.sleep(100))
    await asyncio.sleep(0)
    clock.advance(10)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (due.done(), later.done(), clock.monotonic()) == (True, False, 10)
    later.cancel()


async def test_the_same_seed_gives_the_same_ids():
    assert [AutoClock(seed=4).uuid7() for _ in range(2)] == [AutoClock(seed=4).uuid7()] * 2
    assert AutoClock(seed=4).uuid7() != AutoClock(seed=5).uuid7()


async def test_a_loop_that_hides_whether_it_is_idle_is_refused(monkeypatch: pytest.MonkeyPatch):
    class Foreign:
        pass

    monkeypatch.setattr(asyncio, "get_running_loop", Foreign)
    with pytest.raises(RehearsalError, match="does not tell whether it is idle"):
        AutoClock().attach()
