"""Fenced transactional writers: all or none, one holder of an id, nothing seen before its commit."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from noesium_stream.errors import EventStoreError, EventValidationError, FencedError, RecordTooLargeError
from noesium_stream.log.headers import COMMIT, SEQUENCE
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.prepare import MAX_JOURNAL_BYTES
from noesium_stream.log.record import Record
from tests.support.backends import PARTITIONS, Backend, Open
from tests.support.events import counted, noted, outgoing
from tests.support.reading import Tail, eventually, numbers, stored


async def ready(log: EventLog, *topics: str) -> None:
    await log.ensure_topics([log.topology.spec(topic) for topic in topics])


def commit_of(record: Record) -> tuple[str, int, int]:
    value = record.header(COMMIT)
    assert value is not None
    commit_id, index, count = value.decode().rsplit(":", 2)
    return commit_id, int(index), int(count)


async def test_a_commit_lands_whole_in_all_its_topics(log: EventLog) -> None:
    journal, inbox = log.topology.journal("tester"), log.topology.inbox("librarian")
    await ready(log, journal, inbox)
    writer = await log.writer("w")
    records = [
        Outgoing(counted(1), journal, 2, "run-1"),
        Outgoing(counted(2), inbox, 0, "run-2", ((SEQUENCE, b"7"),)),
        Outgoing(counted(3), journal, 2, "run-1"),
        Outgoing(counted(4), journal, 3, "run-3"),
    ]
    positions = await writer.commit(records)
    assert [(position.topic, position.partition) for position in positions] == [
        (journal, 2),
        (inbox, 0),
        (journal, 2),
        (journal, 3),
    ]
    found = {
        Position(record.topic, record.partition, record.offset): record
        for topic in (journal, inbox)
        for record in await stored(log, topic)
    }
    assert [found[position].envelope for position in positions] == [record.envelope for record in records]
    assert [found[position].key for position in positions] == ["run-1", "run-2", "run-1", "run-3"]
    assert found[positions[1]].header(SEQUENCE) == b"7"
    assert found[positions[0]].header(SEQUENCE) is None


async def test_every_commit_numbers_its_records_per_partition(log: EventLog) -> None:
    journal, inbox = log.topology.journal("tester"), log.topology.inbox("librarian")
    await ready(log, journal, inbox)
    writer = await log.writer("w")
    await writer.commit(
        [*outgoing([counted(n) for n in range(3)], journal, 1), *outgoing([counted(9)], inbox, 1)]
    )
    await writer.commit(outgoing([counted(n) for n in range(3, 5)], journal, 1))
    commits = [commit_of(record) for record in await stored(log, journal)]
    assert [(index, count) for _, index, count in commits] == [(0, 3), (1, 3), (2, 3), (0, 2), (1, 2)]
    assert len({commit_id for commit_id, _, _ in commits[:3]}) == 1
    assert commits[3][0] != commits[0][0]
    [copy] = await stored(log, inbox)
    assert commit_of(copy) == (commits[0][0], 0, 1)


async def test_a_large_commit_is_one_commit(log: EventLog) -> None:
    journal = log.topology.journal("tester")
    await ready(log, journal)
    writer = await log.writer("w")
    positions = await writer.commit(outgoing([counted(n) for n in range(2500)], journal, 0))
    assert len(positions) == 2500
    records = await stored(log, journal)
    assert numbers(records) == list(range(2500))
    assert [record.offset for record in records] == [position.offset for position in positions]
    assert [commit_of(record)[1:] for record in records] == [(n, 2500) for n in range(2500)]


async def test_copies_of_one_event_go_to_several_topics_in_one_commit(log: EventLog) -> None:
    journal, inbox = log.topology.journal("tester"), log.topology.inbox("librarian")
    await ready(log, journal, inbox)
    writer = await log.writer("w")
    event = counted(1, "run")
    await writer.commit([Outgoing(event, inbox, 1, "run"), Outgoing(event, journal, 1, "run")])
    [sent], [kept] = await stored(log, inbox), await stored(log, journal)
    assert sent.envelope == kept.envelope == event


async def test_the_older_of_two_writers_with_one_id_is_fenced(log_factory: Open) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    journal = first_log.topology.journal("tester")
    await ready(first_log, journal)
    older = await first_log.writer("owner-0")
    await older.commit(outgoing([counted(1)], journal, 0))
    newer = await second_log.writer("owner-0")
    assert newer.epoch > older.epoch
    assert older.writer_id == newer.writer_id == "owner-0"
    with pytest.raises(FencedError, match="owner-0"):
        await older.commit(outgoing([counted(2)], journal, 0))
    await newer.commit(outgoing([counted(3)], journal, 0))
    with pytest.raises(EventStoreError):
        await older.commit(outgoing([counted(4)], journal, 0))
    assert numbers(await stored(first_log, journal)) == [1, 3]


async def test_writers_of_different_ids_do_not_fence_each_other(log: EventLog) -> None:
    journal = log.topology.journal("tester")
    await ready(log, journal)
    writers = [await log.writer(f"owner-{number}") for number in range(PARTITIONS)]
    for n in range(3):
        for number, writer in enumerate(writers):
            await writer.commit(outgoing([counted(n)], journal, number))
    records = await stored(log, journal)
    assert numbers(records) == [0, 1, 2] * PARTITIONS


async def test_closing_a_fenced_writer_does_not_fence_the_holder(log: EventLog) -> None:
    journal = log.topology.journal("tester")
    await ready(log, journal)
    older, newer = await log.writer("w"), await log.writer("w")
    await older.close()
    await older.close()
    await newer.commit(outgoing([counted(1)], journal, 0))
    assert numbers(await stored(log, journal)) == [1]


async def test_one_bad_event_among_good_ones_keeps_a_commit_out_and_the_writer_goes_on(log: EventLog) -> None:
    journal, inbox = log.topology.journal("tester"), log.topology.inbox("librarian")
    await ready(log, journal, inbox)
    writer = await log.writer("w")
    good = outgoing([counted(1)], inbox, 0)
    bad = Outgoing(counted(2).replace(payload={"n": "no number"}), journal, 0, "run")
    large = Outgoing(counted(3, text="x" * MAX_JOURNAL_BYTES), journal, 0, "run")
    with pytest.raises(EventValidationError):
        await writer.commit([*good, bad])
    with pytest.raises(RecordTooLargeError):
        await writer.commit([*good, large])
    with pytest.raises(EventValidationError, match="partition"):
        await writer.commit([*good, Outgoing(counted(4), journal, PARTITIONS, "run")])
    await writer.commit(outgoing([counted(5)], journal, 0))
    assert await stored(log, inbox) == []
    assert numbers(await stored(log, journal)) == [5]


async def test_nothing_of_an_open_transaction_is_seen_before_its_commit(log: EventLog) -> None:
    journal, inbox = log.topology.journal("tester"), log.topology.inbox("librarian")
    await ready(log, journal, inbox)
    writer = await log.writer("w")
    async with Tail(log, journal) as tail, Tail(log, inbox) as other:
        transaction = await writer.begin()
        await transaction.write(outgoing([counted(1), counted(2)], journal, 0))
        await transaction.write(outgoing([counted(3)], inbox, 0))
        assert tail.records == other.records == []
        positions = await transaction.commit()
        assert [position.topic for position in positions] == [journal, journal, inbox]
        assert numbers(await tail.has(2)) == [1, 2]
        assert numbers(await other.has(1)) == [3]


async def test_an_aborted_transaction_is_never_seen_and_its_writer_goes_on(log: EventLog) -> None:
    journal = log.topology.journal("tester")
    await ready(log, journal)
    writer = await log.writer("w")
    async with Tail(log, journal) as tail:
        for round_number in range(3):
            await writer.commit(outgoing([counted(round_number * 10)], journal, 0))
            transaction = await writer.begin()
            await transaction.write(outgoing([counted(round_number * 10 + 1)], journal, 0))
            await transaction.abort()
            await transaction.abort()
        assert numbers(await tail.has(3)) == [0, 10, 20]
    assert numbers(await stored(log, journal)) == [0, 10, 20]


async def test_what_a_writer_left_open_is_aborted_by_the_next_of_its_id(log_factory: Open) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    journal = first_log.topology.journal("tester")
    await ready(first_log, journal)
    crashed = await first_log.writer("w")
    transaction = await crashed.begin()
    await transaction.write(outgoing([counted(1)], journal, 0))
    successor = await second_log.writer("w")
    await successor.commit(outgoing([counted(2)], journal, 0))
    assert numbers(await stored(second_log, journal)) == [2]
    with pytest.raises(FencedError):
        await transaction.commit()
    assert numbers(await stored(second_log, journal)) == [2]


async def test_an_open_transaction_never_reorders_what_others_append(backend: Backend) -> None:
    log = await backend.open()
    inbox = log.topology.inbox("tester")
    await ready(log, inbox)
    envelopes = [counted(n, "k", metadata={"to": "tester"}) for n in range(3)]
    [first] = await log.append(envelopes[:1])
    writer = await log.writer("w")
    async with Tail(log, inbox) as tail:
        transaction = await writer.begin()
        await transaction.write(outgoing([noted(100)], inbox, first.partition))
        await log.append(envelopes[1:])
        if not backend.holds_back_readers:
            await tail.has(3)
        else:
            assert numbers(await tail.has(1)) == [0]
        await transaction.commit()
        live = numbers(await tail.has(4))
    records = await stored(log, inbox)
    assert numbers(records) == live
    assert sorted(live) == [0, 1, 2, 100]
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))


@pytest.mark.needs("holds_back_readers")
async def test_an_open_transaction_holds_back_readers_of_its_partition_alone(backend: Backend) -> None:
    log = await backend.open()
    inbox = log.topology.inbox("tester")
    await ready(log, inbox)
    writer, others = await log.writer("w"), await log.writer("v")
    transaction = await writer.begin()
    await transaction.write(outgoing([counted(1)], inbox, 0))
    await others.commit(outgoing([counted(2)], inbox, 0))
    await others.commit(outgoing([counted(3)], inbox, 1))
    end = await log.end(inbox)
    assert end[0] >= 2, "the high watermark lies beyond what is held back"
    async with Tail(log, inbox) as tail:
        assert numbers(await tail.has(1)) == [3]
        reading = asyncio.create_task(_read_to(log, inbox, end))
        await eventually(lambda: numbers(tail.records) == [3])
        assert not reading.done()
        await transaction.abort()
        assert sorted(numbers(await reading)) == [2, 3]
        assert sorted(numbers(await tail.has(2))) == [2, 3]


async def _read_to(log: EventLog, topic: str, end: dict[int, int]) -> list[Record]:
    return [record async for record in log.read(topic, {}, until=end)]


async def test_closing_a_writer_aborts_what_is_open(log: EventLog) -> None:
    journal = log.topology.journal("tester")
    await ready(log, journal)
    writer = await log.writer("w")
    transaction = await writer.begin()
    await transaction.write(outgoing([counted(1)], journal, 0))
    await writer.close()
    other = await log.writer("v")
    await other.commit(outgoing([counted(2)], journal, 0))
    assert numbers(await stored(log, journal)) == [2]
    with pytest.raises(EventStoreError):
        await writer.commit(outgoing([counted(3)], journal, 0))


async def test_a_writer_has_one_transaction_at_a_time(log: EventLog) -> None:
    journal = log.topology.journal("tester")
    await ready(log, journal)
    writer = await log.writer("w")
    transaction = await writer.begin()
    with pytest.raises(EventStoreError, match="open"):
        await writer.begin()
    with pytest.raises(EventStoreError, match="open"):
        await writer.commit(outgoing([counted(1)], journal, 0))
    await transaction.abort()
    await writer.commit(outgoing([counted(2)], journal, 0))
    assert numbers(await stored(log, journal)) == [2]


async def test_a_fold_to_the_end_sees_every_acknowledged_commit(log_factory: Open) -> None:
    writer_log, reader_log = await log_factory(), await log_factory()
    journal = writer_log.topology.journal("tester")
    await ready(writer_log, journal)
    writer = await writer_log.writer("w")
    for n in range(15):
        await writer.commit(outgoing([counted(n)], journal, 0))
        assert numbers(await stored(reader_log, journal)) == list(range(n + 1))


async def test_a_fold_after_taking_over_sees_every_commit_of_the_former_holder(log_factory: Open) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    journal = first_log.topology.journal("tester")
    await ready(first_log, journal)
    count = 0
    logs = [first_log, second_log]
    for turn in range(6):
        log = logs[turn % 2]
        writer = await log.writer("owner")
        assert numbers(await stored(log, journal)) == list(range(count))
        for _ in range(3):
            await writer.commit(outgoing([counted(count)], journal, 0))
            count += 1


async def test_gaps_in_offsets_are_no_gaps_in_what_is_read(log: EventLog) -> None:
    journal = log.topology.journal("tester")
    await ready(log, journal)
    writer = await log.writer("w")
    positions = []
    for n in range(10):
        positions += await writer.commit(outgoing([counted(n)], journal, 0))
        if n % 3 == 0:
            transaction = await writer.begin()
            await transaction.write(outgoing([noted(n)], journal, 0))
            await transaction.abort()
    for n, position in enumerate(positions):
        read = await stored(log, journal, {0: position.offset})
        assert numbers(read) == list(range(n, 10))
        read = await stored(log, journal, {0: position.offset + 1})
        assert numbers(read) == list(range(n + 1, 10))
    offsets = [position.offset for position in positions]
    assert offsets == sorted(set(offsets))


async def test_commits_of_many_writers_at_once_stay_whole(log: EventLog) -> None:
    topics = [log.topology.inbox("one"), log.topology.inbox("two")]
    await ready(log, *topics)

    async def work(number: int) -> None:
        writer = await log.writer(f"w{number}")
        for n in range(8):
            batch = [counted(number * 100 + n, text=str(i)) for i in range(3)]
            await writer.commit([*outgoing(batch, topics[0], 0), *outgoing(batch, topics[1], 1)])

    await asyncio.gather(*(work(number) for number in range(5)))
    for topic in topics:
        records = await stored(log, topic)
        counts = Counter(commit_of(record)[0] for record in records)
        assert len(counts) == 40
        assert set(counts.values()) == {3}
        for number in range(5):
            own = [n for n in numbers(records) if n // 100 == number]
            assert own == sorted(own)
