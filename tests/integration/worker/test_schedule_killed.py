"""Schedules whose owner is killed or stands still, or that have several: each tick starts one run."""

from __future__ import annotations

import os
import signal
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.client.schedules import ScheduleClient
from noesium_stream.log.port import EventLog
from tests.support.backends import Backend
from tests.support.processes import Program
from tests.support.reading import eventually, stored

POINTS = (
    "before:schedule.woken",
    "after:schedule.woken",
    "before:schedule.tick.started",
    "after:schedule.tick.started",
    "before:schedule.run.ended",
    "after:schedule.run.ended",
)
SECOND = 1_000


async def start(backend: Backend, home: Path, point: str = "") -> Program:
    return await Program.start("tests.support.scheduling", backend.url, home, point)


async def add(client: Client, name: str) -> None:
    await ScheduleClient(client).add(
        name, "echo", {"text": name}, every=timedelta(seconds=1), overlap="allow_all"
    )


async def told(log: EventLog, *types: str) -> list[dict[str, object]]:
    topic = log.topology.events("schedule")
    return [record.envelope.payload for record in await stored(log, topic, types=types)]


async def ticks(log: EventLog, name: str) -> list[int]:
    return [
        int(str(one["tick_ms"]))
        for one in await told(log, "schedule.tick.started")
        if one["schedule"] == name
    ]


async def check(log: EventLog, names: list[str]) -> None:
    """Each second has one tick, each tick one command and one run, each run one end."""
    started = await told(log, "schedule.tick.started")
    for name in names:
        found = await ticks(log, name)
        assert found == list(range(found[0], found[-1] + 1, SECOND))
    assert await told(log, "schedule.tick.skipped") == []
    run_ids = Counter(str(one["run_id"]) for one in started)
    assert set(run_ids.values()) == {1}
    journal = log.topology.journal("echo")
    for of_type in ("run.started", "run.completed"):
        runs = Counter(record.key for record in await stored(log, journal, types=(of_type,)))
        assert set(runs.values()) == {1}
        assert set(runs) <= set(run_ids)
    commands = await stored(log, log.topology.inbox("echo"), types=("run.requested",))
    assert Counter(record.key for record in commands) == run_ids


async def all_ended(log: EventLog) -> bool:
    ended = {one["run_id"] for one in await told(log, "schedule.run.ended")}
    return ended >= {one["run_id"] for one in await told(log, "schedule.tick.started")}


@pytest.mark.needs("several_processes")
@pytest.mark.parametrize("point", POINTS)
async def test_the_next_process_makes_up_what_the_killed_one_had_not_done(
    backend: Backend, tmp_path: Path, point: str
) -> None:
    log = await backend.open()
    async with Client(log) as client:
        first = await start(backend, tmp_path / "one", point)
        await first.line("at work")
        await add(client, "s")
        await first.ended_by_signal()
        done = len(await ticks(log, "s"))
        second = await start(backend, tmp_path / "two")
        try:
            await eventually(lambda: more(log, "s", done + 4))
            await ScheduleClient(client).pause("s")
            await eventually(lambda: all_ended(log))
        finally:
            await second.kill()
        await check(log, ["s"])


async def more(log: EventLog, name: str, count: int) -> bool:
    return len(await ticks(log, name)) >= count


@pytest.mark.needs("several_processes")
@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("before:schedule.woken:stop", "sent"),
        ("before:schedule.tick.started:stop", "FencedError"),
        ("after:schedule.tick.started:stop", "sent"),
    ],
)
async def test_an_owner_that_stood_still_and_was_replaced_fires_no_tick_again(
    backend: Backend, tmp_path: Path, point: str, said: str
) -> None:
    """It had told of a tick, was about to commit its run, or had done so, and finishes that when it wakes."""
    log = await backend.open()
    programs = []
    async with Client(log) as client:
        try:
            paused = await start(backend, tmp_path / "paused", point)
            programs.append(paused)
            await paused.line("at work")
            await add(client, "s")
            await paused.line("stopped")
            programs.append(await start(backend, tmp_path / "next", "never:any:stop"))
            done = len(await ticks(log, "s"))
            await eventually(lambda: more(log, "s", done + 3))
            os.kill(paused.pid, signal.SIGCONT)
            await paused.line(said)
            done = len(await ticks(log, "s"))
            await eventually(lambda: more(log, "s", done + 3))
            await ScheduleClient(client).pause("s")
            await eventually(lambda: all_ended(log))
        finally:
            for program in programs:
                await program.kill()
        assert len(await owners(log)) == 2
        await check(log, ["s"])


async def owners(log: EventLog) -> set[str]:
    """The processes that ticks were told by."""
    topic = log.topology.events("schedule")
    records = await stored(log, topic, types=("schedule.tick.started",))
    return {record.envelope.producer.instance_id for record in records}


@pytest.mark.needs("several_processes")
async def test_two_workers_share_schedules_and_one_goes_on_alone(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    names = [f"s{number}" for number in range(6)]
    async with Client(log) as client:
        programs = [await start(backend, tmp_path / str(number)) for number in range(2)]
        try:
            for program in programs:
                await program.line("at work")
            for name in names:
                await add(client, name)
            for name in names:
                await eventually(lambda name=name: more(log, name, 2))
            await programs[0].kill()
            for name in names:
                await eventually(lambda name=name: more(log, name, 5))
            for name in names:
                await ScheduleClient(client).pause(name)
            await eventually(lambda: all_ended(log))
        finally:
            for program in programs:
                await program.kill()
        await check(log, names)
