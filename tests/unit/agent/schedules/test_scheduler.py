"""Owners whose clocks jump, and who are killed, in nights in which clocks change: each tick comes once."""

from __future__ import annotations

from collections import Counter, deque
from datetime import datetime
from itertools import takewhile
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noesium_stream.agent.schedules import Schedules, decide
from noesium_stream.agent.schedules.times import check_times, due, ticks_after
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import ConfigError
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import (
    Overlap,
    ScheduleAdded,
    ScheduleRunEnded,
    ScheduleTickStarted,
    ScheduleTimes,
    ScheduleWoken,
)

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000
CATCHUP_MS = 48 * HOUR_MS


def ms(*moment: int) -> int:
    return round(datetime(*moment, tzinfo=BERLIN).timestamp() * 1_000)  # type: ignore[arg-type]


class Owner:
    """A schedule, its topic and its owners, one after the other."""

    def __init__(self, times: ScheduleTimes, now_ms: int, chance: Random) -> None:
        self.times, self.now_ms, self.chance = times, now_ms, chance
        self.state: Any = Schedules().initial_state()
        self.topic: deque[EventEnvelope] = deque()
        self.started = Counter[int]()
        self.put(
            ScheduleAdded(
                schedule="s", agent_type="a", times=times, overlap=Overlap.ALLOW_ALL, catchup_ms=CATCHUP_MS
            )
        )
        self.handle_all()

    def put(self, event: DomainEvent) -> None:
        trace, who = TraceContext("a" * 32, "b" * 16), AgentRef("anne", "client")
        envelope: Any = event.to_envelope(who, trace, partition_key="s", clock=VirtualClock(self.now_ms))
        self.topic.append(envelope)

    def tell(self) -> None:
        """What a feeder appends; it may die before, and its successor says it again, with another clock."""
        one = self.state
        found = due(one.schedule_id, self.times, one.until_ms, self.now_ms, CATCHUP_MS)
        assert not found.missed
        if not found.ticks:
            return
        woken = ScheduleWoken(
            schedule="s",
            schedule_id=one.schedule_id,
            now_ms=self.now_ms,
            ticks=list(found.ticks),
            until_ms=found.until_ms,
        )
        for _ in range(self.chance.choice((0, 1, 1, 2))):
            self.put(woken)

    def handle_all(self) -> None:
        while self.topic:
            self.state, made = decide(self.state, self.topic.popleft())
            for one in made:
                if isinstance(one, ScheduleTickStarted):
                    self.started[one.tick_ms] += 1
                    self.put(
                        ScheduleRunEnded(
                            schedule="s", run_id=one.run_id, status="completed", ended_ms=self.now_ms
                        )
                    )


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("night", [(2026, 10, 24, 12), (2026, 3, 28, 12)], ids=["back", "forward"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "*/15 * * * *"])
def test_each_tick_comes_once_whatever_clocks_do(seed: int, night: tuple[int, ...], cron: str) -> None:
    chance, begun_ms = Random(seed), ms(*night)
    times = ScheduleTimes(
        cron=cron, zone="Europe/Berlin", from_ms=begun_ms + 1, until_ms=begun_ms + 48 * HOUR_MS
    )
    if cron.startswith("30"):
        times = times.model_copy(update={"until_ms": begun_ms + 70 * HOUR_MS})
    assert times.until_ms is not None
    expected = list(takewhile(lambda tick: tick <= times.until_ms, ticks_after(times, begun_ms)))  # type: ignore[operator]
    owner = Owner(times, begun_ms, chance)
    while owner.now_ms < times.until_ms + HOUR_MS or owner.state.until_ms < expected[-1]:
        owner.now_ms += chance.choice((60_000, 60_000, 7 * 60_000, HOUR_MS, 9 * HOUR_MS, -HOUR_MS // 2))
        owner.tell()
        if chance.random() < 0.3:  # the next owner has not read yet what the one before has told
            owner.tell()
        owner.handle_all()
    assert dict(owner.started) == dict.fromkeys(expected, 1)


def test_two_days_with_a_night_of_23_or_25_hours_have_their_quarters() -> None:
    for night, quarters in (((2026, 10, 24, 12), 49 * 4), ((2026, 3, 28, 12), 47 * 4)):
        begun_ms = ms(*night)
        until_ms = ms(night[0], night[1], night[2] + 2, 12)
        times = ScheduleTimes(cron="*/15 * * * *", zone="Europe/Berlin", until_ms=until_ms)
        assert len(list(ticks_after(times, begun_ms))) == quarters


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (ScheduleTimes(every_ms=1_000, from_ms=5, until_ms=4), "would end before it begins"),
        (ScheduleTimes(at_ms=5, until_ms=9), "ticks once"),
        (ScheduleTimes(every_ms=1_000, until_ms=10**15), "between the years"),
    ],
)
def test_moments_that_no_schedule_can_have(times: ScheduleTimes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_times(times)


def test_an_interval_begins_and_ends() -> None:
    times = ScheduleTimes(every_ms=1_000, from_ms=5_000, until_ms=8_000)
    assert list(ticks_after(times, 0)) == [5_000, 6_000, 7_000, 8_000]
    assert list(ticks_after(times, 7_000)) == [8_000]
    assert list(ticks_after(times, 8_000)) == []
    found = due("s", times, 0, 100_000, 200_000)
    assert (found.ticks, found.next_ms) == ((5_000, 6_000, 7_000, 8_000), None)
