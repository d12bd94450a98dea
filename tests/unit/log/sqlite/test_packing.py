"""Blocks in a log: readers see the same records as before, and everything else goes on working."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import LogCorruptError, LogTruncatedError
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.open import open_log
from noesium_stream.log.port import Outgoing
from noesium_stream.log.record import Record
from noesium_stream.log.sqlite import packing
from noesium_stream.log.sqlite.block import is_block
from noesium_stream.log.sqlite.contents import contents_of_blocks
from noesium_stream.log.sqlite.store import SqliteStore
from noesium_stream.log.topics import TopicKind, TopicSpec
from tests.support.damage import with_changed_byte
from tests.support.events import catalogue, counted, sold
from tests.support.reading import eventually, numbers, stored

ENOUGH = 150
"""Records of a test that make more than a window."""


async def opened(path: Path, **options: Any) -> EmbeddedLog:
    log = await open_log(f"sqlite:///{path}?partitions=1", catalogue=catalogue(), **options)
    assert isinstance(log, EmbeddedLog)
    return log


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    log = await opened(tmp_path / "log.db")
    yield log
    await log.close()


def rows(path: Path, slot: int = 1) -> list[tuple[int, int, int, bytes]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"SELECT id, ts, n, data FROM chunk_{slot} ORDER BY id").fetchall()


def blocks(path: Path) -> list[tuple[int, int, int, bytes]]:
    return [row for row in rows(path) if is_block(row[3])]


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def all_of(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp_ms, r.key, r.headers, r.value) for r in records]


async def filled(log: EmbeddedLog, count: int = ENOUGH) -> str:
    """A topic with so many commits of one record, in blocks and chunks; its name."""
    for n in range(count):
        await log.append([counted(n, f"k{n % 7}")])
    return log.topology.events("demo")


async def packed(tmp_path: Path, count: int = ENOUGH, **options: Any) -> tuple[EmbeddedLog, str, list[Any]]:
    """A log that was closed and opened again, with blocks; its topic, and what was read before."""
    first = await opened(tmp_path / "log.db", **options)
    topic = await filled(first, count)
    before = all_of(await stored(first, topic))
    await first.close()
    assert blocks(tmp_path / "log.db")
    return await opened(tmp_path / "log.db", **options), topic, before


async def test_a_log_that_is_closed_has_blocks_and_the_same_records(tmp_path: Path) -> None:
    log, topic, before = await packed(tmp_path)
    assert all_of(await stored(log, topic)) == before
    assert version(tmp_path / "log.db") == 3
    assert not is_block(rows(tmp_path / "log.db")[-1][3])
    assert sum(n for _, _, n, _ in rows(tmp_path / "log.db")) == ENOUGH
    await log.append([counted(ENOUGH, "k")])
    assert numbers(await stored(log, topic)) == list(range(ENOUGH + 1))
    await log.close()


async def test_blocks_are_made_while_the_log_is_open(log: EmbeddedLog, tmp_path: Path) -> None:
    topic = await filled(log, 2 * ENOUGH)
    before = all_of(await stored(log, topic))
    await eventually(lambda: blocks(tmp_path / "log.db"))
    assert all_of(await stored(log, topic)) == before
    assert len(rows(tmp_path / "log.db")) < 2 * ENOUGH


async def test_a_small_log_stays_as_releases_without_blocks_know_it(tmp_path: Path) -> None:
    log = await opened(tmp_path / "log.db")
    await filled(log, 5)
    await log.close()
    assert (len(rows(tmp_path / "log.db")), version(tmp_path / "log.db")) == (5, 2)


async def test_every_offset_can_be_read_first(tmp_path: Path) -> None:
    log, topic, before = await packed(tmp_path)
    for offset in range(0, ENOUGH, 7):
        assert all_of([r async for r in log.read(topic, {0: offset}, until={0: ENOUGH})]) == before[offset:]
    await log.close()


async def test_a_filter_finds_the_same_in_blocks(tmp_path: Path) -> None:
    log = await opened(tmp_path / "log.db")
    for n in range(ENOUGH):
        event = sold(n, "k") if n % 10 == 0 else counted(n, "k")
        await log.append([event], topic=log.topology.events("demo"))
    topic = log.topology.events("demo")
    kind = sold(0, "k").event_type
    before = all_of([r async for r in log.read(topic, {}, until=await log.end(topic), types=[kind])])
    await log.close()
    log = await opened(tmp_path / "log.db")
    found = all_of([r async for r in log.read(topic, {}, until=await log.end(topic), types=[kind])])
    assert found == before
    assert len(found) == ENOUGH // 10
    await log.close()


async def test_truncation_cuts_a_block_at_any_record(tmp_path: Path) -> None:
    log, topic, before = await packed(tmp_path)
    for offset in (1, 2, 40, ENOUGH - 3, ENOUGH):
        await log.truncate(topic, {0: offset})
        assert all_of(await stored(log, topic)) == before[offset:]
        assert await log.beginning(topic) == {0: offset}
        with pytest.raises(LogTruncatedError):
            [r async for r in log.read(topic, {0: offset - 1}, until={0: ENOUGH})]
    await log.append([counted(7, "k")])
    assert [r.offset for r in await stored(log, topic)] == [ENOUGH]
    await log.close()


async def test_retention_removes_what_is_too_old_out_of_a_block(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = await opened(tmp_path / "log.db", clock=clock)
    topic = log.topology.events("demo")
    await log.ensure_topics([TopicSpec(topic, TopicKind.EVENTS, 1, retention_ms=1000 * ENOUGH)])
    for n in range(ENOUGH):
        await log.append([counted(n, "k", clock=clock)])
        clock.advance(1.0)
    await log.close()
    assert blocks(tmp_path / "log.db")[0][2] > 50
    clock.advance(40.0)
    log = await opened(tmp_path / "log.db", clock=clock)
    left = await stored(log, topic)
    assert [r.offset for r in left] == list(range(left[0].offset, ENOUGH))
    assert left[0].offset == 40
    await log.close()


async def test_what_a_process_believes_of_the_end_is_refused_although_its_chunk_is_in_a_block(
    tmp_path: Path,
) -> None:
    behind = await opened(tmp_path / "log.db")
    topic = await filled(behind, 3)
    ahead = await opened(tmp_path / "log.db")
    for n in range(3, ENOUGH):
        await ahead.append([counted(n, "k")])
    await ahead.close()
    assert blocks(tmp_path / "log.db")
    [position] = await behind.append([counted(ENOUGH, "k")])
    assert position.offset == ENOUGH
    assert numbers(await stored(behind, topic)) == list(range(ENOUGH + 1))
    await behind.close()


async def test_a_reader_that_is_behind_goes_on_after_a_block_was_made(tmp_path: Path) -> None:
    writer = await opened(tmp_path / "log.db")
    topic = await filled(writer)
    reader = await opened(tmp_path / "log.db")
    seen = []
    async for record in reader.read(topic, {}, until={0: ENOUGH}):
        seen.append(record)
        if len(seen) == 5:
            await writer.close()
    assert numbers(seen) == list(range(ENOUGH))
    await reader.close()


async def test_commits_keep_their_headers_in_a_block(log: EmbeddedLog, tmp_path: Path) -> None:
    topic = log.topology.journal("demo")
    writer = await log.writer("w")
    for n in range(ENOUGH // 2):
        await writer.commit([Outgoing(counted(2 * n + m, "k"), topic, 0, "k") for m in range(2)])
    before = all_of(await stored(log, topic))
    assert before[3][3][-1][0] == "noesium_commit"
    store = log.store
    assert isinstance(store, SqliteStore)
    store._packer.close()
    assert blocks(tmp_path / "log.db")
    assert all_of(await stored(log, topic)) == before


async def test_a_block_that_another_process_holds_up_is_made_later(tmp_path: Path) -> None:
    log = await opened(tmp_path / "log.db")
    topic = await filled(log, 60)
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    await log.close()
    assert blocks(tmp_path / "log.db") == []
    other.execute("COMMIT")
    other.close()
    log = await opened(tmp_path / "log.db")
    await log.append([counted(60, "k")])
    await log.close()  # it looks at what the first one left
    assert blocks(tmp_path / "log.db")
    log = await opened(tmp_path / "log.db")
    assert numbers(await stored(log, topic)) == list(range(61))
    await log.close()


async def test_what_hardly_shrinks_stays_in_chunks_and_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_WORTH", 0.01)
    log = await opened(tmp_path / "log.db")
    await filled(log, 60)
    await log.close()
    path = tmp_path / "log.db"
    assert blocks(path) == []
    assert len(rows(path)) == 60
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT next FROM packed").fetchone()[0] == 59


async def test_a_damaged_chunk_is_left_for_its_reader_to_report(tmp_path: Path) -> None:
    log = await opened(tmp_path / "log.db")
    topic = await filled(log, 60)
    store = log.store
    assert isinstance(store, SqliteStore)
    data = rows(tmp_path / "log.db")[9][3]
    store.connection.execute("UPDATE chunk_1 SET data = ? WHERE id = 9", (with_changed_byte(data, -1),))
    await log.close()
    assert blocks(tmp_path / "log.db") == []
    log = await opened(tmp_path / "log.db")
    with pytest.raises(LogCorruptError, match="at 9 are damaged"):
        await stored(log, topic)
    await log.close()


async def test_a_damaged_block_is_one_clear_error_wherever_it_is_met(tmp_path: Path) -> None:
    log, topic, _ = await packed(tmp_path)
    await log.close()
    start, _, _, data = blocks(tmp_path / "log.db")[0]
    with closing(sqlite3.connect(tmp_path / "log.db", isolation_level=None)) as db:
        db.execute("UPDATE chunk_1 SET data = ? WHERE id = ?", (with_changed_byte(data, -9), start))
    log = await opened(tmp_path / "log.db")
    with pytest.raises(LogCorruptError, match=f"{topic}/0 at {start} are damaged"):
        await stored(log, topic)
    with pytest.raises(LogCorruptError, match="damaged"):
        await log.truncate(topic, {0: start + 1})
    with pytest.raises(LogCorruptError, match="damaged"):
        list(contents_of_blocks(tmp_path / "log.db"))
    await log.close()


async def test_a_block_whose_row_counts_other_records_is_damaged(tmp_path: Path) -> None:
    log, topic, _ = await packed(tmp_path)
    await log.close()
    with closing(sqlite3.connect(tmp_path / "log.db", isolation_level=None)) as db:
        db.execute("UPDATE chunk_1 SET n = n - 1 WHERE id = 0")
    log = await opened(tmp_path / "log.db")
    with pytest.raises(LogCorruptError, match="damaged"):
        await stored(log, topic)
    await log.close()


async def test_large_chunks_become_blocks_of_their_own(tmp_path: Path) -> None:
    log = await opened(tmp_path / "log.db")
    topic = log.topology.events("demo")
    for batch in range(3):
        await log.append([counted(200 * batch + n, "k") for n in range(200)])
    before = all_of(await stored(log, topic))
    await log.close()
    assert [is_block(row[3]) for row in rows(tmp_path / "log.db")] == [True, True, False]
    log = await opened(tmp_path / "log.db")
    assert all_of(await stored(log, topic)) == before
    await log.close()


async def test_a_chunk_that_is_too_large_for_a_block_stays(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(packing, "LARGEST_CHUNK", 1000)
    log = await opened(tmp_path / "log.db")
    for n in range(60):
        await log.append([counted(n, "k")])
    await log.append([counted(n, "k") for n in range(60, 70)])
    for n in range(70, 130):
        await log.append([counted(n, "k")])
    topic = log.topology.events("demo")
    before = all_of(await stored(log, topic))
    await log.close()
    assert [(row[0], is_block(row[3])) for row in rows(tmp_path / "log.db")][:3] == [
        (0, True), (60, False), (70, True)
    ]  # fmt: skip
    log = await opened(tmp_path / "log.db")
    assert all_of(await stored(log, topic)) == before
    await log.close()


def old_chunk(key: bytes, text: bytes, value: bytes) -> bytes:
    """A chunk of one record as the releases before blocks wrote it."""
    body = struct.pack("<HIII", 0, 0, 1, 1) + struct.pack("<IIII", len(key), len(text), 0, len(value))
    body += key + text + value
    return struct.pack("<I", crc32(body)) + body


OLD_SCHEMA = """
CREATE TABLE topic(
    name TEXT PRIMARY KEY, partitions INTEGER NOT NULL, retention_ms INTEGER, uid TEXT NOT NULL,
    slot INTEGER NOT NULL UNIQUE
) WITHOUT ROWID;
CREATE TABLE writer(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, epoch INTEGER NOT NULL);
CREATE TABLE grp(name TEXT PRIMARY KEY, generation INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE grp_member(
    grp TEXT NOT NULL, member TEXT NOT NULL, topics TEXT NOT NULL, lease_ms INTEGER NOT NULL,
    PRIMARY KEY(grp, member)
) WITHOUT ROWID;
CREATE TABLE grp_partition(
    grp TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, owner TEXT,
    epoch INTEGER NOT NULL DEFAULT 0, next_offset INTEGER, PRIMARY KEY(grp, topic, partition)
) WITHOUT ROWID;
CREATE TABLE chunk_1(id INTEGER PRIMARY KEY, ts INTEGER NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TRIGGER chunk_1_at_end BEFORE INSERT ON chunk_1 WHEN EXISTS(SELECT 1 FROM chunk_1 WHERE id > NEW.id)
BEGIN SELECT RAISE(ABORT, 'not at the end of the partition'); END;
INSERT INTO topic VALUES('noesium.events.demo', 1, NULL, '0123456789abcdef', 1);
PRAGMA application_id=1852794227;
PRAGMA user_version=2;
"""


async def test_a_file_of_a_release_before_blocks_is_read_appended_to_and_packed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    source = await opened(tmp_path / "other.db")
    topic = await filled(source, 100)
    written = await stored(source, topic)
    await source.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(OLD_SCHEMA)
        for record in written:
            headers = dict(record.headers)
            text = b"\n".join(
                headers[name] for name in ("ce_type", "ce_id", "ce_source", "ce_time", "traceparent")
            )
            chunk = old_chunk(record.key.encode(), text, record.value)
            row = (record.offset, record.timestamp_ms, 1, chunk)
            db.execute("INSERT INTO chunk_1(id, ts, n, data) VALUES(?, ?, ?, ?)", row)
    log = await opened(path)
    assert all_of(await stored(log, topic)) == all_of(written)
    assert (version(path), blocks(path)) == (2, [])
    await log.append([counted(100, "k")])
    await log.close()
    assert version(path) == 3
    assert blocks(path)
    log = await opened(path)
    found = await stored(log, topic)
    assert all_of(found)[:100] == all_of(written)
    assert numbers(found) == list(range(101))
    await log.close()


async def test_what_is_truncated_is_gone_from_the_pages_of_the_file(tmp_path: Path) -> None:
    log, topic, _ = await packed(tmp_path)
    data = blocks(tmp_path / "log.db")[0][3]
    piece = data[600:680]
    await log.truncate(topic, {0: ENOUGH})
    await log.close()
    assert piece not in (tmp_path / "log.db").read_bytes()
    assert not (tmp_path / "log.db-wal").exists()
