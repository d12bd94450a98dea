"""State files: what is read is what was written, or the file says that it is not to be trusted."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ProjectionError, StateBusyError, StateFileError
from noesium_stream.projection.state import state_file
from noesium_stream.projection.state.manifest import Identity, Manifest
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.state_file.claim import discard
from noesium_stream.state_file.sqlite import connect_to_read

IDENTITY = Identity("orders", 1, "shape", "t.events.demo", "topic-1", 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "some ?#%41.state"


def opened(path: Path, **changes: Any) -> StateFile:
    return StateFile.open(path, replace(IDENTITY, **changes))


def commit(file: StateFile, cursor: int = 1, **rows: bytes | None) -> None:
    file.commit({key.encode(): value for key, value in rows.items()}, replace(file.manifest, cursor=cursor))


def filled(path: Path, **rows: bytes | None) -> Path:
    file = opened(path)
    commit(file, **(rows or {"a": b"1", "b": b"2", "d": b"4"}))
    file.close()
    return path


def edit(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


def test_a_new_file_is_empty_and_says_what_it_is_of(path: Path) -> None:
    file = opened(path)
    assert file.manifest == Manifest(IDENTITY)
    assert file.get(b"a") is None
    assert list(file.scan(b"")) == []
    file.close()
    file.close()


def test_rows_and_manifest_are_there_again(path: Path) -> None:
    file = opened(path)
    file.commit({b"a": b"1", b"b": b""}, Manifest(IDENTITY, cursor=7, events=5, last_event_id="e", last_ms=9))
    file.close()
    file = opened(path)
    assert file.manifest == Manifest(IDENTITY, 7, 5, "e", last_ms=9, commits=1, stamp=7 << 20)
    assert [file.get(key) for key in (b"a", b"b", b"c")] == [b"1", b"", None]
    file.close()


def test_rows_are_changed_and_removed(path: Path) -> None:
    file = opened(path)
    commit(file, 1, a=b"1", b=b"2", c=b"3", d=b"4")
    commit(file, 2, b=b"22", c=None, x=None, e=b"5")
    assert dict(file.scan(b"")) == {b"a": b"1", b"b": b"22", b"d": b"4", b"e": b"5"}
    commit(file, 3, a=None, e=None)
    assert list(file.scan(b"")) == [(b"b", b"22"), (b"d", b"4")]
    commit(file, 4, b=None, d=None)
    assert list(file.scan(b"")) == []
    commit(file, 5, c=b"9")
    assert (file.get(b"c"), file.get(b"b")) == (b"9", None)
    file.close()


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 700])
def test_a_scan_gives_all_rows_of_a_prefix_in_order(path: Path, count: int) -> None:
    file = opened(path)
    keys = sorted(b"k%d" % n for n in range(count))
    file.commit({**dict.fromkeys(keys, b"v"), b"a": b"", b"kz": b"", b"l": b""}, file.manifest)
    assert [key for key, _ in file.scan(b"k")] == [*keys, b"kz"]
    assert [key for key, _ in file.scan(b"")] == [b"a", *keys, b"kz", b"l"]
    assert [key for key, _ in file.scan(b"kz")] == [b"kz"]
    for prefix in (b"b", b"kza", b"z", b"\xff\xff"):
        assert list(file.scan(prefix)) == []
    file.close()


def test_large_rows_are_scanned_a_few_at_a_time(path: Path) -> None:
    file = opened(path)
    file.commit({b"k%d" % n: b"x" * 3_000_000 for n in range(5)}, file.manifest)
    assert len(file._rows._some(b"k", b"k")[0]) == 2
    assert [len(value) for _, value in file.scan(b"k")] == [3_000_000] * 5
    file.close()


def test_a_file_may_be_written_during_a_scan(path: Path) -> None:
    file = opened(path)
    file.commit({b"k%03d" % n: b"1" for n in range(400)}, file.manifest)
    rows = file.scan(b"k")
    first = next(rows)
    file.commit({b"k000a": b"2", b"k001": None, b"k255a": b"2", b"k399": None, b"l": b"2"}, file.manifest)
    found = [first, *rows]
    assert len(found) == 400
    assert (b"k255a", b"2") in found
    file.close()


def test_a_reader_sees_the_last_commit_and_moves_on_when_told(path: Path) -> None:
    writer = opened(path)
    commit(writer, 1, a=b"1")
    reader = StateFile.open_to_read(path)
    commit(writer, 2, a=b"2", b=b"2")
    assert (reader.get(b"a"), reader.get(b"b"), reader.manifest.cursor) == (b"1", None, 1)
    reader.refresh()
    assert (reader.get(b"a"), reader.get(b"b"), reader.manifest.cursor) == (b"2", b"2", 2)
    with pytest.raises(ProjectionError):
        commit(reader, 3, a=b"3")
    reader.close()
    writer.close()


def test_a_reader_copies_what_another_one_writes_and_changes_nothing(path: Path, tmp_path: Path) -> None:
    writer = opened(path)
    commit(writer, 1, a=b"1")
    reader = StateFile.open_to_read(path)
    commit(writer, 2, a=b"2")
    reader.copy_to(tmp_path / "copy.state")
    assert (reader.get(b"a"), reader.manifest.cursor) == (b"2", 2)
    with closing(StateFile.open_to_read(tmp_path / "copy.state")) as copy:
        assert (copy.get(b"a"), copy.manifest) == (b"2", writer.manifest)
    with pytest.raises(StateFileError, match="readonly"):
        reader.commit({b"a": b"3"}, reader.manifest)
    reader.close()
    writer.close()


def test_a_copy_is_whole(path: Path, tmp_path: Path) -> None:
    file = opened(path)
    commit(file, 1, a=b"1", b=b"2")
    copy = tmp_path / "copy.state"
    file.copy_to(copy)
    commit(file, 2, a=b"3")
    file.close()
    again = opened(copy)
    assert (dict(again.scan(b"")), again.manifest.cursor) == ({b"a": b"1", b"b": b"2"}, 1)
    again.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"projection": "invoices"}, r"is of the projection orders\."),
        ({"version": 2}, r"is of version 1\."),
        ({"shape": "other"}, r"its states are of another type \(shape\)\."),
        ({"topic": "t.events.shop"}, r"is of the topic t.events.demo\."),
        ({"topic_id": "topic-2"}, r"the topic was deleted and made anew \(its id was topic-1\)\."),
        ({"partition": 4}, r"is of partition 3\."),
    ],
)
def test_a_file_of_something_else_is_told_apart(path: Path, changes: dict[str, Any], said: str) -> None:
    filled(path)
    with pytest.raises(StateFileError, match=rf"%41.state: .*{said}"):
        opened(path, **changes)
    told: list[str] = []
    file = StateFile.open(path, replace(IDENTITY, **changes), instead=lambda error: told.append(str(error)))
    assert (len(told), file.manifest.cursor, list(file.scan(b""))) == (1, 0, [])
    file.close()


def test_a_file_of_another_program_is_told_apart(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"name,amount\n" * 1000)
    with pytest.raises(StateFileError, match="SQLite cannot read it"):
        opened(path)
    with pytest.raises(StateFileError, match="SQLite cannot read it"):
        StateFile.open_to_read(path)
    path.unlink()
    edit(path, "CREATE TABLE row (key)")
    with pytest.raises(StateFileError, match="is no state file of a projection"):
        opened(path)
    with pytest.raises(StateFileError, match="is no state file"):
        StateFile.open_to_read(path)


def test_a_file_that_was_not_finished_is_none(path: Path) -> None:
    path.parent.mkdir()
    edit(path, "PRAGMA application_id = 1852140659", "PRAGMA journal_mode = WAL")
    with pytest.raises(StateFileError, match="is no state file of a projection"):
        opened(path)
    path.write_bytes(b"")
    opened(path).close()


def test_a_file_that_has_lost_its_wal_is_reported_and_not_taken_for_a_new_one(path: Path) -> None:
    file = opened(path)
    wal = path.with_name(f"{path.name}-wal")
    copy, lost = path.read_bytes(), wal.read_bytes()
    file.close()
    assert lost, "all that was written is in the WAL"
    path.write_bytes(copy)
    wal.unlink(missing_ok=True)
    with pytest.raises(StateFileError, match="is no state file of a projection"):
        opened(path)


def test_a_file_that_is_not_there_cannot_be_read(path: Path) -> None:
    with pytest.raises(StateFileError, match="there is no such file"):
        StateFile.open_to_read(path)
    assert not path.exists()


@pytest.mark.parametrize("readable", [True, False])
def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    filled(path, a=b"old")
    new = filled(path.with_name("new.state"), a=b"new")

    def replaced(path: Path) -> sqlite3.Connection:
        monkeypatch.undo()
        db = connect_to_read(path)
        discard(path)
        new.replace(path)
        if readable:
            return db
        db.close()
        raise StateFileError("the log beside it is that of the new one.")

    monkeypatch.setattr(state_file, "connect_to_read", replaced)
    with closing(StateFile.open_to_read(path)) as file:
        assert file.get(b"a") == b"new"


def test_another_format_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    monkeypatch.setattr(StateFile, "LAYOUT", replace(StateFile.LAYOUT, format=2))
    with pytest.raises(StateFileError, match="has the format 1, not 2"):
        opened(path)


def test_one_writer_at_a_time(path: Path) -> None:
    file = opened(path)
    with pytest.raises(StateBusyError, match="being written by another process"):
        opened(path)
    file.close()
    opened(path).close()


def test_another_process_that_writes_it_is_noticed(path: Path) -> None:
    filled(path)
    code = (
        "import sys, pathlib\n"
        "from tests.unit.projection.state.test_state_file import opened\n"
        "file = opened(pathlib.Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    with pytest.raises(StateBusyError):
        opened(path)
    process.kill()
    process.communicate()
    opened(path).close()


def test_a_database_that_another_program_locks_is_no_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **options, timeout=0.01))
    file = opened(path)
    other = connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateBusyError, match="is locked by another program"):
        commit(file, 1, a=b"1")
    other.execute("ROLLBACK")
    other.close()
    commit(file, 1, a=b"1")
    assert file.get(b"a") == b"1"
    file.close()


def test_a_closed_file_is_no_damage(path: Path) -> None:
    file = opened(path)
    file.close()
    with pytest.raises(ProjectionError, match="is used after it was closed") as raised:
        file.get(b"a")
    assert not isinstance(raised.value, StateFileError)


def test_a_discarded_file_is_gone_with_what_lies_beside_it(path: Path) -> None:
    file = opened(path)
    commit(file, 1, a=b"1")
    file.discard()
    assert [found.name for found in path.parent.iterdir()] == [f"{path.name}.lock"]
    discard(path)
    opened(path).close()


def test_a_commit_is_all_or_nothing(path: Path) -> None:
    file = opened(path)
    commit(file, 1, a=b"1")
    with pytest.raises(TypeError):
        file.commit({b"a": b"2", b"b": "no bytes"}, replace(file.manifest, cursor=2))  # type: ignore[dict-item]
    assert (dict(file.scan(b"")), file.manifest.cursor) == ({b"a": b"1"}, 1)
    commit(file, 2, b=b"2")
    assert dict(file.scan(b"")) == {b"a": b"1", b"b": b"2"}
    file.close()


DAMAGES: dict[str, tuple[str, bytes]] = {
    "a changed value": ("UPDATE row SET value = x'39' WHERE key = x'62'", b"b"),
    "a changed key": ("UPDATE row SET key = x'63' WHERE key = x'62'", b"c"),
    "a changed checksum": ("UPDATE row SET sum = zeroblob(8) WHERE key = x'62'", b"b"),
    "another type of value": ("UPDATE row SET value = '2' WHERE key = x'62'", b"b"),
    "another type of stamp": ("UPDATE row SET written = 'x' WHERE key = x'62'", b"b"),
    "an infinite stamp": ("UPDATE row SET written = 9e999 WHERE key = x'62'", b"b"),
    "a row that is gone": ("DELETE FROM row WHERE key = x'62'", b"b"),
    "the row before it is gone": ("DELETE FROM row WHERE key = x'61'", b"aa"),
    "the last row is gone": ("DELETE FROM row WHERE key = x'64'", b"d"),
    "the last row is gone, behind it": ("DELETE FROM row WHERE key = x'64'", b"e"),
    "the first row is gone": ("DELETE FROM row WHERE key = x''", b"0"),
    "all rows are gone": ("DELETE FROM row", b"b"),
    "a row too many": ("INSERT INTO row VALUES (x'63', x'', x'', 0, zeroblob(8))", b"c"),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("read", ["get", "scan", "commit", "remove"])
def test_damage_is_found_where_it_matters(path: Path, name: str, read: str) -> None:
    statement, key = DAMAGES[name]
    edit(filled(path), statement)
    file = opened(path)
    reads: dict[str, Callable[[], Any]] = {
        "get": lambda: file.get(key),
        "scan": lambda: dict(file.scan(b"")),
        "commit": lambda: file.commit({key: b"new"}, file.manifest),
        "remove": lambda: file.commit({key: None}, file.manifest),
    }
    with pytest.raises(StateFileError, match=r"(damaged|missing|lead)"):
        reads[read]()
    assert file.manifest.commits == 1
    file.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE manifest SET body = x'7b7d'",
        "UPDATE manifest SET body = 'x'",
        "UPDATE manifest SET sum = x''",
        "DELETE FROM manifest",
        "UPDATE manifest SET id = 2",
    ],
)
def test_a_damaged_manifest_is_found_at_once(path: Path, statement: str) -> None:
    edit(filled(path), statement)
    with pytest.raises(StateFileError, match="its manifest is damaged"):
        opened(path)


def test_rows_of_a_lost_commit_are_found_before_they_see_an_event_twice(path: Path) -> None:
    file = opened(path)
    commit(file, 10, a=b"1")
    file.close()
    db = sqlite3.connect(path, isolation_level=None)
    manifest = db.execute("SELECT body, sum FROM manifest").fetchone()
    file = opened(path)
    commit(file, 20, a=b"2", b=b"2")
    file.close()
    db.execute("UPDATE manifest SET body = ?, sum = ?", manifest)
    db.close()
    file = opened(path)
    for cursor in range(11, 21):  # smaller commits than the lost one, and more of them
        for key in (b"a", b"b", b"c"):
            with pytest.raises(StateFileError, match="is newer than the manifest"):
                file.get(key)
        if cursor < 20:
            file.commit({}, replace(file.manifest, cursor=cursor))
    file.close()


def test_stamps_grow_also_where_the_cursor_stands(path: Path) -> None:
    file = opened(path)
    stamps = []
    for cursor in (0, 0, 5, 5, 5, 6):
        commit(file, cursor, a=b"%d" % cursor)
        stamps.append(file.manifest.stamp)
    assert stamps == sorted(set(stamps))
    assert stamps[2] == 5 << 20
    file.close()


class Disk:
    """A small file system of its own where this process may mount one, else a limit on the database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.real = self._mount("size=300k,nr_inodes=16")

    def limit(self, file: StateFile, pages: int = 70) -> None:
        if not self.real:
            file._db.execute(f"PRAGMA max_page_count = {pages}")

    def grow(self, file: StateFile) -> None:
        if self.real:
            assert self._mount("remount,size=30m")
        self.limit(file, 1 << 30)

    def _mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def remove(self) -> None:
        if self.real:
            subprocess.run(["umount", str(self.folder)], capture_output=True, check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = Disk(folder)
    yield disk
    disk.remove()


def test_a_full_disk_is_no_damage_and_no_end(disk: Disk) -> None:
    path = disk.folder / "a.state"
    file = opened(path)
    disk.limit(file)
    written = 0

    def fill() -> None:
        nonlocal written
        for written in range(1000):
            commit(file, written, **{f"k{written}": b"x" * 3000})

    with pytest.raises(ProjectionError, match="cannot be written") as raised:
        fill()
    assert not isinstance(raised.value, StateFileError)
    assert "Make room" in str(raised.value)
    assert len(dict(file.scan(b"k"))) == written == file.manifest.commits
    disk.grow(file)
    commit(file, written, **{f"k{written}": b"x" * 3000})
    file.close()
    file = opened(path)
    assert len(dict(file.scan(b"k"))) == written + 1
    file.close()


def test_a_disk_without_room_for_a_file_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ProjectionError, match=r"cannot be written: .*No space left") as raised:
        opened(tmp_path / "x" / "a.state")
    assert not isinstance(raised.value, StateFileError)


