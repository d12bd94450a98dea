"""What tells the scheduler of time: not too often, again if it is lost, and of one schedule at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from noesium_stream.agent.schedules import Plan, Schedule, run_ends
from noesium_stream.agent.schedules.feeder import ScheduleFeeder
from noesium_stream.errors import LogForbiddenError, LogUnavailableError
from noesium_stream.event import AgentRef
from noesium_stream.event.standard import ScheduleTimes
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.hand_clock import HandClock
from tests.support.reading import eventually, stored

ME = AgentRef("scheduler", "scheduler")


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


def schedule(name: str, clock: HandClock, every_ms: int = 1_000, **plan: Any) -> Schedule:
    times = ScheduleTimes(every_ms=every_ms)
    return Schedule(
        schedule_id=f"id of {name}",
        name=name,
        plan=Plan(**{"agent_type": "echo", "times": times, "catchup_ms": 3_600_000, **plan}),
        until_ms=clock.now_ms(),
    )


async def woken(log: EventLog) -> list[tuple[str, list[int]]]:
    topic = log.topology.events("schedule")
    await log.ensure_topics([log.topology.spec(topic)])
    events = [record.envelope for record in await stored(log, topic, types=("schedule.woken",))]
    return [(event.payload["schedule"], event.payload["ticks"]) for event in events]


async def test_a_tick_is_told_once_and_again_if_nobody_deals_with_it(log: EventLog) -> None:
    clock = HandClock()
    feeder = ScheduleFeeder(log, clock, ME, lambda line: None)
    row = schedule("s", clock)
    start = row.until_ms
    await feeder.begin({"s": row})
    try:
        await clock.move(1)
        await eventually(lambda: told(log, 1))
        for _ in range(5):
            await clock.move(1)
        assert await woken(log) == [("s", [start + 1_000])]
        await clock.move(30)
        await eventually(lambda: told(log, 2))
        (_, again) = (await woken(log))[1]
        assert again[0] == start + 1_000
        await feeder.follow({"s": replace(row, until_ms=again[-1])})
        await clock.move(1)
        await eventually(lambda: told(log, 3))
        assert (await woken(log))[2] == ("s", [again[-1] + 1_000])
    finally:
        await feeder.close()
    await feeder.wait()


async def told(log: EventLog, count: int) -> bool:
    return len(await woken(log)) >= count


async def test_a_tick_that_is_dealt_with_before_its_append_is_acknowledged_delays_no_later_one(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, real = HandClock(), log.append
    row = schedule("s", clock)
    start = row.until_ms
    feeder = ScheduleFeeder(log, clock, ME, lambda line: None)

    async def append(envelopes: Any, **options: Any) -> Any:
        positions = await real(envelopes, **options)
        await feeder.follow({"s": replace(row, until_ms=envelopes[0].payload["until_ms"])})
        return positions

    monkeypatch.setattr(log, "append", append)
    await feeder.begin({"s": row})
    try:
        for second in (1, 2, 3):
            await clock.move(1)
            await eventually(lambda count=second: told(log, count))
        assert await woken(log) == [("s", [start + 1_000 * second]) for second in (1, 2, 3)]
    finally:
        await feeder.close()


async def test_nobody_turns_round_and_round_until_the_next_tick_comes(log: EventLog) -> None:
    clock = HandClock()
    row = schedule("s", clock)
    feeder = ScheduleFeeder(log, clock, ME, lambda line: None)
    await feeder.begin({"s": row})
    try:
        await clock.move(1)
        await eventually(lambda: told(log, 1))
        # Its ticks are dealt with up to a moment before the one that was told, and the next one is far away.
        later = replace(row.plan, times=ScheduleTimes(every_ms=86_400_000))
        await feeder.follow({"s": replace(row, plan=later)})
        clock.advance(60)
        assert feeder._rest_s() > 0
    finally:
        await feeder.close()


async def test_a_tick_is_not_late_because_its_timer_came_a_moment_after_it(log: EventLog) -> None:
    clock = HandClock()
    row = schedule("s", clock, every_ms=60_000, catchup_ms=0)
    feeder = ScheduleFeeder(log, clock, ME, lambda line: None)
    start = row.until_ms // 60_000 * 60_000 + 60_000
    await feeder.begin({"s": row})
    try:
        await clock.move((start - row.until_ms) / 1000 + 0.25)
        await eventually(lambda: told(log, 1))
        assert await woken(log) == [("s", [start])]
    finally:
        await feeder.close()


async def test_a_clock_that_is_put_back_repeats_no_tick(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    row = replace(
        schedule("s", clock), until_ms=clock.now_ms() + 3_600_000
    )  # dealt with before it was put back
    feeder = ScheduleFeeder(log, clock, ME, lambda line: None)
    await feeder.begin({"s": row})
    try:
        for _ in range(20):
            await clock.move(10)
        assert await woken(log) == []
    finally:
        await feeder.close()


async def test_a_paused_or_removed_schedule_and_one_of_an_unknown_zone_hold_up_no_other(
    log: EventLog,
) -> None:
    clock, lines = HandClock(), list[str]()
    feeder = ScheduleFeeder(log, clock, ME, lines.append)
    rows = {name: schedule(name, clock) for name in ("paused", "gone", "on")}
    rows["paused"] = replace(rows["paused"], paused=True)
    rows["lost"] = schedule("lost", clock, times=ScheduleTimes(cron="* * * * *", zone="Mars/Base"))
    await feeder.begin(rows)
    try:
        await feeder.follow({"gone": None})
        await clock.move(1)
        await eventually(lambda: told(log, 1))
        assert [name for name, _ in await woken(log)] == ["on"]
        assert any("lost" in line and "Mars/Base" in line for line in lines)
    finally:
        await feeder.close()


async def test_an_agent_whose_journal_may_not_be_read_holds_up_no_other(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, lines = HandClock(), list[str]()
    real = run_ends.generations

    async def generations(log: EventLog, agent_type: str) -> Any:
        if agent_type == "shut":
            raise LogForbiddenError("nobody may read it")
        return await real(log, agent_type)

    monkeypatch.setattr(run_ends, "generations", generations)
    feeder = ScheduleFeeder(log, clock, ME, lines.append)
    await feeder.begin({"a": schedule("a", clock, agent_type="shut"), "b": schedule("b", clock)})
    try:
        await clock.move(1)
        await eventually(lambda: told(log, 2))
        assert lines == ["schedules do not see the ends of shut's runs: nobody may read it"] * 2
    finally:
        await feeder.close()


async def test_a_log_that_is_away_is_asked_again(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lines, real, away = HandClock(), list[str](), log.append, [True, True]

    async def append(envelopes: Any, **options: Any) -> Any:
        if away:
            away.pop()
            raise LogUnavailableError("away")
        return await real(envelopes, **options)

    monkeypatch.setattr(log, "append", append)
    feeder = ScheduleFeeder(log, clock, ME, lines.append)
    await feeder.begin({"s": schedule("s", clock)})
    try:

        async def told_later() -> bool:
            clock.advance(1)
            return await told(log, 1)

        await eventually(told_later)
        assert lines == ["schedules wait for the log: away"] * 2
    finally:
        await feeder.close()
