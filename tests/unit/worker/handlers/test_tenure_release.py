"""A handler's partition is given up at once and wholly, whatever stands in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.clock import SystemClock
from noesium_stream.errors import (
    CommitUnknownError,
    LogFullError,
    LogTruncatedError,
    LogUnavailableError,
    ProjectionError,
)
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, LogWriter
from noesium_stream.log.record import Record
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.worker import Worker
from noesium_stream.worker.handlers import tenure as handling
from noesium_stream.worker.handlers.events import Handling
from noesium_stream.worker.handlers.tenure import HandlerOwner, HandlerTenure
from noesium_stream.worker.ownership import owner as ownership
from tests.support.handlers import Sold, Watcher, handler_owner, sell
from tests.support.reading import PATIENCE_S, stored


class Writers:
    """Those that were opened and are not closed; while `away`, none of them can commit."""

    def __init__(self, log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open: set[LogWriter] = set()
        self.away = False
        self.tried = asyncio.Event()
        self._opened = log.writer
        monkeypatch.setattr(log, "writer", self._writer)

    async def _writer(self, writer_id: str, **options: Any) -> LogWriter:
        writer = await self._opened(writer_id, **options)
        commit, close = writer.commit, writer.close

        async def committing(outgoing: Any) -> Any:
            if self.away:
                self.tried.set()
                raise LogUnavailableError("nobody answers")
            return await commit(outgoing)

        async def closing() -> None:
            self.open.discard(writer)
            await close()

        writer.commit, writer.close = committing, closing  # type: ignore[method-assign]
        self.open.add(writer)
        return writer


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is taken when `take` returns, however slow the machine is."""
    monkeypatch.setattr(ownership, "TAKING_S", PATIENCE_S)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    log.catalogue.register(Sold)
    await log.ensure_topics([log.topology.spec(log.topology.journal("watcher"))])
    await sell(log, "a")
    yield log
    await log.close()


def owner_of(log: EventLog, home: Path, progress: Callable[[str], None] = lambda line: None) -> HandlerOwner:
    return handler_owner(log, Watcher, home, domain="sales", progress=progress)


async def sold(log: EventLog) -> list[Record]:
    return await stored(log, log.topology.events("sales"))


async def advanced(log: EventLog) -> list[dict[str, Any]]:
    records = await stored(log, log.topology.journal("watcher"), types=("handler.advanced",))
    return [record.envelope.payload for record in records]


def committers() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("committer ")]


