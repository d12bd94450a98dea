"""Consumer groups: every record is handled at least once, in order, by one member at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from noesium_stream.errors import TopicNotFoundError
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.log.record import Record
from tests.support.backends import PARTITIONS, Open
from tests.support.events import counted, noted
from tests.support.reading import PATIENCE_S, GroupMember, eventually, numbers, stored


def all_of(topic: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(PARTITIONS))


async def join(log: EventLog, topic: str, member: GroupMember, group: str = "group"):  # type: ignore[no-untyped-def]
    return await log.subscribe(
        group, [topic], member.handle, on_assigned=member.on_assigned, on_revoked=member.on_revoked
    )


async def test_a_lone_member_is_given_everything(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(30)])
    member = GroupMember()
    subscription = await join(log, topic, member)
    await eventually(lambda: len(member.records) >= 30)
    assert subscription.assignment == all_of(topic)
    assert frozenset().union(*member.assigned) == all_of(topic)
    await log.append([counted(n, f"k{n}") for n in range(30, 40)])
    await eventually(lambda: len(member.records) >= 40)
    assert sorted(numbers(member.records)) == list(range(40))
    await subscription.close()
    assert frozenset().union(*member.revoked) == all_of(topic)
    await subscription.wait()


async def test_two_members_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    log_factory: Open,
) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    topic = first_log.topology.events("demo")
    await first_log.append([counted(n, f"k{n % 20}") for n in range(100)])
    first, second = GroupMember(), GroupMember()
    one = await join(first_log, topic, first)
    await eventually(lambda: one.assignment == all_of(topic))
    two = await join(second_log, topic, second)
    await eventually(lambda: len(one.assignment) == len(two.assignment) == PARTITIONS // 2)
    assert one.assignment | two.assignment == all_of(topic)
    await second_log.append([counted(n, f"k{n % 20}") for n in range(100, 200)])
    await eventually(lambda: {*numbers(first.records), *numbers(second.records)} == set(range(200)))
    await one.close()
    await eventually(lambda: two.assignment == all_of(topic))
    await second_log.append([counted(n, f"k{n % 20}") for n in range(200, 300)])
    await eventually(lambda: {*numbers(first.records), *numbers(second.records)} == set(range(300)))
    for member in (first, second):
        for partition in range(PARTITIONS):
            offsets = [record.offset for record in member.records if record.partition == partition]
            assert offsets == sorted(offsets)


async def test_nobody_is_given_a_partition_before_its_holder_has_let_it_go(log_factory: Open) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    topic = first_log.topology.events("demo")
    await first_log.append([counted(n, f"k{n}") for n in range(20)])
    holders: dict[TopicPartition, str] = {}
    overlaps: list[TopicPartition] = []
    letting_go = asyncio.Event()
    may_go = asyncio.Event()

    async def on_revoked(partitions: frozenset[TopicPartition]) -> None:
        letting_go.set()
        await may_go.wait()
        for tp in partitions:
            del holders[tp]

    async def take(name: str, partitions: frozenset[TopicPartition]) -> None:
        overlaps.extend(tp for tp in partitions if tp in holders)
        holders.update(dict.fromkeys(partitions, name))

    async def handle(records: Sequence[Record]) -> None:
        pass

    one = await first_log.subscribe(
        "group", [topic], handle, on_assigned=lambda tps: take("one", tps), on_revoked=on_revoked
    )
    await eventually(lambda: len(holders) == PARTITIONS)
    two = await second_log.subscribe("group", [topic], handle, on_assigned=lambda tps: take("two", tps))
    await asyncio.wait_for(letting_go.wait(), PATIENCE_S)
    assert set(holders.values()) == {"one"}
    may_go.set()
    await eventually(lambda: len(two.assignment) == PARTITIONS // 2)
    await eventually(lambda: len(holders) == PARTITIONS)
    assert overlaps == []
    await one.close()


async def test_a_group_goes_on_where_it_has_committed(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(20)])
    first = GroupMember()
    one = await join(log, topic, first)
    await eventually(lambda: len(first.records) >= 20)
    await one.close()
    await log.append([counted(n, f"k{n}") for n in range(20, 30)])
    second = GroupMember()
    await join(log, topic, second)
    await eventually(lambda: len(second.records) >= 10)
    assert sorted(numbers(second.records)) == list(range(20, 30))


async def test_groups_do_not_take_from_each_other(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(20)])
    members = [GroupMember(), GroupMember()]
    for number, member in enumerate(members):
        await join(log, topic, member, f"group-{number}")
    for member in members:
        await eventually(lambda member=member: len(member.records) >= 20)
        assert sorted(numbers(member.records)) == list(range(20))


async def test_an_assignment_may_say_where_to_start(log: EventLog) -> None:
    topic = log.topology.events("demo")
    positions = await log.append([counted(n, "k") for n in range(10)])
    start = positions[6]
    member = GroupMember()

    async def on_assigned(partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: start.offset for tp in partitions if tp.partition == start.partition}

    await log.subscribe("group", [topic], member.handle, on_assigned=on_assigned)
    await eventually(lambda: len(member.records) >= 4)
    assert numbers(member.records) == [6, 7, 8, 9]


async def test_what_a_handler_raises_reaches_its_owner_and_the_batch_is_handled_again(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(1, "k")])

    async def fail(records: Sequence[Record]) -> None:
        raise ZeroDivisionError("the handler's own")

    revoked = GroupMember()
    subscription = await log.subscribe("group", [topic], fail, on_revoked=revoked.on_revoked)
    with pytest.raises(ZeroDivisionError, match="the handler's own"):
        await asyncio.wait_for(subscription.wait(), PATIENCE_S)
    assert subscription.assignment == frozenset()
    assert frozenset().union(*revoked.revoked) == all_of(topic)
    member = GroupMember()
    await join(log, topic, member)
    await eventually(lambda: numbers(member.records) == [1])


async def test_what_on_assigned_raises_reaches_its_owner(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(1, "k")])
    member = GroupMember()

    async def fail(partitions: frozenset[TopicPartition]) -> None:
        raise ZeroDivisionError("the owner's own")

    subscription = await log.subscribe("group", [topic], member.handle, on_assigned=fail)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(subscription.wait(), PATIENCE_S)
    assert member.records == []


async def test_a_member_is_given_only_the_types_that_it_asked_for(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(1, "k"), noted(2, "k"), counted(3, "k")])
    member = GroupMember()
    subscription = await log.subscribe("group", [topic], member.handle, types=["demo.counted"])
    await log.append([noted(4, "k"), counted(5, "k")])
    await eventually(lambda: len(member.records) >= 3)
    assert numbers(member.records) == [1, 3, 5]
    await subscription.close()


async def test_a_member_reads_several_topics(log: EventLog) -> None:
    one, other = log.topology.events("demo"), log.topology.inbox("tester")
    await log.append([counted(n, f"k{n}") for n in range(10)])
    await log.append([counted(n, f"k{n}", metadata={"to": "tester"}) for n in range(10, 20)])
    member = GroupMember()
    subscription = await log.subscribe("group", [one, other], member.handle)
    await eventually(lambda: sorted(numbers(member.records)) == list(range(20)))
    assert subscription.assignment == all_of(one) | all_of(other)


async def test_closing_lets_the_running_batch_end_first(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(1, "k")])
    started, go_on = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def handle(records: Sequence[Record]) -> None:
        started.set()
        await go_on.wait()
        order.append("handled")

    async def on_revoked(partitions: frozenset[TopicPartition]) -> None:
        order.append("revoked")

    subscription = await log.subscribe("group", [topic], handle, on_revoked=on_revoked)
    await asyncio.wait_for(started.wait(), PATIENCE_S)
    closing = asyncio.create_task(subscription.close())
    await asyncio.sleep(0)
    assert order == []
    go_on.set()
    await asyncio.wait_for(closing, PATIENCE_S)
    assert order == ["handled", "revoked"]
    await subscription.close()
    member = GroupMember()
    again = await join(log, topic, member)
    await log.append([counted(2, "k")])
    await eventually(lambda: 2 in numbers(member.records))
    assert numbers(member.records) == [2], "what was handled was committed"
    await again.close()


async def test_subscribing_to_a_topic_that_is_not_there_is_an_error_that_names_it(log: EventLog) -> None:
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        await join(log, log.topology.events("nowhere"), GroupMember())


async def test_closing_the_log_ends_its_subscriptions(log_factory: Open) -> None:
    log, other = await log_factory(), await log_factory()
    topic = log.topology.events("demo")
    await log.append([counted(1, "k")])
    member = GroupMember()
    subscription = await join(log, topic, member)
    await eventually(lambda: numbers(member.records) == [1])
    await log.close()
    await asyncio.wait_for(subscription.wait(), PATIENCE_S)
    assert frozenset().union(*member.revoked) == all_of(topic)
    taking_over = GroupMember()
    again = await join(other, topic, taking_over)
    await eventually(lambda: again.assignment == all_of(topic))
    assert numbers(await stored(other, topic)) == [1]
