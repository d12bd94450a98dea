"""Who has been given a partition proves it with the first commit; who has lost it cannot get past its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from noesium_stream.errors import EventStoreError, FencedError, TenureEndedError
from noesium_stream.log.port import EventLog, Subscription, Tenure, TopicPartition
from noesium_stream.log.record import Record
from tests.support.backends import PARTITIONS, Open
from tests.support.events import counted, outgoing
from tests.support.reading import GroupMember, eventually, numbers, stored


async def nothing(records: Sequence[Record]) -> None:
    pass


async def ready(log: EventLog) -> tuple[str, str]:
    """An inbox and a journal."""
    inbox, journal = log.topology.inbox("tester"), log.topology.journal("tester")
    await log.ensure_topics([log.topology.spec(inbox), log.topology.spec(journal)])
    return inbox, journal


async def member_of(log: EventLog, inbox: str, partitions: int = PARTITIONS) -> Subscription:
    """A member of the group, once it has so many partitions."""
    member = await log.subscribe("owners", [inbox], nothing)
    await eventually(lambda: len(member.assignment) == partitions)
    return member


async def moved(tp: TopicPartition, former: Subscription, log: EventLog, inbox: str) -> Tenure:
    """The tenure of the member that takes over all from `former`, which leaves."""
    successor = await log.subscribe("owners", [inbox], nothing)
    await former.close()
    await eventually(lambda: len(successor.assignment) == PARTITIONS)
    return await successor.tenure(tp)


async def test_a_member_that_has_a_partition_gets_past_its_first_commit_and_goes_on(log: EventLog) -> None:
    inbox, journal = await ready(log)
    tp = TopicPartition(inbox, 1)
    member = await member_of(log, inbox)
    tenure = await member.tenure(tp)
    assert tenure.partition == tp
    assert tenure == await member.tenure(tp)
    writer = await log.writer("w", tenure=tenure)
    for n in range(3):
        await writer.commit(outgoing([counted(n)], journal, 1))
    transaction = await (await log.writer("w", tenure=tenure)).begin()
    await transaction.write(outgoing([counted(3)], journal, 1))
    await transaction.commit()
    assert numbers(await stored(log, journal)) == [0, 1, 2, 3]


async def test_the_tenure_can_be_had_and_used_while_the_partition_is_being_assigned(log: EventLog) -> None:
    inbox, journal = await ready(log)
    member: Subscription

    async def on_assigned(partitions: frozenset[TopicPartition]) -> None:
        for tp in sorted(partitions):
            writer = await log.writer(f"w{tp.partition}", tenure=await member.tenure(tp))
            await writer.commit(outgoing([counted(tp.partition)], journal, tp.partition))

    member = await log.subscribe("owners", [inbox], nothing, on_assigned=on_assigned)
    await eventually(lambda: len(member.assignment) == PARTITIONS)
    assert numbers(await stored(log, journal)) == list(range(PARTITIONS))


async def test_a_member_has_no_tenure_of_what_it_does_not_read(log_factory: Open) -> None:
    log, other = await log_factory(), await log_factory()
    inbox, journal = await ready(log)
    member = await member_of(log, inbox)
    with pytest.raises(TenureEndedError, match="journal/0"):
        await member.tenure(TopicPartition(journal, 0))
    second = await other.subscribe("owners", [inbox], nothing)
    await eventually(lambda: len(second.assignment) == len(member.assignment) == PARTITIONS // 2)
    for tp in second.assignment:
        with pytest.raises(TenureEndedError):
            await member.tenure(tp)
        await second.tenure(tp)
    await member.close()
    with pytest.raises(TenureEndedError):
        await member.tenure(TopicPartition(inbox, 0))


async def test_one_that_initialises_late_cannot_commit_and_the_holder_wins_by_opening_again(
    log_factory: Open,
) -> None:
    log, other = await log_factory(), await log_factory()
    inbox, journal = await ready(log)
    tp = TopicPartition(inbox, 2)
    former = await member_of(log, inbox)
    stale = await former.tenure(tp)
    tenure = await moved(tp, former, other, inbox)
    assert tenure != stale
    holder = await other.writer("w", tenure=tenure)
    await holder.commit(outgoing([counted(0)], journal, 2))

    with pytest.raises(TenureEndedError):
        await initialise(log, "w", stale, journal)

    try:
        await holder.commit(outgoing([counted(2)], journal, 2))
    except FencedError:
        # Where the late one could only be found out at its commit, it has fenced the holder before.
        holder = await other.writer("w", tenure=tenure)
        await holder.commit(outgoing([counted(2)], journal, 2))
    with pytest.raises(TenureEndedError):
        await initialise(log, "w", stale, journal)
    assert numbers(await stored(log, journal)) == [0, 2]


async def test_one_that_was_opened_in_time_and_commits_too_late_cannot(log_factory: Open) -> None:
    log, other = await log_factory(), await log_factory()
    inbox, journal = await ready(log)
    tp = TopicPartition(inbox, 0)
    former = await member_of(log, inbox)
    late = await log.writer("w", tenure=await former.tenure(tp))
    await moved(tp, former, other, inbox)
    # Nobody has fenced it yet: it is the group alone that says no.
    with pytest.raises(TenureEndedError):
        await late.commit(outgoing([counted(1)], journal, 0))
    transaction = await late.begin()
    await transaction.write(outgoing([counted(2)], journal, 0))
    with pytest.raises(TenureEndedError):
        await transaction.commit()
    await transaction.abort()
    assert numbers(await stored(log, journal)) == []


async def test_a_partition_that_stays_while_members_come_and_go_can_be_taken_anew(log_factory: Open) -> None:
    log, other = await log_factory(), await log_factory()
    inbox, journal = await ready(log)
    member = await member_of(log, inbox)
    former = {tp: await member.tenure(tp) for tp in member.assignment}
    second = await other.subscribe("owners", [inbox], nothing)
    await eventually(lambda: len(second.assignment) == len(member.assignment) == PARTITIONS // 2)
    for tp in member.assignment:
        writer = await log.writer(f"w{tp.partition}", tenure=await member.tenure(tp))
        await writer.commit(outgoing([counted(tp.partition)], journal, tp.partition))
    for tp in second.assignment:
        with pytest.raises(TenureEndedError):
            await initialise(log, f"w{tp.partition}", former[tp], journal)
    kept = sorted(tp.partition for tp in member.assignment)
    assert numbers(await stored(log, journal)) == kept


async def initialise(log: EventLog, writer_id: str, tenure: Tenure, journal: str) -> None:
    """Open a writer and get past its first commit, which nobody should find on the log."""
    writer = await log.writer(writer_id, tenure=tenure)
    await writer.commit(outgoing([counted(-1)], journal, 0))


async def test_the_groups_offset_is_not_changed_by_proving(log_factory: Open) -> None:
    log, other = await log_factory(), await log_factory()
    inbox, journal = await ready(log)
    first = GroupMember()
    former = await log.subscribe("owners", [inbox], first.handle)
    await log.append([counted(n, "k", metadata={"to": "tester"}) for n in range(5)])
    await eventually(lambda: len(first.records) == 5)
    tp = TopicPartition(inbox, first.records[0].partition)
    writer = await log.writer("w", tenure=await former.tenure(tp))
    await writer.commit(outgoing([counted(1)], journal, 0))
    await former.close()
    again: Subscription

    async def on_assigned(partitions: frozenset[TopicPartition]) -> None:
        writer = await other.writer("w", tenure=await again.tenure(tp))
        await writer.commit(outgoing([counted(2)], journal, 0))

    second = GroupMember()
    again = await other.subscribe("owners", [inbox], second.handle, on_assigned=on_assigned)
    await log.append([counted(5, "k", metadata={"to": "tester"})])
    await eventually(lambda: len(second.records) >= 1)
    assert numbers(second.records) == [5]


async def test_a_tenure_of_another_kind_of_log_is_refused(log: EventLog) -> None:
    class Foreign:
        partition = TopicPartition("t", 0)

    with pytest.raises(EventStoreError, match="no tenure"):
        await log.writer("w", tenure=Foreign())
