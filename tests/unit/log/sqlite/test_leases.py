"""Leases and wrong clocks: a dead member's partitions are free in time, a live member keeps its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noesium_stream.errors import FencedError, TenureEndedError
from noesium_stream.log.embedded.group import Coordinator
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, Outgoing, TopicPartition
from noesium_stream.log.sqlite.group import BEAT_S, LEASE_S
from noesium_stream.log.sqlite.leases import LeaseWatch
from tests.support.events import catalogue, counted
from tests.support.reading import GroupMember, eventually, numbers, stored
from tests.support.set_clock import SetClock

HOUR_S = 3_600.0
TOPIC = "noesium.events.demo"
TP = TopicPartition(TOPIC, 0)


class Machine:
    """Processes on one file, each with a clock of its own; time passes for all of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logs: list[EventLog] = []
        self.clocks: list[SetClock] = []

    async def log(self, ahead_s: float = 0.0) -> EmbeddedLog:
        clock = SetClock(ahead_s)
        clock.advance(self.clocks[0].monotonic() if self.clocks else 0.0)
        log = await open_log(
            f"sqlite:///{self._path}/log.db?partitions=1", clock=clock, catalogue=catalogue()
        )
        assert isinstance(log, EmbeddedLog)
        self.clocks.append(clock)
        self._logs.append(log)
        await log.ensure_topics([log.topology.spec(TOPIC)])
        return log

    async def member(self, name: str, ahead_s: float = 0.0) -> Coordinator:
        log = await self.log(ahead_s)
        topic = log.store.topic(TOPIC)
        assert topic is not None
        return log.store.coordinator("group", name, [topic])

    def advance(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.advance(seconds)

    async def lapse(self, watcher: Coordinator) -> None:
        """A lease passes while the watcher, who alone is alive, beats."""
        for _ in range(round(LEASE_S / BEAT_S)):
            self.advance(BEAT_S)
            await watcher.beat()
        self.advance(0.1)

    async def close(self) -> None:
        for log in self._logs:
            await log.close()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    await machine.close()


async def test_a_dead_owner_whose_clock_was_an_hour_ahead_is_replaced_after_one_lease(
    machine: Machine,
) -> None:
    dead = await machine.member("dead", ahead_s=HOUR_S)
    assert TP in (await dead.poll()).held
    heir = await machine.member("heir")
    assert TP not in (await heir.poll()).held, "it may live"
    await machine.lapse(heir)
    plan = await heir.poll()
    assert TP in plan.held
    assert plan.held[TP].epoch == 2, "the dead one is fenced, should it come back"


async def test_members_whose_clocks_differ_by_an_hour_leave_each_other_their_partitions(
    machine: Machine,
) -> None:
    ahead = await machine.member("ahead", ahead_s=HOUR_S)
    held = (await ahead.poll()).held
    honest = await machine.member("honest")
    for _ in range(10):
        await honest.beat()
        assert ahead.holds(held)
        machine.advance(BEAT_S)
        await ahead.beat()
    assert (await honest.poll()).held == {}


async def test_a_clock_that_is_set_back_takes_no_partition_from_a_member_that_lives(machine: Machine) -> None:
    owner, other = await machine.member("owner"), await machine.member("other")
    held = (await owner.poll()).held
    await other.poll()
    machine.advance(BEAT_S)
    await owner.beat()
    for clock in machine.clocks:
        clock.ahead_s = -HOUR_S
    for _ in range(3):
        await other.beat()
        assert owner.holds(held)
        machine.advance(BEAT_S)
        await owner.beat()
    await other.beat()
    await machine.lapse(other)
    await other.beat()
    assert not owner.holds(held), "it has died since"


async def test_a_clock_that_is_set_forward_takes_no_partition_from_a_member_that_was_seen_to_live(
    machine: Machine,
) -> None:
    owner, other = await machine.member("owner"), await machine.member("other")
    held = (await owner.poll()).held
    await other.poll()
    machine.advance(BEAT_S)
    await owner.beat()
    machine.clocks[1].ahead_s = HOUR_S
    for _ in range(3):
        await other.beat()
        assert owner.holds(held)
        machine.advance(BEAT_S)
        await owner.beat()


async def test_a_machine_that_stood_still_takes_no_partition_from_a_member_that_lives(
    machine: Machine,
) -> None:
    """All wait for the lock while one commits to a disk that takes a minute for it."""
    owner, other = await machine.member("owner"), await machine.member("other")
    held = (await owner.poll()).held
    await other.poll()
    for _ in range(3):
        machine.advance(60)
        await other.beat()
        assert owner.holds(held)
        machine.advance(BEAT_S)
        await owner.beat()
        await other.beat()
    machine.advance(60)
    await machine.lapse(other)
    assert not owner.holds(held), "it has died meanwhile"


async def test_a_member_whose_clock_is_ahead_takes_a_live_partition_only_by_fencing_its_owner(
    machine: Machine,
) -> None:
    honest = await machine.log()
    first = GroupMember()
    owner = await honest.subscribe("group", [TOPIC], first.handle)
    await eventually(lambda: owner.assignment == {TP})
    tenure = await owner.tenure(TP)
    journal = honest.topology.journal("someone")
    await honest.ensure_topics([honest.topology.spec(journal)])
    writer = await honest.writer("writer", tenure=tenure)
    await writer.commit([Outgoing(counted(0, "k"), journal, 0, "k")])

    thief_log = await machine.log(ahead_s=HOUR_S)
    topic = thief_log.store.topic(TOPIC)
    assert topic is not None
    thief = thief_log.store.coordinator("group", "thief", [topic])
    taken = (await thief.poll()).held
    assert TP in taken, "it has never seen the owner live"
    with pytest.raises(TenureEndedError):
        await owner.tenure(TP)
    await thief_log.writer("writer")
    with pytest.raises(FencedError):
        await writer.commit([Outgoing(counted(1, "k"), journal, 0, "k")])
    assert numbers(await stored(honest, journal)) == [0]
    await owner.close()


async def test_a_dead_member_whose_lease_ends_in_an_hour_is_not_listed(machine: Machine) -> None:
    dead = await machine.member("dead", ahead_s=HOUR_S)
    await dead.poll()
    log = await machine.log()
    assert await log.members("group") == []


def test_a_lease_that_ended_before_it_was_seen_has_expired_and_one_that_has_not_lasts_until_its_end() -> None:
    watch = LeaseWatch()
    assert watch.expired([("a", 999), ("b", 3_000)], 1_000, 0.0, 4.0) == ["a"]
    assert watch.expired([("b", 3_000)], 2_900, 1.9, 4.0) == []
    assert watch.expired([("b", 3_000)], 3_100, 2.1, 4.0) == ["b"]


def test_a_member_that_has_left_and_joins_again_under_its_name_is_seen_for_the_first_time() -> None:
    watch = LeaseWatch()
    assert watch.expired([("a", 5_000)], 1_000, 0.0, 4.0) == []
    assert watch.expired([], 1_000, 0.0, 4.0) == []
    assert watch.expired([("a", 900)], 1_000, 0.0, 4.0) == ["a"]
