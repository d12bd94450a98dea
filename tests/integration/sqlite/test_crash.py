"""What a crash, a torn file or a foreign one leaves of a SQLite log: whole commits, or a clear error."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from noesium_stream.errors import EventStoreError, LogCorruptError, LogUnavailableError
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.sqlite.file import PACKED_VERSION
from tests.support.events import catalogue, counted, outgoing
from tests.support.reading import numbers, stored

COMMITS = 5
WHOLE = [n for n in range(COMMITS) for _ in range(3)] + [n for n in range(COMMITS) for _ in range(2)]


async def opened(path: Path) -> EventLog:
    return await open_log(f"sqlite:///{path}", catalogue=catalogue())


async def written(path: Path) -> EventLog:
    """A log of five commits, each of three records in one partition and two in another."""
    log = await opened(path)
    journal = log.topology.journal("demo")
    await log.ensure_topics([log.topology.spec(journal)])
    writer = await log.writer("w")
    for n in range(COMMITS):
        await writer.commit(
            [*outgoing([counted(n)] * 3, journal, 0), *outgoing([counted(n)] * 2, journal, 1)]
        )
    return log


async def test_a_write_ahead_log_torn_at_any_byte_gives_whole_commits(tmp_path: Path) -> None:
    log = await written(tmp_path / "a.db")
    main, wal = (tmp_path / "a.db").read_bytes(), (tmp_path / "a.db-wal").read_bytes()
    await log.close()
    seen = []
    for cut in [*range(0, len(wal), 1499), len(wal)]:
        torn = tmp_path / f"torn-{cut}.db"
        torn.write_bytes(main)
        (tmp_path / f"torn-{cut}.db-wal").write_bytes(wal[:cut])
        again = await opened(torn)
        journal = again.topology.journal("demo")
        await again.ensure_topics([again.topology.spec(journal)])
        read = numbers(await stored(again, journal))
        commits = len(read) // 5
        assert read == [n for n in range(commits) for _ in range(3)] + [
            n for n in range(commits) for _ in range(2)
        ]
        writer = await again.writer("w")
        await writer.commit(outgoing([counted(99)], journal, 2))
        assert numbers(await stored(again, journal))[-1] == 99
        await again.close()
        seen.append(commits)
    assert seen == sorted(seen)
    assert set(seen) == set(range(COMMITS + 1))


@pytest.mark.parametrize("seed", range(3))
async def test_a_damaged_file_gives_all_that_was_written_or_an_error_never_less(
    tmp_path: Path, seed: int
) -> None:
    await (await written(tmp_path / "a.db")).close()
    good = (tmp_path / "a.db").read_bytes()
    chance = random.Random(seed)
    errors = 0
    for attempt in range(60):
        path = tmp_path / f"{attempt}.db"
        path.write_bytes(_damaged(good, chance, attempt % 3))
        try:
            log = await opened(path)
        except LogCorruptError:
            errors += 1
            continue
        try:
            assert numbers(await stored(log, log.topology.journal("demo"))) == WHOLE, (
                f"seed {seed}, {attempt}"
            )
        except EventStoreError:
            errors += 1
        finally:
            await log.close()
    assert errors > 20


def _damaged(good: bytes, chance: random.Random, kind: int) -> bytes:
    data = bytearray(good)
    if kind == 0:
        return bytes(data[: chance.randrange(1, len(data))])
    if kind == 1:
        for _ in range(8):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        page = chance.randrange(len(data) // 4096) * 4096
        data[page : page + 4096] = bytes(4096)
    return bytes(data)


async def test_a_flipped_bit_in_a_chunk_is_found_by_its_checksum_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    log = await opened(path)
    topic = log.topology.events("demo")
    await log.append([counted(1, "k", text="a text to be damaged")])
    await log.close()
    damaged = path.read_bytes().replace(b"a text to be damaged", b"a text to be DAMAGED")
    path.write_bytes(damaged)
    again = await opened(path)
    with pytest.raises(LogCorruptError, match=r"noesium\.events\.demo/\d at 0"):
        await stored(again, topic)
    await again.close()


async def test_an_empty_file_and_a_missing_one_are_new_logs(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for name in ("empty.db", "folder/of/missing.db"):
        log = await opened(tmp_path / name)
        await log.append([counted(1, "k")])
        await log.close()
        again = await opened(tmp_path / name)
        assert numbers(await stored(again, again.topology.events("demo"))) == [1]
        await again.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no database at all, but long enough to be one. " * 100, "not a database"),
        (b"short", "5 bytes"),
        (b"SQLite format 3\0" + bytes(600), "not a database|malformed|disk image"),
    ],
)
async def test_a_file_that_is_no_database_is_told_apart(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(content)
    with pytest.raises(LogCorruptError, match=reason):
        await opened(path)
    assert path.read_bytes() == content


async def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs(x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(LogCorruptError, match="another program"):
        await opened(path)
    assert path.read_bytes() == before


async def test_a_log_of_a_newer_version_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await (await written(path)).close()
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version={PACKED_VERSION + 1}")
    newer.close()
    with pytest.raises(LogCorruptError, match=f"version {PACKED_VERSION + 1}"):
        await opened(path)


async def test_commits_without_their_main_file_are_not_thrown_away(tmp_path: Path) -> None:
    log = await written(tmp_path / "a.db")
    shutil.copy(tmp_path / "a.db-wal", tmp_path / "b.db-wal")
    await log.close()
    kept = (tmp_path / "b.db-wal").read_bytes()
    with pytest.raises(LogCorruptError, match="-wal"):
        await opened(tmp_path / "b.db")
    assert (tmp_path / "b.db-wal").read_bytes() == kept


async def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogUnavailableError, match="file"):
        await opened(tmp_path / "file" / "log.db")
    with pytest.raises(LogUnavailableError, match="is a folder"):
        await opened(tmp_path)
    with pytest.raises(LogUnavailableError, match="/proc"):
        await opened(Path("/proc/nowhere/log.db"))
