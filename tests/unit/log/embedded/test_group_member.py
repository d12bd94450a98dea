"""The loop of one group member, against a table that takes its partition away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import pytest

from noesium_stream.errors import LogFullError, LogUnavailableError
from noesium_stream.log.embedded import group
from noesium_stream.log.embedded.group import Claim, Member, Plan
from noesium_stream.log.embedded.wakeup import Signal
from noesium_stream.log.port import TopicPartition
from noesium_stream.log.record import Record
from tests.support.reading import GroupMember, eventually

TP = TopicPartition("t", 0)


class Table:
    """A coordinator whose answers the test decides."""

    beat_s: float | None = None

    def __init__(self) -> None:
        self.epoch = 1
        self.polled = -1
        self.lost = False
        self.committed: list[tuple[int, int]] = []
        self.asked = 0

    def hurry(self) -> None:
        """Nothing here takes time."""

    def changed(self) -> bool:
        return self.polled != self.epoch

    async def poll(self) -> Plan:
        self.polled = self.epoch
        self.lost = False
        return Plan({TP: Claim(self.epoch, None)}, frozenset())

    async def beat(self) -> None:
        raise AssertionError

    def holds(self, claims: Mapping[TopicPartition, Claim]) -> bool:
        self.asked += 1
        return not self.lost

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.committed += offsets.values()

    async def release(self, partitions: Iterable[TopicPartition]) -> None:
        raise AssertionError

    async def leave(self) -> None:
        pass


class NoDecoder:
    record_verifier = None

    def decode(self, data: bytes) -> object:
        raise AssertionError

    decode_unchecked = decode


async def test_a_batch_of_a_partition_that_was_lost_meanwhile_is_not_handled() -> None:
    table, changes, seen = Table(), Signal(), GroupMember()

    def fetch(tp: TopicPartition, offset: int, limit: int) -> tuple[Sequence[Record], int]:
        if offset == 1 and table.epoch == 1:
            # Lost between the rebalance and the handler: somebody else has it in another epoch.
            table.epoch, table.lost = 2, True
        if offset > 1:
            return [], offset
        return [Record("t", 0, offset, 0, "k", [], b"", NoDecoder())], offset + 1  # type: ignore[arg-type]

    member = Member(
        table,
        list,
        fetch,
        changes,
        seen.handle,
        seen.on_assigned,
        seen.on_revoked,
        lambda tp: 0,
        lambda names: {},
        "me",
        "group",
    )  # type: ignore[arg-type]
    await eventually(lambda: len(seen.records) == 3)
    await member.close()
    assert [record.offset for record in seen.records] == [0, 0, 1], (
        "from the committed offset of the new epoch on"
    )
    assert len(seen.assigned) == len(seen.revoked) == 2
    assert table.committed == [(1, 1), (1, 2), (2, 2)]


async def test_who_leaves_keeps_its_lease_until_it_has_let_go_also_where_the_log_is_away_meanwhile() -> None:
    class Away(Table):
        beat_s = 0.001
        beats = 0
        leaving = False

        def hurry(self) -> None:
            self.leaving = True

        async def beat(self) -> None:
            if self.leaving:
                self.beats += 1
                if self.beats == 1:
                    raise LogUnavailableError("locked")

    table, assigned = Away(), asyncio.Event()
    let_go: list[int] = []

    async def on_assigned(tps: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        assigned.set()
        return {}

    async def on_revoked(tps: frozenset[TopicPartition]) -> None:
        await eventually(lambda: table.beats > 1)
        let_go.append(table.beats)

    async def handle(records: Sequence[Record]) -> None: ...

    member = Member(
        table,
        list,
        lambda tp, offset, limit: ([], offset),
        Signal(),
        handle,
        on_assigned,
        on_revoked,
        lambda tp: 0,
        lambda names: {},
        "me",
        "group",
    )
    await assigned.wait()
    await member.close()
    await member.wait()
    assert let_go


async def test_a_full_log_ends_no_member_which_goes_on_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(Table):
        """A table that refuses every write once before it takes it."""

        beat_s = 0.001

        def __init__(self) -> None:
            super().__init__()
            self.refused: list[str] = []
            self.full = False

        def write(self, what: str) -> None:
            if self.full or what not in self.refused:
                self.refused.append(what)
                raise LogFullError("no room")

        async def poll(self) -> Plan:
            self.write("poll")
            return await super().poll()

        async def beat(self) -> None:
            self.write("beat")

        async def commit(self, offsets: Mapping[TopicPartition, tuple[int, int]]) -> None:
            self.write("commit")
            await super().commit(offsets)

        async def follow(self, topics: Mapping[str, int]) -> None:
            self.write("follow")
            followed.append(topics)

        async def leave(self) -> None:
            self.write("leave")

    monkeypatch.setattr(group, "FULL_PAUSE_S", 0.001, raising=False)
    followed: list[Mapping[str, int]] = []
    table, changes, seen = Full(), Signal(), GroupMember()

    def fetch(tp: TopicPartition, offset: int, limit: int) -> tuple[Sequence[Record], int]:
        if offset > 2:
            return [], offset
        return [Record("t", 0, offset, 0, "k", [], b"", NoDecoder())], offset + 1  # type: ignore[arg-type]

    member = Member(
        table,
        list,
        fetch,
        changes,
        seen.handle,
        seen.on_assigned,
        seen.on_revoked,
        lambda tp: 0,
        lambda names: {"t": 1},
        "me",
        "group",
    )
    member.change_topics(["t"])
    await eventually(lambda: table.committed[-1:] == [(3, 1)] and "beat" in table.refused)
    assert [record.offset for record in seen.records] == [0, 1, 2], "nothing is handled again"
    assert followed == [{"t": 1}]
    assert table.committed == [(2, 1), (3, 1)]
    table.full = True
    await member.close()
    await member.wait()
    assert seen.revoked
    assert table.refused[-1] == "leave"
