"""Rows of a state file: what its writer need not read again."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from noesium_stream.projection.state.manifest import Identity
from noesium_stream.projection.state.state_file import StateFile

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


def test_rows_that_are_new_beside_each_other_are_put_once(tmp_path: Path) -> None:
    file = StateFile.open(tmp_path / "a.state", IDENTITY)
    write(file, {b"sc": b"1", b"sm": b"1"})
    done: list[str] = []
    file._db.set_trace_callback(done.append)
    write(file, {b"sd": b"2", b"se": b"3", b"sf": b"4", b"sn": b"5", b"so": b"6"})
    puts = sum(text.startswith("INSERT") for text in done)
    looked = sum("DESC" in text for text in done)
    assert (puts, looked) == (7, 2)  # five, and the two that lead to them
    file.verify()
    file.close()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_written_together_each_row_leads_to_the_next(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    keys = [b"s%02d" % number for number in range(40)]
    known: dict[bytes, bytes] = {}
    file = StateFile.open(tmp_path / "a.state", IDENTITY)
    for number in range(30):
        changes = {
            key: None if rng.random() < 0.4 else b"%d" % number
            for key in rng.sample(keys, rng.randrange(1, 20))
        }
        write(file, changes)
        for key, value in changes.items():
            if value is None:
                known.pop(key, None)
            else:
                known[key] = value
        if rng.random() < 0.2:
            file.close()
            file = StateFile.open(tmp_path / "a.state", IDENTITY)
        assert list(file.scan(b"s")) == sorted(known.items())
        assert [file.get(key) for key in keys] == [known.get(key) for key in keys]
    file.close()
