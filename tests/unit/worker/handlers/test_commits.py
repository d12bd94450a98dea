"""What a handler's partition hands to the log: in order, one by one, and none behind one that failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from noesium_stream.agent import BaseHandler
from noesium_stream.clock import SystemClock
from noesium_stream.errors import (
    CommitUnknownError,
    FencedError,
    LogClosedError,
    LogFullError,
    RecordTooLargeError,
)
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.log import open_log
from noesium_stream.log.embedded import group
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.record import Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import Worker
from noesium_stream.worker.handlers import ahead
from noesium_stream.worker.handlers import commits as handling_commits
from noesium_stream.worker.handlers import tenure as handling
from noesium_stream.worker.handlers.commits import Commits, Made
from noesium_stream.worker.handlers.tenure import HandlerTenure
from tests.support.reading import PATIENCE_S

ONE: Any = [object()]


class Log:
    """Takes commits, each when it is let through."""

    def __init__(self) -> None:
        self.began: list[tuple[int, int, int]] = []
        self.landed: list[int] = []
        self.let_through = asyncio.Semaphore(0)
        self.fails: Exception | None = None
        self.commits = Commits(self.commit, self.on_log)

    async def commit(self, cursor: int, handled: int, outgoing: Sequence[Any]) -> None:
        self.began.append((cursor, handled, len(outgoing)))
        await self.let_through.acquire()
        if self.fails is not None:
            raise self.fails

    def on_log(self, made: Made) -> None:
        self.landed.append(made.cursor)

    def add(self, cursor: int, *, handled: int = 1, more: bool = False, size: int = 1) -> Made:
        return self.commits.add(ONE * handled, handled, size, cursor, more=more)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_lone_event_waits_for_nothing_and_what_comes_meanwhile_goes_together() -> None:
    log = Log()
    first = log.add(1)
    await turns()
    assert log.began == [(1, 1, 1)]
    second, third = log.add(2), log.add(3, handled=2)
    await turns()
    assert len(log.began) == 1, "one at a time"
    log.let_through.release()
    await first.on_log
    assert second is third
    assert not second.on_log.done()
    await turns()
    assert log.began[1:] == [(3, 3, 3)]
    log.let_through.release()
    await second.on_log
    assert log.landed == [1, 3]
    assert log.commits.idle


async def test_where_many_more_are_about_to_come_a_commit_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handling_commits, "LINGER_S", 3600.0)
    monkeypatch.setattr(handling_commits, "MOST_EVENTS", 4)
    monkeypatch.setattr(handling_commits, "MOST_BYTES", 100)
    log = Log()
    for cursor in (1, 2, 3):
        log.add(cursor, more=True)
    await turns()
    assert not log.began
    log.add(4, more=True)
    await turns()
    assert log.began == [(4, 4, 4)]
    log.let_through.release()
    log.add(5, more=True)
    await turns()
    assert len(log.began) == 1
    log.add(6, more=False)
    await turns()
    assert log.began[1:] == [(6, 2, 2)]
    log.let_through.release()
    await turns()
    log.add(7, more=True, size=100)
    await turns()
    assert log.began[2:] == [(7, 1, 1)]


async def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handling_commits, "LINGER_S", 0.01)
    log = Log()
    log.let_through.release()
    async with asyncio.timeout(PATIENCE_S):
        await log.add(1, more=True).on_log
    assert log.commits._timer is None


async def test_what_is_handled_of_nothing_is_no_commit_and_keeps_its_place() -> None:
    log = Log()
    await log.add(1, handled=0).on_log
    assert (log.began, log.landed) == ([], [1])
    first, second = log.add(2), log.add(3, handled=0)
    await turns()
    assert log.landed == [1]
    assert not second.on_log.done()
    log.let_through.release()
    await first.on_log
    await second.on_log
    assert log.landed == [1, 2, 3]
    assert len(log.began) == 1


@pytest.mark.parametrize("error", [CommitUnknownError("told to"), RecordTooLargeError("told to")])
async def test_nothing_follows_a_commit_that_failed(error: Exception) -> None:
    log = Log()
    log.fails = error
    first = log.add(1)
    await turns()
    second = log.add(2)
    log.let_through.release()
    for made in (first, second, log.add(3)):
        with pytest.raises(type(error)):
            await made.on_log
    assert log.commits.lost is error
    assert not await log.commits.settle()
    assert (len(log.began), log.landed) == (1, [])


async def test_there_is_room_for_one_commit_behind_the_one_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handling_commits, "MOST_EVENTS", 4)
    log = Log()
    log.add(1, handled=9)
    log.add(2, handled=3)
    async with asyncio.timeout(PATIENCE_S):
        await log.commits.room()
        log.add(3)
        waiting = asyncio.create_task(log.commits.room())
        await turns()
        assert not waiting.done()
        log.let_through.release()
        await waiting
    assert log.landed == [1]
    log.fails = FencedError("told to")
    log.add(4, handled=4)
    waiting = asyncio.create_task(log.commits.room())
    await turns()
    assert not waiting.done()
    log.let_through.release()
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert log.commits.lost


async def test_settling_sends_all_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handling_commits, "LINGER_S", 3600.0)
    log = Log()
    log.add(1)
    await turns()
    log.add(2, more=True)
    settling = asyncio.create_task(log.commits.settle())
    await turns()
    assert not settling.done()
    log.let_through.release()
    log.let_through.release()
    assert await settling
    assert log.landed == [1, 2]


async def test_who_closes_waits_for_what_is_under_way_and_sends_nothing_more() -> None:
    log = Log()
    first = log.add(1)
    await turns()
    second = log.add(2)
    closing = asyncio.create_task(log.commits.close())
    await turns()
    assert not closing.done()
    with pytest.raises(LogClosedError):
        await second.on_log
    log.let_through.release()
    await closing
    await first.on_log
    assert log.landed == [1]


# -- a worker ---------------------------------------------------------------------------------------------


class Sold(DomainEvent, event_type="sales.sold"):
    number: int


class Counted(DomainEvent, event_type="counts.made"):
    number: int
    total: int


class Total(BaseProjection[int]):
    """What was sold."""

    name = "total"
    topics = ("events.sales",)
    events = (Sold,)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["number"])


class Counting(BaseHandler):
    agent_type = "counting"
    state = Total
    events = (Counted,)

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        number = event.payload["number"]
        return [Counted(number=number, total=state + number)]


class Failing:
    """Some commits of what was handled fail, before they are on the log or behind it; all take their time."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error
        self.count = 0
        self.failed = 0

    async def __call__(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        if not any(one.envelope.event_type == "counts.made" for one in outgoing):
            return await commit(outgoing)
        self.count = number = self.count + 1
        await turns()
        if number % 3 == 1:
            self.failed += 1
            if self.error is CommitUnknownError and number % 2:
                await commit(outgoing)
            raise self.error("told to")
        return await commit(outgoing)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=2")
    log.catalogue.register(Sold)
    log.catalogue.register(Counted)
    yield log
    await log.close()


async def sell(log: EventLog, numbers: Iterable[int]) -> None:
    clock = SystemClock()
    for number in numbers:
        trace = TraceContext(clock.token(16), clock.token(8))
        events = [
            Sold(number=number).to_envelope(AgentRef("x", "x"), trace, partition_key=key, clock=clock)
            for key in "abcd"
        ]
        await log.append(events)


async def totals(log: EventLog, at_least: int) -> dict[str, list[int]]:
    topic = log.topology.events("counts")
    await log.ensure_topics([log.topology.spec(topic)])
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: dict[str, list[int]] = {key: [] for key in "abcd"}
            async for record in log.read(topic, {}, until=await log.end(topic)):
                found[str(record.envelope.partition_key)].append(record.envelope.payload["total"])
            if sum(map(len, found.values())) >= at_least:
                return found
            await asyncio.sleep(0.005)


def expected(count: int) -> dict[str, list[int]]:
    return {key: [sum(range(number + 1)) for number in range(count)] for key in "abcd"}


class Standing:
    """Commits of what was made stand still until they are let through."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.let_through = asyncio.Event()

    async def __call__(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        made = [one for one in outgoing if one.envelope.event_type == "counts.made"]
        if made:
            self.sizes.append(len(made))
            await self.let_through.wait()
        return await commit(outgoing)


async def test_a_log_that_stands_still_is_waited_for_before_much_is_made(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handling_commits, "MOST_EVENTS", 10)
    monkeypatch.setattr(group, "BATCH_RECORDS", 8)
    hook, handled, given, accept = Standing(), list[int](), 0, HandlerTenure.accept

    async def accepting(self: HandlerTenure, records: Sequence[Record], *, more: bool = False) -> None:
        nonlocal given
        given += len(records)
        await accept(self, records, more=more)

    monkeypatch.setattr(HandlerTenure, "accept", accepting)

    def handle(self: Counting, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        handled.append(event.payload["number"])
        number = event.payload["number"]
        return [Counted(number=number, total=state + number)]

    monkeypatch.setattr(Counting, "handle", handle)
    await sell(log, range(60))
    async with Worker(cast(EventLog, HookedLog(log, hook)), [Counting], home=tmp_path):
        while given < 240:
            await asyncio.sleep(0)
        await turns()
        ahead = len(handled)
        hook.let_through.set()
        assert ahead <= 2 * (8 + 10 + 8), "of each of the two partitions: under way, and waiting"
        assert await totals(log, 240) == expected(60)
    assert max(hook.sizes) < 10 + 8


@pytest.mark.parametrize("error", [CommitUnknownError, FencedError])
async def test_what_was_handled_behind_a_commit_that_failed_is_handled_again_once_and_in_order(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(handling, "FLUSH_EVENTS", 7)
    monkeypatch.setattr(group, "BATCH_RECORDS", 3)
    hook = Failing(error)
    async with Worker(cast(EventLog, HookedLog(log, hook)), [Counting], home=tmp_path):
        selling = asyncio.create_task(sell(log, range(30)))
        await totals(log, 40)
        await selling
        await sell(log, range(30, 60))
        assert await totals(log, 240) == expected(60)
    assert hook.failed > 2
    async with Worker(log, [Counting], home=tmp_path / "elsewhere"):
        await sell(log, range(60, 61))
        assert await totals(log, 244) == expected(61)


async def test_a_worker_that_ends_does_not_wait_for_a_log_that_is_full(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "MOST_EVENTS", 0)
    monkeypatch.setattr(handling, "DRAIN_S", 0.01)
    tried, full = asyncio.Event(), True

    async def filled(outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        if full and any(one.envelope.event_type == "counts.made" for one in outgoing):
            tried.set()
            raise LogFullError("told to")
        return await commit(outgoing)

    await sell(log, range(3))
    worker = Worker(cast(EventLog, HookedLog(log, filled)), [Counting], home=tmp_path)
    await worker.__aenter__()
    await tried.wait()
    closing = asyncio.create_task(worker.close())
    done, _ = await asyncio.wait((closing,), timeout=PATIENCE_S)
    full = False
    await closing
    assert done, "it was waited for"
    async with Worker(log, [Counting], home=tmp_path):
        assert await totals(log, 12) == expected(3)
