"""Who has which partition of a group, and members that change what they read."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence

import pytest

from noesium_stream.errors import TenureEndedError, TopicNotFoundError
from noesium_stream.log.port import EventLog, Subscription, TopicPartition, process_of
from noesium_stream.log.record import Record
from tests.support.backends import PARTITIONS, Backend, Open
from tests.support.events import counted, outgoing, sold
from tests.support.processes import Program
from tests.support.reading import PATIENCE_S, GroupMember, eventually, numbers

HERE = f"{socket.gethostname()}/{os.getpid()}"


def all_of(topic: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(PARTITIONS))


async def held(log: EventLog, group: str = "group") -> dict[str, frozenset[TopicPartition]]:
    return {share.member: share.partitions for share in await log.members(group)}


async def test_a_group_that_nobody_has_joined_has_no_members(log: EventLog) -> None:
    assert await log.members("nobody") == []


async def test_members_are_told_with_their_process_and_their_partitions(log_factory: Open) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    topic = first_log.topology.events("demo")
    await first_log.append([counted(1, "k")])
    one = await first_log.subscribe("group", [topic], GroupMember().handle)
    await eventually(lambda: one.assignment == all_of(topic))
    assert await held(second_log) == {one.member: all_of(topic)}
    assert process_of(one.member) == HERE
    two = await second_log.subscribe("group", [topic], GroupMember().handle)

    async def shared() -> bool:
        found = await held(first_log)
        # A group may tell of a partition before its member has heard of it.
        heard = found == {one.member: one.assignment, two.member: two.assignment}
        return heard and {name: len(tps) for name, tps in found.items()} == {one.member: 2, two.member: 2}

    await eventually(shared)
    await one.close()

    async def alone() -> bool:
        return await held(first_log) == {two.member: all_of(topic)}

    await eventually(alone)
    assert await held(first_log, "another group") == {}


@pytest.mark.needs("several_processes")
async def test_a_member_that_was_killed_is_no_member_any_more(backend: Backend) -> None:
    log = await backend.open()
    topic = log.topology.events("demo")
    await log.append([counted(1, "k")])
    program = await Program.start("tests.support.appender", "member", backend.url, topic, "group")
    await program.line("assigned 0 1 2 3")
    [share] = await log.members("group")
    assert process_of(share.member) == f"{socket.gethostname()}/{program.pid}"
    await program.kill()

    async def gone() -> bool:
        return await log.members("group") == []

    await eventually(gone)


async def test_who_is_dismissed_while_it_lives_loses_its_partitions_and_joins_again(
    log_factory: Open,
) -> None:
    log, other = await log_factory(), await log_factory()
    topic = log.topology.events("demo")
    await log.append([counted(1, "k")])
    member = GroupMember()
    subscription = await log.subscribe(
        "group", [topic], member.handle, on_assigned=member.on_assigned, on_revoked=member.on_revoked
    )
    await eventually(lambda: subscription.assignment == all_of(topic))
    await other.dismiss("group", ["somebody else"])
    await other.dismiss("nobody", [subscription.member])
    assert member.revoked == []
    tenure = await subscription.tenure(TopicPartition(topic, 0))
    await other.dismiss("group", {subscription.member, "somebody else"})
    journal = log.topology.journal("someone")
    await log.ensure_topics([log.topology.spec(journal)])
    with pytest.raises(TenureEndedError):  # when it is opened, or at its first commit
        await (await log.writer("writer", tenure=tenure)).commit(outgoing([counted(2, "k")], journal, 0))
    await eventually(lambda: member.revoked and subscription.assignment == all_of(topic))
    assert await held(other) == {subscription.member: all_of(topic)}
    await log.append([counted(3, "k")])
    await eventually(lambda: 3 in numbers(member.records))


async def test_a_member_goes_on_where_it_is_told_to(log: EventLog) -> None:
    topic = log.topology.events("demo")
    places = await log.append([counted(n, "k") for n in range(10)])
    tp = TopicPartition(topic, places[0].partition)
    member = GroupMember()
    subscription = await log.subscribe("group", [topic], member.handle)
    await eventually(lambda: len(member.records) == 10)
    # Beyond the last record there may be the marker of its transaction.
    await eventually(lambda: (subscription.position(tp) or 0) > places[9].offset)
    subscription.seek({tp: places[7].offset, TopicPartition(topic, 99): 5})
    assert subscription.position(tp) == places[7].offset
    await eventually(lambda: len(member.records) == 13)
    assert numbers(member.records)[10:] == [7, 8, 9]
    await log.append([counted(10, "k")])
    await eventually(lambda: len(member.records) == 14)
    assert numbers(member.records)[13:] == [10]
    assert subscription.position(TopicPartition(topic, 99)) is None


async def test_after_a_seek_by_the_handler_nothing_from_before_is_handed_over(log: EventLog) -> None:
    topic = log.topology.events("demo")
    places = await log.append([counted(n, "k") for n in range(2000)])
    tp = TopicPartition(topic, places[0].partition)
    seen: list[int] = []
    sought: list[int] = []

    async def handle(records: Sequence[Record]) -> None:
        seen.extend(numbers(records))
        if not sought:
            sought.append(len(seen))
            await asyncio.sleep(0)
            subscription.seek({tp: places[0].offset})

    subscription = await log.subscribe("group", [topic], handle)
    await eventually(lambda: seen[-1:] == [1999])
    assert seen == [*range(sought[0]), *range(2000)]
    assert sought[0] < 2000


async def test_a_member_reads_further_topics_without_losing_its_place(log: EventLog) -> None:
    demo, shop = log.topology.events("demo"), log.topology.events("shop")
    await log.append([counted(n, f"k{n}") for n in range(20)])
    member = GroupMember()
    subscription = await log.subscribe(
        "group", [demo], member.handle, on_assigned=member.on_assigned, on_revoked=member.on_revoked
    )
    await eventually(lambda: len(member.records) == 20)
    await log.append([sold(n, f"k{n}") for n in range(20, 30)])
    subscription.change_topics([demo, shop])
    await eventually(lambda: len(member.records) == 30)
    await log.append([counted(n, f"k{n}") for n in range(30, 40)])
    await eventually(lambda: len(member.records) == 40)
    assert sorted(numbers(member.records)) == list(range(40))
    assert member.revoked == [], "what it reads already was not taken from it"
    assert subscription.assignment == all_of(demo) | all_of(shop)
    subscription.change_topics([shop])
    await eventually(lambda: subscription.assignment == all_of(shop))
    assert frozenset().union(*member.revoked) == all_of(demo)


async def test_a_member_may_join_without_topics(log: EventLog) -> None:
    member = GroupMember()
    subscription: Subscription = await log.subscribe("group", [], member.handle)
    assert subscription.assignment == frozenset()
    await log.append([counted(1, "k")])
    subscription.change_topics([log.topology.events("demo")])
    await eventually(lambda: numbers(member.records) == [1])
    await subscription.close()
    await subscription.wait()


async def test_the_layout_names_topics_with_their_partitions_and_ids(log: EventLog) -> None:
    assert await log.layout() == {}
    await log.append([counted(1, "k"), sold(1, "k")])
    layout = await log.layout()
    assert list(layout) == [log.topology.events("demo"), log.topology.events("shop")]
    for topic, shape in layout.items():
        assert shape == (PARTITIONS, await log.topic_id(topic))


async def test_a_topic_that_is_not_there_cannot_be_changed_to_in_silence(log: EventLog) -> None:
    await log.append([counted(1, "k")])
    subscription = await log.subscribe("group", [log.topology.events("demo")], GroupMember().handle)

    async def change() -> None:
        subscription.change_topics([log.topology.events("nowhere")])
        await asyncio.wait_for(subscription.wait(), PATIENCE_S)

    with pytest.raises(TopicNotFoundError, match="nowhere"):
        await change()


async def test_whenever_a_seek_comes_the_next_record_is_the_one_that_was_sought(log: EventLog) -> None:
    topic = log.topology.events("demo")
    places = await log.append([counted(n, "k") for n in range(3000)])
    tp = TopicPartition(topic, places[0].partition)
    sought: list[int] = []
    wrong: list[tuple[int, int]] = []
    seen = 0

    async def handle(records: Sequence[Record]) -> None:
        nonlocal seen
        if sought:
            wanted = sought.pop()
            if records[0].offset != wanted:
                wrong.append((wanted, records[0].offset))
        seen += len(records)

    subscription = await log.subscribe("group", [topic], handle)
    await eventually(lambda: seen >= 500)
    for turn in range(200):
        for _ in range(turn % 7):
            await asyncio.sleep(0.0005 * (turn % 3))
        target = places[(turn * 37) % 1000].offset
        sought[:] = [target]
        subscription.seek({tp: target})
        if turn % 5 == 0:
            await eventually(lambda: not sought)
    await eventually(lambda: not sought)
    assert wrong == []