AS_NOBODY = """
import os, sys, pathlib
from noesium_stream.errors import ProjectionError, StateFileError
from tests.unit.projection.state.test_state_file import opened
from noesium_stream.projection.state.state_file import StateFile
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
path = pathlib.Path(sys.argv[1])
try:
    opened(path)
except ProjectionError as error:
    print(type(error).__name__, error.message)
"""


@pytest.mark.parametrize("state", ["no file", "closed file", "read-only file"])
def test_a_folder_that_may_not_be_written_is_no_damage(tmp_path: Path, state: str) -> None:
    path = tmp_path / "folder" / "a.state"
    path.parent.mkdir()
    if state != "no file":
        filled(path)
    lock = Path(f"{path}.lock")
    lock.touch()
    lock.chmod(0o666)
    if path.exists():
        path.chmod(0o444 if state == "read-only file" else 0o666)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if os.access(folder, os.W_OK) and folder.owner() != "nobody" and str(folder) != "/tmp":
            folder.chmod(folder.stat().st_mode | 0o055)
    path.parent.chmod(0o555)
    run = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(path)], capture_output=True, text=True, check=True
    )
    path.parent.chmod(0o755)
    assert run.stdout.startswith("ProjectionError The state file")
    assert "cannot be written" in run.stdout


def test_what_a_writer_remembers_of_its_rows_is_bounded_and_right(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noesium_stream.projection.state.rows._REMEMBERED", 6)
    chance = random.Random(3)
    file = opened(path)
    model: dict[bytes, bytes] = {}
    for cursor in range(1, 400):
        keys = [b"k%d" % chance.randrange(12) for _ in range(4)]
        assert [file.get(key) for key in keys] == [model.get(key) for key in keys]
        assert len(file._rows._next) <= 6
        changes = {key: chance.choice([None, b"%d" % cursor]) for key in keys[:3]}
        file.commit(changes, replace(file.manifest, cursor=cursor))
        model = {k: v for k, v in {**model, **changes}.items() if v is not None}
        assert dict(file.scan(b"")) == model
    file.close()


@pytest.mark.parametrize("again", [False, True])
def test_from_its_making_on_a_file_is_written_in_an_order_that_survives_a_power_loss(
    path: Path, again: bool
) -> None:
    if again:
        opened(path).close()
    with closing(opened(path)) as file:
        normal = 1
        assert file._db.execute("PRAGMA synchronous").fetchone() == (normal,)
