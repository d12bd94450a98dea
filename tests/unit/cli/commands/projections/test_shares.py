"""Which partitions of a projection are here, and who is named for the others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from noesium_stream.cli.commands.projections.shares import elsewhere, left_behind, living, processes
from noesium_stream.log.port import GroupShare, TopicPartition, TopicShape
from noesium_stream.projection.stored.stored_projection import describe, open_stored_projection
from noesium_stream.state_file.claim import locked
from tests.support.attach import Numbers

TOPIC = "t.events.demo"
HERE = f"{socket.gethostname()}/{os.getpid()}/x"


def share(member: str, *partitions: int) -> GroupShare:
    return GroupShare(member, frozenset(TopicPartition(TOPIC, partition) for partition in partitions))


class Log:
    """What `elsewhere` asks a log."""

    def __init__(self, *shares: GroupShare, partitions: int = 4) -> None:
        self._shares, self._partitions = shares, partitions

    async def members(self, group: str) -> list[GroupShare]:
        assert group == "group"
        return list(self._shares)

    async def layout(self) -> dict[str, TopicShape]:
        return {TOPIC: TopicShape(self._partitions, "id"), "t.events.other": TopicShape(9, "id")}


async def said(tmp_path: Path, log: Any, *files: int) -> str | None:
    describe(tmp_path, Numbers(), "group", None)
    for number in files:
        (tmp_path / "numbers" / "v1" / f"{TOPIC}-{number}.state").touch()
    return await elsewhere(log, open_stored_projection(tmp_path, "numbers", load=lambda reference: Numbers()))


async def test_a_folder_that_has_all_needs_no_word(tmp_path: Path) -> None:
    assert await said(tmp_path, Log(), 0, 1, 2, 3) is None
    assert await said(tmp_path / "empty", Log()) is None


async def test_partitions_that_nobody_has_are_told(tmp_path: Path) -> None:
    assert await said(tmp_path, Log(), 0, 2) == (
        "numbers v1: 2 of 4 partitions are here; the others: nobody folds them now"
    )


async def test_a_file_that_stayed_behind_is_not_here_and_one_that_is_written_is(tmp_path: Path) -> None:
    log = Log(share(HERE, 0, 1), share("far/7/y", 2, 3))
    path = tmp_path / "numbers" / "v1" / f"{TOPIC}-0.state"
    path.parent.mkdir(parents=True)
    with locked(path), locked(path.with_name(f"{TOPIC}-1.state")):
        assert await said(tmp_path, log, 0, 1, 2) == (
            "numbers v1: 2 of 4 partitions are here; the others: far/7"
        )


async def test_of_a_folder_without_a_file_the_partitions_of_others_are_known(tmp_path: Path) -> None:
    assert await said(tmp_path, Log(share("far/7/y", 1))) == (
        "numbers v1: 0 of 4 partitions are here; the others: far/7"
    )


def test_a_process_of_this_machine_that_was_killed_is_not_named() -> None:
    killed = subprocess.Popen([sys.executable, "-c", "pass"])
    killed.wait()
    dead = share(f"{socket.gethostname()}/{killed.pid}/x", 0)
    alive, far, idle = share(HERE, 1), share("far/7/y", 2), share("far/8/y")
    assert living([dead, alive, far, idle]) == [alive, far]


def test_many_processes_are_counted() -> None:
    assert processes(share(f"h/{n}/x", n) for n in range(7)) == "h/0, h/1, h/2, h/3, h/4 and 2 more"


async def test_a_file_is_left_behind_where_its_partitions_owner_does_not_write_it(tmp_path: Path) -> None:
    log: Any = Log(share("there/7/x", 1, 2, 3), share(HERE, 0))
    await said(tmp_path, log, 0, 1, 2)
    stored = open_stored_projection(tmp_path, "numbers", load=lambda reference: Numbers())
    paths = stored.files()
    with locked(paths[0]), locked(paths[2]):
        assert await left_behind(log, stored) == {TopicPartition(TOPIC, 1)}
    assert await left_behind(Log(), stored) == frozenset()  # type: ignore[arg-type]
