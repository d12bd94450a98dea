"""The heap of deadlines: in order, each once, whatever is added while it sleeps."""

from __future__ import annotations

import asyncio

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.worker.runs.timers import LONGEST_SLEEP_S, Timers
from tests.support.hand_clock import HandClock
from tests.support.reading import eventually
from tests.support.set_clock import SetClock

MONTH_MS = 30 * 86_400_000


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_deadlines_come_in_their_order_and_none_early() -> None:
    clock, due = HandClock(), list[str]()
    timers = Timers(clock, due.append)
    start = clock.now_ms()
    for name, seconds in (("c", 30), ("a", 10), ("b", 20)):
        timers.set(name, start + seconds * 1000)
    await settle()
    for seconds, expected in ((9.999, []), (0.001, ["a"]), (15, ["a", "b"]), (5, ["a", "b", "c"])):
        clock.advance(seconds)
        await settle()
        assert due == expected
    assert len(timers) == 0
    await timers.close()


@pytest.mark.parametrize("turns", range(6))
async def test_what_is_left_of_a_sleep_is_counted_where_it_begins(turns: int) -> None:
    clock, due = HandClock(), list[str]()
    timers = Timers(clock, due.append)
    timers.set("run", clock.now_ms() + 60_000)
    for _ in range(turns):
        await asyncio.sleep(0)
    clock.advance(61)
    await settle()
    assert due == ["run"]
    await timers.close()


async def test_an_earlier_deadline_is_not_slept_over() -> None:
    clock, due = HandClock(), list[str]()
    timers = Timers(clock, due.append)
    timers.set("late", clock.now_ms() + 60_000)
    await settle()
    timers.set("early", clock.now_ms() + 1_000)
    await settle()
    clock.advance(1)
    await settle()
    assert due == ["early"]
    await timers.close()


async def test_the_same_deadline_is_called_once_and_may_be_set_again_after_it() -> None:
    clock, due = HandClock(), list[str]()
    timers = Timers(clock, due.append)
    for _ in range(3):
        timers.set("run", clock.now_ms() + 1_000)
    assert len(timers) == 1
    clock.advance(1)
    await settle()
    assert due == ["run"]
    timers.set("run", clock.now_ms())
    await settle()
    assert due == ["run", "run"]
    await timers.close()


async def test_a_clock_that_is_set_forward_is_noticed_within_the_longest_sleep() -> None:
    class Asleep(HandClock):
        """Its wall clock jumps while its sleepers count the seconds that they were awake."""

        def jump(self, ms: int) -> None:
            self._now_ms += ms

    clock, due = Asleep(), list[str]()
    timers = Timers(clock, due.append)
    timers.set("run", clock.now_ms() + MONTH_MS)
    await settle()
    clock.jump(MONTH_MS)
    clock.advance(LONGEST_SLEEP_S)
    await settle()
    assert due == ["run"]
    await timers.close()


async def test_a_clock_that_is_set_back_lengthens_no_wait() -> None:
    clock, due = SetClock(), list[str]()
    timers = Timers(clock, due.append)
    due_ms = clock.now_ms() + 60_000
    timers.set("run", due_ms)
    await settle()
    clock.ahead_s = -3_600.0
    timers.set("later", clock.now_ms() + 120_000)
    clock.advance(59)
    await settle()
    assert (due, timers.has_passed("run", due_ms)) == ([], False)
    clock.advance(1)
    await settle()
    assert due == ["run"]
    assert timers.has_passed("run", due_ms), "the run may be loaded first, and asks then"
    assert not timers.has_passed("other", due_ms)
    clock.advance(60)
    await settle()
    assert due == ["run", "later"]
    timers.forget("run")
    assert not timers.has_passed("run", due_ms)
    await timers.close()


async def test_deadlines_that_have_passed_take_no_room_for_long() -> None:
    clock = SetClock()
    timers = Timers(clock, lambda run_id: None)
    for _ in range(200):
        timers.set("run", clock.now_ms() + 1_000)
        await settle()
        clock.advance(1)
        await settle()
    assert len(timers) == 0
    assert len(timers._passed["run"]) <= 62
    assert (timers._heap, timers._steady) == ([], [])
    await timers.close()


async def test_a_month_passes_in_no_time_on_a_virtual_clock() -> None:
    clock, due = VirtualClock(), list[str]()
    timers = Timers(clock, due.append)
    timers.set("run", clock.now_ms() + MONTH_MS)
    await eventually(lambda: due)
    assert due == ["run"]
    await timers.close()


async def test_nothing_is_called_after_the_close() -> None:
    clock, due = HandClock(), list[str]()
    timers = Timers(clock, due.append)
    timers.set("run", clock.now_ms() + 1_000)
    await settle()
    await timers.close()
    clock.advance(5)
    await settle()
    assert due == []


async def test_deadlines_of_a_run_that_has_ended_are_forgotten_and_take_no_room() -> None:
    clock, due = HandClock(), list[str]()
    timers = Timers(clock, due.append)
    start = clock.now_ms()
    for number in range(1_000):
        for seconds in (60, 120):
            timers.set(f"run {number}", start + seconds * 1000)
    for number in range(1_000):
        if number != 500:
            timers.forget(f"run {number}")
    timers.forget("unknown")
    assert len(timers) == 2
    assert len(timers._heap) <= 4
    timers.set("run 0", start + 60_000)  # as if it had never been there
    await settle()
    clock.advance(60)
    await settle()
    assert sorted(due) == ["run 0", "run 500"]
    clock.advance(60)
    await settle()
    assert sorted(due) == ["run 0", "run 500", "run 500"]
    assert (len(timers), timers._known) == (0, {})
    await timers.close()


async def test_a_forgotten_deadline_that_is_set_again_is_called_once() -> None:
    clock, due = HandClock(), list[str]()
    timers = Timers(clock, due.append)
    timers.set("other", clock.now_ms() + 9_000)
    timers.set("run", clock.now_ms() + 1_000)
    timers.forget("run")
    timers.set("run", clock.now_ms() + 1_000)
    clock.advance(1)
    await settle()
    assert due == ["run"]
    assert len(timers) == 1
    await timers.close()


async def test_who_is_cancelled_while_it_waits_for_the_end_of_its_timers_hears_of_it() -> None:
    clock, went_on = HandClock(), list[str]()
    timers = Timers(clock, went_on.append)

    async def give_up() -> None:
        await timers.close()
        went_on.append("as if nothing had been")

    await settle()
    giving_up = asyncio.create_task(give_up())
    await asyncio.sleep(0)
    giving_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving_up
    assert went_on == []


class Interrupted(HandClock):
    """The process stands still for 4 ms after each look at a clock, while `slow` is set."""

    slow = False

    def now_ms(self) -> int:
        found = super().now_ms()
        self._stand_still()
        return found

    def monotonic(self) -> float:
        found = super().monotonic()
        self._stand_still()
        return found

    def _stand_still(self) -> None:
        if self.slow:
            self.slow = False
            self.advance(0.004)
            self.slow = True


async def test_a_process_that_stands_still_as_it_sets_a_deadline_shortens_no_wait() -> None:
    clock = Interrupted()
    timers = Timers(clock, lambda run_id: None)
    due_ms = clock.now_ms() + 1_000
    clock.slow = True
    timers.set("run", due_ms)
    clock.slow = False
    clock.advance((due_ms - clock.now_ms() - 1) / 1000)
    assert not timers.has_passed("run", due_ms)
    clock.advance(0.001)
    assert timers.has_passed("run", due_ms)
    await timers.close()
