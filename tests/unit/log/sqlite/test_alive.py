"""A member whose process has died holds nothing any more; one that stands still keeps what it has."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.open import open_log
from noesium_stream.log.port import GroupShare, TopicPartition
from noesium_stream.log.sqlite.alive import LifeLock, dead_members, file_of_life
from noesium_stream.log.sqlite.group import SqliteCoordinator
from tests.support.events import catalogue
from tests.support.processes import Program, stop
from tests.support.reading import GroupMember, eventually

TOPIC = "noesium.events.demo"
TP = TopicPartition(TOPIC, 0)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    """A log whose clock stands still from now on: no lease ever ends."""
    url = f"sqlite:///{tmp_path}/log.db?partitions=1"
    log = await open_log(url, clock=VirtualClock(), catalogue=catalogue())
    assert isinstance(log, EmbeddedLog)
    await log.ensure_topics([log.topology.spec(TOPIC)])
    yield log
    await log.close()


def member(log: EmbeddedLog, name: str) -> SqliteCoordinator:
    topic = log.store.topic(TOPIC)
    assert topic is not None
    found = log.store.coordinator("group", name, [topic])
    assert isinstance(found, SqliteCoordinator)
    return found


async def other_process(log: EmbeddedLog) -> Program:
    """A member in a process of its own, which holds the partition."""
    program = await Program.start("tests.support.appender", "member", log.url, TOPIC, "group")
    await program.line("assigned 0")
    return program


async def joined(log: EmbeddedLog, member: str) -> list[GroupShare]:
    """The members, by this log's clock, once this one is among them."""
    shares: list[GroupShare] = []

    async def seen() -> bool:
        shares[:] = await log.members("group")
        return member in {share.member for share in shares}

    await eventually(seen)
    return shares


def frozen_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """No member here looks at the leases of others unless something wakes it."""
    monkeypatch.setattr(SqliteCoordinator, "beat_s", 3_600.0)


async def test_the_partition_of_a_killed_process_is_free_at_once(log: EmbeddedLog) -> None:
    program = await other_process(log)
    heir = member(log, "heir")
    assert TP not in (await heir.poll()).held
    await program.kill()
    plan = await heir.poll()
    assert TP in plan.held
    assert plan.held[TP].epoch == 2, "the dead one is fenced, should it come back"
    await heir.leave()


async def test_who_waits_is_woken_by_the_death_itself(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = await other_process(log)
    frozen_leases(monkeypatch)
    here = GroupMember()
    subscription = await log.subscribe("group", [TOPIC], here.handle, on_assigned=here.on_assigned)
    assert len(await joined(log, subscription.member)) == 1, "the clock of the other is far ahead"
    assert not here.assigned
    await program.kill()
    await eventually(lambda: here.assigned == [frozenset({TP})])
    await subscription.close()


async def test_a_process_that_stands_still_is_not_taken_for_dead(log: EmbeddedLog) -> None:
    program = await other_process(log)
    await stop(program.pid, log.url)
    heir = member(log, "heir")
    assert TP not in (await heir.poll()).held
    await heir.beat()
    assert TP not in (await heir.poll()).held
    await program.kill()
    assert TP in (await heir.poll()).held
    await heir.leave()


async def test_members_of_one_process_see_each_other_live_and_end(log: EmbeddedLog) -> None:
    first, second = member(log, "first"), member(log, "second")
    held = (await first.poll()).held
    assert TP in held
    assert TP not in (await second.poll()).held
    assert first.holds(held)
    assert [share.member for share in await log.members("group")] == ["first", "second"]
    first._life.let_go()  # as if its process had ended
    assert [share.member for share in await log.members("group")] == ["second"]
    assert TP in (await second.poll()).held
    await second.leave()


async def test_the_file_may_be_removed_while_members_live(log: EmbeddedLog, tmp_path: Path) -> None:
    first, second = member(log, "first"), member(log, "second")
    held = (await first.poll()).held
    await second.poll()
    file = file_of_life(tmp_path / "log.db")
    file.unlink()
    await first.beat()  # makes it again
    await second.beat()
    assert first.holds(held)
    assert file.exists()
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    await first.leave()
    await second.leave()


def test_without_such_locks_nobody_is_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> bytes:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "fcntl", refused)
    lock = LifeLock(tmp_path / "log.db", "group", "one")
    lock.hold()
    lock.hold()
    assert not lock.has_died("two")
    assert dead_members(tmp_path / "log.db", "group", ["two"]) == set()


def test_a_file_that_cannot_be_opened_is_one_clear_error(tmp_path: Path) -> None:
    file_of_life(tmp_path / "log.db").mkdir()
    with pytest.raises(LogUnavailableError, match=r"log\.db-alive cannot be opened"):
        LifeLock(tmp_path / "log.db", "group", "one").hold()


def test_a_lock_leaves_when_it_is_let_go_and_not_when_another_descriptor_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    one, two = LifeLock(path, "group", "one"), LifeLock(path, "group", "two")
    one.hold()
    two.hold()
    os.close(os.open(file_of_life(path), os.O_RDWR))
    assert not two.has_died("one")
    assert dead_members(path, "group", ["one", "two", "three"]) == {"three"}
    assert dead_members(path, "other", ["one"]) == {"one"}, "a lock is of one group"
    one.let_go()
    one.let_go()
    assert two.has_died("one")
    two.let_go()
