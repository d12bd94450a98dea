"""A handler's partition that cannot be taken at once is taken by and by, and holds up nobody meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from noesium_stream.clock import SystemClock, VirtualClock
from noesium_stream.errors import CommitUnknownError, FencedError, LogTruncatedError, LogUnavailableError
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import Worker
from noesium_stream.worker.handlers.tenure import HandlerOwner
from noesium_stream.worker.ownership import owner as ownership
from tests.support.handlers import Here, Sold, Watcher, handler_owner, sell
from tests.support.reading import PATIENCE_S, stored

TOPIC = "noesium.events.sales"
KEYS = tuple(next(key for key in "abcdefgh" if partition_of(key, 2) == p) for p in (0, 1))


class Hasty(SystemClock):
    """Its time passes without being waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual = VirtualClock()

    def monotonic(self) -> float:
        return self._virtual.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._virtual.advance(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is taken when `take` returns, however slow the machine is."""
    monkeypatch.setattr(ownership, "TAKING_S", PATIENCE_S)


@pytest.fixture(autouse=True)
def seen() -> list[tuple[str | None, int]]:
    Watcher.seen = []
    return Watcher.seen


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=2")
    log.catalogue.register(Sold)
    yield log
    await log.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


class Refusing:
    """The partition `refused` is taken by somebody else, or its log is away, as long as `error` is set."""

    def __init__(self, refused: int, error: Exception) -> None:
        self.key = f"{TOPIC}/{refused}"
        self.error: Exception | None = error
        self.times = 0

    async def __call__(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        first = outgoing[0]
        acquired = first.envelope.event_type == "partition.acquired" and first.key == self.key
        if acquired and self.error is not None:
            self.times += 1
            raise self.error
        return await commit(outgoing)


@pytest.mark.parametrize("error", [FencedError("told to"), LogUnavailableError("told to")])
async def test_one_that_is_refused_holds_up_no_other_partition(
    log: EventLog, tmp_path: Path, seen: list[tuple[str | None, int]], error: Exception
) -> None:
    hook = Refusing(0, error)
    await sell(log, *KEYS)
    async with Worker(cast(EventLog, HookedLog(log, hook)), [Watcher], home=tmp_path) as worker:
        await until(lambda: hook.times > 2)
        await sell(log, *KEYS)
        await until(lambda: len(seen) == 2)
        assert seen == [(KEYS[1], 0), (KEYS[1], 1)]
        assert worker.health().waits_for == ["watcher is taking partition 0"]
        hook.error = None
        await until(lambda: len(seen) == 4)
        assert seen[2:] == [(KEYS[0], 0), (KEYS[0], 1)]
        await until(lambda: not worker.health().waits_for)


async def test_a_log_that_is_away_for_minutes_is_waited_for(
    log: EventLog, tmp_path: Path, seen: list[tuple[str | None, int]]
) -> None:
    hook, clock = Refusing(0, LogUnavailableError("told to")), Hasty()
    await sell(log, KEYS[0])
    hooked = cast(EventLog, HookedLog(log, hook))
    async with Worker(hooked, [Watcher], home=tmp_path, clock=clock) as worker:
        began, waiting = clock.monotonic(), asyncio.create_task(worker.wait())
        await until(lambda: clock.monotonic() - began > 600 or waiting.done())
        assert not waiting.done()
        hook.error = None
        await until(lambda: seen)
        assert seen == [(KEYS[0], 0)]
        waiting.cancel()


async def test_what_keeps_it_from_being_taken_for_good_ends_the_worker(log: EventLog, tmp_path: Path) -> None:
    hook = Refusing(0, FencedError("told to"))
    await sell(log, *[KEYS[0]] * 3)
    async with Worker(log, [Watcher], home=tmp_path):
        await until(lambda: len(Watcher.seen) == 3)
    await sell(log, *[KEYS[0]] * 3)
    hooked = cast(EventLog, HookedLog(log, hook))
    async with Worker(hooked, [Watcher], home=tmp_path) as worker, asyncio.timeout(PATIENCE_S):
        await until(lambda: hook.times > 2)
        await log.truncate(TOPIC, {0: 5})
        hook.error = None
        with pytest.raises(LogTruncatedError):
            await worker.wait()


# -- one partition ----------------------------------------------------------------------------------------


class Place(Here):
    """Reads from where it is told to as soon as `assigned`."""

    def __init__(self) -> None:
        super().__init__()
        self.assigned = asyncio.Event()
        self.assigned.set()
        self.asked = asyncio.Event()

    async def start_at(self, offset: int) -> None:
        self.asked.set()
        await self.assigned.wait()
        await super().start_at(offset)


async def owner_of(log: EventLog, home: Path, place: Place) -> HandlerOwner:
    await log.ensure_topics([log.topology.spec(log.topology.journal("watcher"))])
    return handler_owner(log, Watcher, home, domain="sales", here=place)


async def sold(log: EventLog) -> list[Record]:
    return [record for record in await stored(log, TOPIC) if not record.partition]


@pytest.mark.usefixtures("patient")
async def test_what_was_handed_over_before_it_was_lost_is_read_again_in_order(
    log: EventLog, tmp_path: Path, seen: list[tuple[str | None, int]]
) -> None:
    await sell(log, *[KEYS[0]] * 4)
    records, place = await sold(log), Place()
    owner = await owner_of(log, tmp_path, place)
    assert await owner.take() == 0
    await owner.accept(records[:1])
    handed_over = owner.accept(records[2:])  # those before it went to the owner that is lost now
    owner.lose(CommitUnknownError("told to"))
    await until(lambda: owner.status(0) is not None)
    assert place.starts == [1]
    await handed_over
    assert len(seen) == 1, "the record between is not passed over"
    await owner.accept(records[1:])
    assert [state for _, state in seen] == [0, 1, 2, 3]
    await owner.release()


@pytest.mark.usefixtures("patient")
async def test_what_the_group_hands_over_before_it_knows_where_to_read_is_passed_over(
    log: EventLog, tmp_path: Path, seen: list[tuple[str | None, int]]
) -> None:
    await sell(log, *[KEYS[0]] * 4)
    records, place = await sold(log), Place()
    owner = await owner_of(log, tmp_path, place)
    assert await owner.take() == 0
    place.assigned.clear()
    owner.lose(CommitUnknownError("told to"))
    await place.asked.wait()
    await owner.accept(records[2:])
    waiting = owner.accept(records[3:])
    place.assigned.set()
    await until(lambda: owner.status(0) is not None)
    await waiting
    assert not seen
    await owner.accept(records)
    assert len(seen) == 4
    await owner.release()


@pytest.mark.usefixtures("patient")
async def test_one_that_is_given_up_while_it_is_taken_beside_the_group_is_not_taken(
    log: EventLog, tmp_path: Path
) -> None:
    place = Place()
    await sell(log, KEYS[0])
    owner = await owner_of(log, tmp_path, place)
    await owner.take()
    place.assigned.clear()
    owner.lose(CommitUnknownError("told to"))
    await place.asked.wait()
    await owner.release()
    place.assigned.set()
    await asyncio.sleep(0)
    assert owner.status(0) is None
    assert await owner.take() is None
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(("committer ", "take "))]
