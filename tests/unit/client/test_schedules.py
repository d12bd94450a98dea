"""Schedules from a program, and their worker under a clock that jumps: months in a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noesium_stream.agent.schedules import Scheduler
from noesium_stream.client import Client
from noesium_stream.client.schedules import ScheduleClient
from noesium_stream.clock import to_datetime
from noesium_stream.errors import ConfigError, ScheduleError
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import AutoClock
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually, stored
from tests.support.sample_agents import Echo

NIGHT = datetime(2026, 10, 23, 12, tzinfo=UTC)
"""A day and a half before the clocks go back in Berlin."""


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


async def told(log: EventLog, event_type: str) -> list[dict[str, Any]]:
    topic = log.topology.events("schedule")
    return [record.envelope.payload for record in await stored(log, topic, types=(event_type,))]


@pytest.mark.parametrize("keeps_state", [False, True])
async def test_a_schedule_is_listed_paused_resumed_and_removed_without_a_worker(
    log: EventLog, tmp_path: Path, keeps_state: bool
) -> None:
    async with Client(log, agent_id="anne") as client:
        schedules = ScheduleClient(client, folder=tmp_path if keeps_state else None)
        added = await schedules.add("b.1", "echo", {"text": "x"}, cron="0 7 * * *", zone="Asia/Tokyo")
        assert (added.when, added.overlap, added.added_by) == ("0 7 * * * Asia/Tokyo", "skip", "anne")
        hours = [to_datetime(ms).astimezone(ZoneInfo("Asia/Tokyo")).hour for ms in added.next_ms]
        assert hours == [7, 7, 7]
        await schedules.add("a", "echo", every=90, paused=True, note="later")
        assert [(one.name, one.paused, one.note) for one in await schedules.list()] == [
            ("a", True, "later"),
            ("b.1", False, None),
        ]
        await schedules.resume("a")
        await schedules.pause("b.1", "tea")
        assert [(one.name, one.paused, one.note) for one in await schedules.list()] == [
            ("a", False, None),
            ("b.1", True, "tea"),
        ]
        await schedules.remove("a")
        assert [one.name for one in await schedules.list()] == ["b.1"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of these"),
        ({"cron": "* * *"}, "five fields"),
        ({"cron": "* * * * *", "zone": "Nowhere"}, "no time zone 'Nowhere'"),
        ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, "has passed already"),
        ({"at": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is what is refused
        ({"every": 0.1}, "between a second and a year"),
        ({"every": 5, "overlap": "both"}, "no overlap policy 'both'"),
        ({"every": 5, "jitter": timedelta(days=900)}, "between nothing and a year"),
        ({"every": 5, "note": "x" * 2_000}, "more than 1,000 characters"),
        ({"every": 5, "version": "newest"}, "newest"),
        ({"every": 5, "mode": "fast"}, "fast"),
    ],
)
async def test_what_no_schedule_can_be_is_refused_with_one_line(
    log: EventLog, options: dict[str, Any], said: str
) -> None:
    async with Client(log) as client:
        with pytest.raises(ConfigError, match=said) as refused:
            await ScheduleClient(client).add("s", "echo", **options)
        assert "\n" not in refused.value.message
        assert await ScheduleClient(client).list() == []


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 101, "-a", "a\n"])
async def test_a_name_of_another_form_is_refused(log: EventLog, name: str) -> None:
    async with Client(log) as client:
        with pytest.raises(ConfigError, match="cannot name a schedule"):
            await ScheduleClient(client).add(name, "echo", every=5)


async def test_a_name_is_taken_once_and_others_are_unknown(log: EventLog) -> None:
    async with Client(log) as client:
        schedules = ScheduleClient(client)
        await schedules.add("s", "echo", every=5)
        with pytest.raises(ScheduleError, match="There is a schedule s already"):
            await schedules.add("s", "echo", every=5)
        for method in (schedules.pause, schedules.resume, schedules.trigger, schedules.remove, schedules.get):
            with pytest.raises(ScheduleError, match="There is no schedule 't'"):
                await method("t")


async def play(log: EventLog, home: Path, clock: AutoClock, ready: Callable[[], Any]) -> None:
    """Let a worker of the scheduler and the agent work until something holds."""
    async with Worker(log, [Scheduler, Echo], home=home, clock=clock, keep_state=True) as worker:
        working = asyncio.create_task(worker.wait())
        try:
            await eventually(ready, PATIENCE_S)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def test_a_night_job_runs_once_a_night_when_the_clocks_go_back(tmp_path: Path) -> None:
    clock = AutoClock(NIGHT)
    log = await open_log("memory://", clock=clock)
    async with Client(log, clock=clock) as client:
        schedules = ScheduleClient(client, clock=clock)
        await schedules.add("night", "echo", {"text": "x"}, cron="30 2 * * *", zone="Europe/Berlin")

        async def ended() -> bool:
            return len(await told(log, "schedule.run.ended")) >= 4

        await play(log, tmp_path, clock, ended)
        started = await told(log, "schedule.tick.started")
        moments = [to_datetime(one["tick_ms"]).isoformat() for one in started[:4]]
        assert moments == [
            "2026-10-24T00:30:00+00:00",
            "2026-10-25T00:30:00+00:00",
            "2026-10-26T01:30:00+00:00",
            "2026-10-27T01:30:00+00:00",
        ]
        runs = await client.list_runs(agent_type="echo")
        assert {run.run_id for run in runs} == {one["run_id"] for one in started}
        last = (await schedules.get("night")).last
        assert last is not None
        assert last.status == "completed"
    await log.close()


async def test_ticks_without_a_worker_are_made_up_within_the_window_and_older_ones_are_told(
    tmp_path: Path,
) -> None:
    clock = AutoClock(NIGHT)
    log = await open_log("memory://", clock=clock)
    async with Client(log, clock=clock) as client:
        schedules = ScheduleClient(client, clock=clock)
        await schedules.add(
            "s", "echo", {"text": "x"}, every=600, catchup=timedelta(hours=1), overlap="allow_all"
        )
        clock.advance(timedelta(hours=5, seconds=1))

        async def made_up() -> bool:
            return len(await told(log, "schedule.run.ended")) >= 6

        await play(log, tmp_path, clock, made_up)
        (skipped,) = await told(log, "schedule.tick.skipped")
        assert (skipped["reason"], skipped["count"], skipped["more"]) == ("late", 24, False)
        started = [one["tick_ms"] for one in await told(log, "schedule.tick.started")]
        assert started[0] == skipped["until_ms"] + 600_000
        assert started == list(range(started[0], started[-1] + 1, 600_000))
    await log.close()
