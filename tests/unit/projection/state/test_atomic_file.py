"""Files of a projection's folder, written by several processes at once."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from noesium_stream.projection.state.atomic_file import write_whole, written_whole
from noesium_stream.projection.stored import stored_projection as stored
from noesium_stream.projection.stored.stored_projection import (
    ABOUT,
    CURRENT,
    current_version,
    describe,
    make_current,
)
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


def test_only_its_owner_may_read_what_was_written(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    write_whole(whole, "")
    assert stat.S_IMODE(whole.stat().st_mode) == 0o600


class Second(Numbers):
    version = 2


class Third(Numbers):
    version = 3


def beside(tasks: list[Thread], work: Callable[[], object]) -> None:
    """Let another process work as far as it can get."""
    tasks.append(Thread(target=work))
    tasks[-1].start()
    tasks[-1].join(0.3)


def test_a_version_that_begins_does_not_take_readers_from_one_that_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[Thread] = []

    def newer_comes(path: Path, text: str) -> None:
        if path.name == CURRENT:
            monkeypatch.setattr(stored, "write_whole", write_whole)
            beside(
                others, lambda: (describe(tmp_path, Second(), "g2", None), make_current(tmp_path, Second()))
            )
        write_whole(path, text)

    monkeypatch.setattr(stored, "write_whole", newer_comes)
    describe(tmp_path, Numbers(), "g1", None)
    others[0].join()
    assert current_version(tmp_path / "numbers") == 2


def test_of_two_versions_that_take_over_at_once_the_newer_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(tmp_path, Numbers(), "g1", None)
    others: list[Thread] = []

    def newer_comes(path: Path, text: str) -> None:
        monkeypatch.setattr(stored, "write_whole", write_whole)
        beside(others, lambda: make_current(tmp_path, Third(), unless_older=True))
        write_whole(path, text)

    monkeypatch.setattr(stored, "write_whole", newer_comes)
    assert make_current(tmp_path, Second(), unless_older=True)
    others[0].join()
    assert current_version(tmp_path / "numbers") == 3
    assert not make_current(tmp_path, Second(), unless_older=True)
    assert current_version(tmp_path / "numbers") == 3
    assert make_current(tmp_path, Second())
    assert current_version(tmp_path / "numbers") == 2


def test_a_process_describes_a_projection_while_another_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[Thread] = []
    replace = Path.replace

    def other_comes_first(self: Path, target: Path) -> Path:
        if not others:
            beside(others, lambda: describe(tmp_path, Numbers(), "group", None))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", other_comes_first)
    describe(tmp_path, Numbers(), "group", None)
    others[0].join()
    assert len(list(tmp_path.rglob(ABOUT))) == 1
