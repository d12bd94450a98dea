"""Files of a projection's folder, written by several processes at once."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from noesium_stream.projection.stored import ABOUT, describe
from noesium_stream.projection.whole_file import write_whole, written_whole
from tests.support.attach import Numbers


def test_two_writers_of_one_file_do_not_take_each_others_away(tmp_path: Path) -> None:
    path = tmp_path / "current"
    with written_whole(path) as one:
        one.write_text("1\n")
        with written_whole(path) as other:
            other.write_text("2\n")
        assert path.read_text() == "2\n"
    assert path.read_text() == "1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    path.write_text("before")

    def fail() -> None:
        with written_whole(path) as unfinished:
            unfinished.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_others_may_read_what_was_written(tmp_path: Path) -> None:
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    plain.write_text("")
    write_whole(whole, "")
    assert stat.S_IMODE(whole.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_process_describes_a_projection_while_another_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe_again = [True]
    replace = Path.replace

    def other_comes_first(self: Path, target: Path) -> Path:
        if describe_again:
            describe_again.clear()
            describe(tmp_path, Numbers(), "group", None)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", other_comes_first)
    describe(tmp_path, Numbers(), "group", None)
    assert len(list(tmp_path.rglob(ABOUT))) == 1
