"""SQLite alone: other processes' locks, leases that run out, waking, retention, the clock."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from noesium_stream.clock import SystemClock, VirtualClock
from noesium_stream.errors import LogCorruptError, LogUnavailableError
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, Outgoing, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.log.sqlite import file as sqlite_file
from noesium_stream.log.sqlite import wake as sqlite_wake
from noesium_stream.log.sqlite.store import SqliteStore
from noesium_stream.log.topics import TopicKind, TopicSpec
from tests.support.events import catalogue, counted
from tests.support.processes import Program, stop
from tests.support.reading import PATIENCE_S, GroupMember, Tail, eventually, numbers, stored

HOUR_S = 3600.0


async def opened(folder: Path, **options: object) -> EventLog:
    return await open_log(f"sqlite:///{folder}/log.db?partitions=4", catalogue=catalogue(), **options)  # type: ignore[arg-type]


async def test_another_processes_lock_is_waited_for_while_the_event_loop_goes_on(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    topic = log.topology.events("demo")
    await log.append([counted(0, "k")])
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    appends = [asyncio.create_task(log.append([counted(n, "k")])) for n in range(1, 6)]
    appends.append(asyncio.create_task(log.append([counted(6, "k"), counted(7, "k2")])))
    turns = 0
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    assert not any(append.done() for append in appends)
    other.execute("COMMIT")
    other.close()
    await asyncio.gather(*appends)
    assert sorted(numbers(await stored(log, topic))) == list(range(8))
    await log.close()


async def test_a_lock_that_is_never_given_up_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "PATIENCE_S", 0.2)
    log = await opened(tmp_path)
    await log.append([counted(0, "k")])
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogUnavailableError, match="locked by another process"):
        await log.append([counted(1, "k")])
    other.execute("COMMIT")
    await log.append([counted(2, "k")])
    assert numbers(await stored(log, log.topology.events("demo"))) == [0, 2]
    other.close()
    await log.close()


async def test_a_member_that_slept_through_its_lease_handles_nothing_that_others_have(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(20)])
    program = await Program.start("tests.support.appender", "member", log.url, topic, "group")
    await eventually(lambda: sum(line.startswith("record") for line in program.lines) == 20)
    await stop(program.pid, log.url)
    member = GroupMember()
    subscription = await log.subscribe("group", [topic], member.handle)
    everything = frozenset(TopicPartition(topic, number) for number in range(4))
    await eventually(lambda: subscription.assignment == everything)
    await log.append([counted(n, f"k{n}") for n in range(20, 40)])
    await eventually(lambda: len(member.records) == 20)
    os.kill(program.pid, signal.SIGCONT)
    await eventually(lambda: len(subscription.assignment) == 2)
    await log.append([counted(n, f"k{n}") for n in range(40, 60)])

    def handled() -> list[int]:
        return [int(line.split()[1]) for line in program.lines if line.startswith("record")]

    await eventually(lambda: len(handled()) + len(member.records) == 60)
    assert sorted([*handled(), *numbers(member.records)]) == list(range(60)), "nothing twice, nothing lost"
    await program.kill()
    await log.close()


async def test_a_commit_wakes_a_reader_in_another_log_without_waiting_for_the_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noesium_stream.log.sqlite.wake.POLL_S", 1000.0)
    reader, writer = await opened(tmp_path), await opened(tmp_path)
    topic = reader.topology.events("demo")
    await writer.append([counted(0, "k")])
    async with Tail(reader, topic) as tail:
        await tail.has(1)
        for n in range(1, 20):
            await writer.append([counted(n, f"k{n}")])
            await tail.has(n + 1)
    await reader.close()
    await writer.close()


async def test_the_poll_finds_a_commit_that_nobody_told_of(tmp_path: Path) -> None:
    reader, writer = await opened(tmp_path), await opened(tmp_path)
    topic = reader.topology.events("demo")
    await writer.append([counted(0, "k")])
    async with Tail(reader, topic) as tail:
        await tail.has(1)
        (tmp_path / "log.db-wal").rename(tmp_path / "log.db-wal-away")
        (tmp_path / "log.db-wal-away").rename(tmp_path / "log.db-wal")
        await writer.append([counted(1, "k")])
        await tail.has(2)
    await reader.close()
    await writer.close()


async def test_append_times_never_run_backwards_when_the_clock_does(tmp_path: Path) -> None:
    ahead, behind = VirtualClock(2_000_000_000_000), VirtualClock(1_900_000_000_000)
    one, other = await opened(tmp_path, clock=ahead), await opened(tmp_path, clock=behind)
    for log in (one, other, other, one, one, other):
        await log.append([counted(1, "k")])
    times = [record.timestamp_ms for record in await stored(one, one.topology.events("demo"))]
    assert times == [2_000_000_000_000] * 6
    await one.close()
    await other.close()


async def test_what_is_older_than_the_retention_is_removed(tmp_path: Path) -> None:
    clock = VirtualClock(SystemClock().now_ms())
    log = await opened(tmp_path, clock=clock)
    short, kept = log.topology.events("short"), log.topology.events("kept")
    await log.ensure_topics(
        [TopicSpec(short, TopicKind.EVENTS, 1, 3_600_000), TopicSpec(kept, TopicKind.EVENTS, 1, None)]
    )
    for n in range(3):
        for topic in (short, kept):
            await log.append([counted(n)], topic=topic)
        clock.advance(HOUR_S * 0.6)
    await log.append([counted(3)], topic=short)
    assert numbers(await stored(log, short)) == [2, 3]
    assert numbers(await stored(log, kept)) == [0, 1, 2]
    assert (await log.beginning(short), await log.end(short)) == ({0: 2}, {0: 4})
    clock.advance(HOUR_S * 2)
    await log.close()
    again = await opened(tmp_path, clock=clock)
    assert await stored(again, short) == []
    [position] = await again.append([counted(4)], topic=short)
    assert position.offset == 4
    await again.close()


async def test_processes_that_make_the_same_log_at_once_make_one_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new/log.db?partitions=4"
    topic = "noesium.events.demo"
    programs = [
        await Program.start("tests.support.appender", "append", url, topic, f"k{number}", number * 100, 20)
        for number in range(4)
    ]
    for program in programs:
        await program.end()
    log = await open_log(url, catalogue=catalogue())
    expected = [number * 100 + n for number in range(4) for n in range(20)]
    assert sorted(numbers(await stored(log, topic))) == expected
    await log.close()


async def test_what_another_connection_has_committed_is_read_before_anybody_was_woken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_wake.Waker, "look", lambda self: None)
    log, other = await opened(tmp_path), await opened(tmp_path)
    topic = log.topology.events("demo")
    await log.append([counted(0, "k")])
    async with Tail(log, topic) as tail:
        await tail.has(1)
        for number in range(1, 4):
            end = await log.end(topic)
            await other.append([counted(number, "k")])
            assert numbers(await asyncio.wait_for(stored(log, topic, end), PATIENCE_S)) == [number]
    await log.close()
    await other.close()


async def test_a_commit_of_this_process_does_not_ask_the_file_about_other_partitions(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    assert isinstance(log, EmbeddedLog)
    quiet, busy = log.topology.events("demo"), log.topology.events("quiet")
    await log.ensure_topics([log.topology.spec(quiet), log.topology.spec(busy)])
    statements: list[str] = []
    store = log.store
    assert isinstance(store, SqliteStore)
    async with Tail(log, quiet) as tail:
        await log.append([counted(0, "k")])
        assert numbers(await tail.has(1)) == [0]
        await log.append([counted(0, "k")], topic=busy)
        await asyncio.sleep(0)
        store.connection.set_trace_callback(statements.append)
        for number in range(20):
            await log.append([counted(number, "k")], topic=busy)
            for _ in range(5):
                await asyncio.sleep(0)
        assert statements
        assert not [text for text in statements if text.startswith("SELECT")]
        store.connection.set_trace_callback(None)
    await log.close()


@pytest.mark.parametrize("again", [False, True])
async def test_a_file_that_was_removed_is_neither_read_nor_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(sqlite_wake, "POLL_S", 0.01)
    log = await opened(tmp_path)
    await log.append([counted(0, "k")])
    writer, topic = await log.writer("w"), log.topology.events("demo")
    seen: list[int] = []

    async def take(records: Sequence[Record]) -> None:
        seen.extend(record.envelope.payload["n"] for record in records)

    group = await log.subscribe("g", [topic], take)
    await eventually(lambda: seen == [0])
    for path in tmp_path.glob("log.db*"):
        path.unlink()
    if again:
        await (await opened(tmp_path)).close()
    with pytest.raises(LogCorruptError, match="was removed or replaced while it was open"):
        await asyncio.wait_for(group.wait(), PATIENCE_S)
    for write in (
        lambda: log.append([counted(1, "k")]),
        lambda: writer.commit([Outgoing(counted(1, "k"), topic, 1, "k")]),
        lambda: log.writer("x"),
    ):
        with pytest.raises(LogCorruptError, match="was removed or replaced while it was open"):
            await write()
    with pytest.raises(LogCorruptError, match="was removed or replaced"):
        await log.topics()
    await group.close()
    await log.close()


@pytest.mark.parametrize("count", [1, 2])
async def test_pieces_alone_do_not_wait_for_the_disk(tmp_path: Path, count: int) -> None:
    log = await opened(tmp_path)
    assert isinstance(log, EmbeddedLog)
    store = log._store
    assert isinstance(store, SqliteStore)
    event = counted(0, "k")
    await log.append([event])
    await log.append([event], topic=log.topology.stream)
    levels: list[int] = []

    def traced(sql: str) -> None:
        if sql.startswith("INSERT"):
            levels.append(level[-1])
        elif sql.startswith("PRAGMA synchronous="):
            level.append({"NORMAL": 1, "2": 2}[sql.partition("=")[2]])

    level = [store.connection.execute("PRAGMA synchronous").fetchone()[0]]
    assert level == [2], "FULL"
    store.connection.set_trace_callback(traced)
    await log.append([counted(n, "k") for n in range(count)], topic=log.topology.stream)
    await log.append([counted(n, "k") for n in range(count)])
    store.connection.set_trace_callback(None)
    assert list(dict.fromkeys(levels)) == [1, 2]
    assert store.connection.execute("PRAGMA synchronous").fetchone()[0] == 2
    await log.close()