async def test_a_state_that_cannot_be_written_leaves_no_writer_and_no_task_behind(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = Writers(log, monkeypatch)
    owner = owner_of(log, tmp_path)
    await owner.take()
    await owner.accept(await sold(log))

    def full(fold: PartitionFold[Any]) -> None:
        raise ProjectionError("no space is left")

    monkeypatch.setattr(PartitionFold, "flush", full)
    with pytest.raises(ProjectionError, match="no space"):
        await owner.release()
    assert not writers.open
    assert not committers()


async def test_a_partition_that_is_lost_while_the_log_is_away_is_let_go_and_its_event_is_handled_by_the_next(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handling, "DRAIN_S", 0.05)
    writers = Writers(log, monkeypatch)
    owner = owner_of(log, tmp_path)
    assert await owner.take() == 0
    writers.away = True
    accepting = asyncio.create_task(owner.accept(await sold(log)))
    await writers.tried.wait()
    async with asyncio.timeout(PATIENCE_S):
        await owner.release()
        await accepting
    assert not writers.open
    assert not committers()
    writers.away = False
    following = owner_of(log, tmp_path)
    assert await following.take() == 0
    await following.accept(await sold(log))
    await following.release()


@pytest.mark.parametrize("broken", [CommitUnknownError("told to"), LogUnavailableError("nobody answers")])
async def test_a_log_that_is_away_while_a_partition_is_taken_again_is_waited_for(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Exception
) -> None:
    """What `broken` interrupts is handled once, with the state before it."""
    writers = Writers(log, monkeypatch)
    owner = owner_of(log, tmp_path)
    await owner.take()
    outgoing, open_writer, failures = Handling.outgoing, log.writer, [broken]

    async def once(handling: Handling, made: Any) -> Any:
        if failures:
            raise failures.pop()
        return await outgoing(handling, made)

    refused = [LogUnavailableError("not yet"), LogFullError("not yet")]

    async def opening(writer_id: str, **options: Any) -> LogWriter:
        if refused:
            raise refused.pop()
        return await open_writer(writer_id, **options)

    monkeypatch.setattr(Handling, "outgoing", once)
    monkeypatch.setattr(log, "writer", opening)
    async with asyncio.timeout(PATIENCE_S):
        await owner.accept(await sold(log))
        while owner.status(0) is None:
            await asyncio.sleep(0)
        await owner.accept(await sold(log))
        await owner.release()
    assert not refused
    assert not writers.open
    assert not committers()
    assert [(one["next_offset"], one["handled"]) for one in await advanced(log)] == [(1, 1)]


async def test_who_takes_over_from_an_owner_that_stands_still_does_not_wait_for_its_state_file(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_pause(self: SystemClock, seconds: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(SystemClock, "sleep", no_pause)
    paused, owner = owner_of(log, tmp_path), owner_of(log, tmp_path)
    await paused.take()
    assert await owner.take() == 0
    records = await sold(log)
    await owner.accept(records)
    await owner.release()
    assert [path.read_bytes()[:6] for path in tmp_path.rglob("*.state")] == [b"SQLite"] * 2
    await paused.release()
    last = owner_of(log, tmp_path)
    assert await last.take() == records[-1].offset + 1
    assert len(list(tmp_path.rglob("*.state"))) == 1
    await last.release()


async def test_a_new_handler_begins_with_what_is_left_of_a_topic_and_says_so(
    log: EventLog, tmp_path: Path
) -> None:
    topic = log.topology.events("sales")
    await sell(log, *["a"] * 3)
    await log.truncate(topic, {0: 2})
    said: list[str] = []
    owner = owner_of(log, tmp_path, said.append)
    assert await owner.take() == 2
    assert len(said) == 1
    assert "watcher is new here and begins at offset 2" in said[0]
    await owner.accept(await sold(log))
    await owner.release()
    assert [(one["next_offset"], one["handled"], one["began_at"]) for one in await advanced(log)] == [
        (2, 0, 2),
        (4, 2, 2),
    ]
    elsewhere = owner_of(log, tmp_path / "another machine", said.append)
    assert await elsewhere.take() == 4
    await elsewhere.release()
    assert len(said) == 1, "it is new only once"


async def test_a_handler_stops_that_has_not_handled_what_was_removed_of_its_topic(
    log: EventLog, tmp_path: Path
) -> None:
    topic = log.topology.events("sales")
    owner = owner_of(log, tmp_path)
    await owner.take()
    await owner.accept(await sold(log))
    await owner.release()
    await sell(log, *["a"] * 3)
    await log.truncate(topic, {0: 2})
    late = owner_of(log, tmp_path)
    with pytest.raises(LogTruncatedError) as lost:
        await late.take()
    assert (lost.value.wanted, lost.value.first) == (1, 2)
    await late.release()


async def test_a_partition_that_is_given_up_while_it_is_taken_leaves_nothing_open(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = Writers(log, monkeypatch)
    owner = owner_of(log, tmp_path)
    asked, go, topic_id = asyncio.Event(), asyncio.Event(), log.topic_id

    async def slowly(topic: str) -> str:
        asked.set()
        await go.wait()
        return await topic_id(topic)

    monkeypatch.setattr(log, "topic_id", slowly)
    taking = asyncio.create_task(owner.take())
    await asked.wait()
    releasing = asyncio.create_task(owner.release())
    await asyncio.sleep(0)
    go.set()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(taking, releasing)
    assert not writers.open
    assert not committers()


async def test_a_worker_whose_one_state_cannot_be_written_gives_up_its_other_partitions_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://?partitions=4")
    writers = Writers(log, monkeypatch)
    let_go, failed = HandlerTenure._let_go, list[HandlerTenure]()

    async def failing(tenure: HandlerTenure, *, write: bool) -> None:
        if not failed:
            failed.append(tenure)
            await let_go(tenure, write=write)
            raise ProjectionError("no space is left")
        for _ in range(100):
            await asyncio.sleep(0)  # the others take longer
        await let_go(tenure, write=write)

    said: list[str] = []
    worker = Worker(log, [Watcher], home=tmp_path, progress=said.append)
    async with asyncio.timeout(PATIENCE_S), worker:
        while len(worker.health().partitions["watcher"]) < 4:
            await asyncio.sleep(0)
        monkeypatch.setattr(HandlerTenure, "_let_go", failing)
        await worker.close()
        assert not [one for one in writers.open if "/" in one.writer_id]
        assert not committers()
    assert failed
    assert [
        line for line in said if "watcher: a partition was not given up in order: no space is left" in line
    ]
    await log.close()


async def test_a_log_that_is_away_for_a_moment_while_a_partition_is_taken_is_waited_for(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_writer = log.writer
    refused: list[Exception] = [LogUnavailableError("not yet"), LogFullError("not yet")]

    async def opening(writer_id: str, **options: Any) -> LogWriter:
        if refused:
            raise refused.pop()
        return await open_writer(writer_id, **options)

    monkeypatch.setattr(log, "writer", opening)
    owner = owner_of(log, tmp_path)
    assert await owner.take() == 0
    assert not refused
    await owner.release()
    assert not committers()
