"""Who has lost a partition and does not know it keeps its state file; who has it now takes another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noesium_stream.errors import StateBusyError
from noesium_stream.state_file.claim import MOST, claimed, places


def write(path: Path, text: str, at_s: int) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, (at_s, at_s))


def test_a_file_that_another_one_has_is_left_to_it_and_removed_once_it_has_let_go(tmp_path: Path) -> None:
    path = tmp_path / "0.db"
    first, paused = claimed(path)
    write(first, "old", 1)
    second, lock = claimed(path)
    assert (first.name, second.name) == ("0.db", "0~2.db")
    write(second, "new", 2)
    assert first.read_text() == "old"
    lock.close()

    third, lock = claimed(path)
    assert third == second, "what the last owner wrote is found again"
    assert first.exists(), "it is not known yet that its owner has lost it"
    lock.close()
    paused.close()
    fourth, lock = claimed(path)
    assert fourth.read_text() == "new"
    assert not first.exists()
    lock.close()


def test_what_was_written_last_is_taken_also_where_that_is_in_the_log_beside_the_file(tmp_path: Path) -> None:
    path, other = places(tmp_path / "0.db")[:2]
    write(path, "main", 2)
    write(other, "beside", 1)
    write(Path(f"{other}-wal"), "newest", 3)
    found, lock = claimed(path)
    assert found == other
    assert not path.exists()
    lock.close()


def test_where_all_files_are_taken_it_says_whom_to_look_for(tmp_path: Path) -> None:
    path = tmp_path / "0.db"
    locks = []
    for place in places(path):
        found, lock = claimed(path)
        assert found == place
        locks.append(lock)
    with pytest.raises(StateBusyError, match=rf"{MOST - 1} files beside it") as raised:
        claimed(path)
    assert "stand still" in str(raised.value.hint)
    for lock in locks:
        lock.close()
