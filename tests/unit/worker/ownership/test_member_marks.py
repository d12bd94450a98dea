"""Files by which the next worker on a machine knows which members of its group have died."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.topics import Topology
from noesium_stream.worker.ownership import member_marks
from noesium_stream.worker.ownership.member_marks import MemberMark


class Group:
    """A log that remembers who was dismissed."""

    def __init__(self, url: str = "kafka://one") -> None:
        self.url = url
        self.topology = Topology()
        self.dismissed: list[tuple[str, list[str]]] = []
        self.error: LogUnavailableError | None = None

    async def dismiss(self, group: str, members: Collection[str]) -> None:
        if self.error is not None:
            raise self.error
        self.dismissed.append((group, sorted(members)))


@pytest.fixture
def group() -> Group:
    return Group()


def mark(home: Path, log: Any, group: str = "workers", said: list[str] | None = None) -> MemberMark:
    return MemberMark(home, log, group, (said if said is not None else []).append)


def dies(one: MemberMark) -> None:
    """What the end of its process does to its lock."""
    assert one._file is not None
    os.close(one._file)
    one._file = None


async def test_who_has_died_is_dismissed_once_and_who_lives_is_not(tmp_path: Path, group: Group) -> None:
    dead, living, next_one = (mark(tmp_path, group) for _ in range(3))
    dead.hold("dead")
    living.hold("living")
    next_one.hold("next")
    await next_one.dismiss_the_dead()
    assert group.dismissed == []
    dies(dead)
    await next_one.dismiss_the_dead()
    await next_one.dismiss_the_dead()
    assert group.dismissed == [("workers", ["dead"])]
    living.let_go()
    living.let_go()
    await next_one.dismiss_the_dead()
    assert group.dismissed == [("workers", ["dead"])], "it has left in order"
    next_one.let_go()
    assert list((tmp_path / "members").iterdir()) == []


async def test_the_dead_of_another_group_log_or_boot_are_left_alone(
    tmp_path: Path, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [mark(tmp_path, group, "another"), mark(tmp_path, Group("kafka://two"))]
    for number, one in enumerate(others):
        one.hold(f"dead {number}")
        dies(one)
    monkeypatch.setattr(member_marks, "_boot", lambda: "another boot")
    foreign = mark(tmp_path, group)
    foreign.hold("of another boot")
    dies(foreign)
    monkeypatch.undo()
    await mark(tmp_path, group).dismiss_the_dead()
    assert group.dismissed == []
    assert len(list((tmp_path / "members").iterdir())) == 3


async def test_files_that_are_none_are_passed_over(tmp_path: Path, group: Group) -> None:
    dead = mark(tmp_path, group)
    dead.hold("dead")
    dies(dead)
    folder = tmp_path / "members"
    (folder / "a.json").write_text("{")
    (folder / "b.json").write_text("[" * 5_000)
    (folder / "c.json").write_bytes(os.urandom(10_000))
    (folder / "d.json").write_text(json.dumps(["dead"]))
    (folder / "e.json").symlink_to(next(folder.glob("[0-9a-f]*[0-9a-f].json")))
    (folder / "f.json").mkdir()
    await mark(tmp_path, group).dismiss_the_dead()
    assert group.dismissed == [("workers", ["dead"])]


async def test_a_log_that_is_away_leaves_the_file_for_the_next_one(tmp_path: Path, group: Group) -> None:
    dead = mark(tmp_path, group)
    dead.hold("dead")
    dies(dead)
    said: list[str] = []
    group.error = LogUnavailableError("nobody answers")
    await mark(tmp_path, group, said=said).dismiss_the_dead()
    assert said == ["workers: members that have died stay until their session ends: nobody answers"]
    group.error = None
    await mark(tmp_path, group).dismiss_the_dead()
    assert group.dismissed == [("workers", ["dead"])]


async def test_a_home_that_cannot_be_written_is_said_and_no_error(tmp_path: Path, group: Group) -> None:
    (tmp_path / "members").write_text("a file")
    said: list[str] = []
    one = mark(tmp_path, group, said=said)
    one.hold("me")
    await one.dismiss_the_dead()
    one.let_go()
    assert len(said) == 1
    assert "cannot be written" in said[0]
    assert group.dismissed == []


async def test_without_locks_nobody_is_taken_for_dead(
    tmp_path: Path, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = mark(tmp_path, group)
    dead.hold("dead")
    dies(dead)

    def refused(*_: Any) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", refused)
    await mark(tmp_path, group).dismiss_the_dead()
    assert group.dismissed == []
