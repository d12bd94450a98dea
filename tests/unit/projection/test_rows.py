"""Rows of a state file: what its writer need not read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from noesium_stream.projection.manifest import Identity
from noesium_stream.projection.state_file import StateFile

IDENTITY = Identity("p", 1, "shape", "t", "id", 0)


def write(file: StateFile, rows: dict[bytes, bytes | None]) -> None:
    file.commit(rows, replace(file.manifest, cursor=file.manifest.cursor + 1))


def test_a_file_that_has_no_rows_is_asked_once_until_it_has_one(tmp_path: Path) -> None:
    file = StateFile.open(tmp_path / "a.state", IDENTITY)
    asked: list[str] = []
    file._db.set_trace_callback(asked.append)
    assert file.get(b"sa") is None
    assert asked
    asked.clear()
    assert [file.get(key) for key in (b"sa", b"sb", b"sc")] == [None, None, None]
    assert asked == []
    write(file, {b"sb": b"1"})
    assert [file.get(key) for key in (b"sa", b"sb", b"sc")] == [None, b"1", None]
    write(file, {b"sb": None})
    assert [file.get(key) for key in (b"sa", b"sb", b"sc")] == [None, None, None]
    write(file, {b"sc": b"2", b"sa": b"3"})
    assert [file.get(key) for key in (b"sa", b"sb", b"sc")] == [b"3", None, b"2"]
    file.verify()
    file.close()


def test_a_reader_sees_the_first_row_of_a_file_that_had_none(tmp_path: Path) -> None:
    file = StateFile.open(tmp_path / "a.state", IDENTITY)
    reader = StateFile.open_to_read(tmp_path / "a.state")
    assert reader.get(b"sa") is None
    write(file, {b"sa": b"1"})
    reader.refresh()
    assert reader.get(b"sa") == b"1"
    reader.close()
    file.close()
