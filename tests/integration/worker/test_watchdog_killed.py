"""Watchdogs whose owner is killed: what does not happen in time is told exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from noesium_stream.errors import TopicNotFoundError
from noesium_stream.log.port import EventLog
from tests.support.backends import Backend
from tests.support.handlers import append_by_key
from tests.support.processes import Program
from tests.support.reading import eventually, stored
from tests.support.reminding import WITHIN, Late, Paid, Placed

POINTS = (
    "before:watchdog.elapsed",
    "after:watchdog.elapsed",
    "before:reminders.late",
    "after:reminders.late",
    "",
)
"""Where the first process dies by itself; the empty one is killed when it has told one."""
KEYS = [f"order-{number}" for number in range(12)]

Told = Counter[tuple[str, int]]


async def start(backend: Backend, home: Path, point: str = "") -> Program:
    program = await Program.start("tests.support.reminding", backend.url, home, point)
    await program.line("at work")
    return program


async def told(log: EventLog) -> Told:
    try:
        records = await stored(log, log.topology.events("reminders"), types=("reminders.late",))
    except TopicNotFoundError:
        return Counter()
    return Counter((record.key, record.envelope.payload["number"]) for record in records)


async def unpaid(log: EventLog) -> Told:
    """The orders that were not paid in time, by the times of their events."""
    found: Told = Counter()
    placed: dict[str, tuple[int, int]] = {}
    for record in await stored(log, log.topology.events("shop"), types=("shop.",)):
        event = record.envelope
        if event.event_type == "shop.placed":
            placed[record.key] = event.payload["number"], event.timestamp_ms
            found[record.key, event.payload["number"]] = 1
            continue
        number, begun_ms = placed[record.key]
        if event.timestamp_ms <= begun_ms + WITHIN.total_seconds() * 1000:
            del found[record.key, number]
    return found


async def is_all(log: EventLog) -> bool:
    return set(await told(log)) >= set(await unpaid(log))


@pytest.mark.needs("several_processes")
@pytest.mark.parametrize("point", POINTS)
async def test_what_the_killed_process_had_begun_to_tell_is_told_once(
    backend: Backend, tmp_path: Path, point: str
) -> None:
    log = await backend.open()
    for event in (Placed, Paid, Late):
        log.catalogue.register(event)
    first = await start(backend, tmp_path / "one", point)
    try:
        await append_by_key(log, [(key, Placed(number=1)) for key in KEYS])
        await append_by_key(log, [(key, Paid(number=1)) for key in KEYS[::3]])
        if point:
            await first.ended_by_signal()
        else:
            await eventually(lambda: told(log))
    finally:
        await first.kill()
    second = await start(backend, tmp_path / "two")
    try:
        await eventually(lambda: is_all(log))
        await append_by_key(log, [(key, Paid(number=1)) for key in KEYS])
        # Behind all that was said of the first round, twice perhaps, in each partition.
        await append_by_key(log, [(key, Placed(number=2)) for key in KEYS])
        await eventually(lambda: is_all(log))
    finally:
        await second.kill()
    assert await told(log) == await unpaid(log)
    assert {key for key, number in await unpaid(log) if number == 2} == set(KEYS)
