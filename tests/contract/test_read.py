"""Reading: cursors, `until`, live tails, filters that do not decode, and records that cannot be decoded."""

from __future__ import annotations

import asyncio

import pytest

from noesium_stream.clock import SystemClock
from noesium_stream.errors import (
    CorruptRecordError,
    EventValidationError,
    LogClosedError,
    LogTruncatedError,
    TopicNotFoundError,
)
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import partition_of
from tests.support.backends import PARTITIONS, Backend, Open
from tests.support.events import counted, noted
from tests.support.reading import Tail, eventually, numbers, stored


async def test_a_cursor_goes_on_where_it_left_off(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(50)])
    cursor: dict[int, int] = {}
    seen = []
    end = await log.end(topic)
    while len(seen) < 50:
        async for record in log.read(topic, cursor, until=end):
            seen.append(record.envelope.payload["n"])
            cursor[record.partition] = record.offset + 1
            if len(seen) % 7 == 0:
                break
    assert sorted(seen) == list(range(50))


async def test_until_is_where_reading_ends_also_when_more_has_come(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(20)])
    end = await log.end(topic)
    await log.append([counted(n, f"k{n}") for n in range(20, 40)])
    read = [record async for record in log.read(topic, {}, until=end)]
    assert sorted(numbers(read)) == list(range(20))


async def test_partitions_that_until_does_not_name_are_not_read(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(40)])
    end = await log.end(topic)
    read = [record async for record in log.read(topic, {}, until={1: end[1], 2: end[2]})]
    assert {record.partition for record in read} == {1, 2}


async def test_only_the_partitions_that_are_asked_for_are_read_up_to_an_end(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(40)])
    end = await log.end(topic)
    everything = await stored(log, topic)
    read = [record async for record in log.read(topic, {}, until=end, partitions=[1, 3])]
    assert sorted(numbers(read)) == sorted(numbers([r for r in everything if r.partition in (1, 3)]))
    both = [record async for record in log.read(topic, end, until={0: end[0], 1: end[1]}, partitions={2, 3})]
    none = [batch async for batch in log.read_batches(topic, {}, until=end, partitions=())]
    assert both == none == []


async def test_only_the_partitions_that_are_asked_for_are_read_live(log: EventLog) -> None:
    topic = log.topology.events("demo")
    keys = {partition_of(f"k{n}", PARTITIONS): f"k{n}" for n in range(40)}
    await log.append([counted(n, keys[n % PARTITIONS]) for n in range(40)])
    async with Tail(log, topic, partitions=(2,)) as tail:
        await tail.has(10)
        await log.append([counted(n, keys[n % PARTITIONS]) for n in range(40, 80)])
        assert numbers(await tail.has(20)) == list(range(2, 80, PARTITIONS))
    assert [record async for record in log.read(topic, {}, partitions=[])] == []


async def test_other_partitions_are_not_asked_whether_a_cursor_is_still_good(log: EventLog) -> None:
    topic = log.topology.events("demo")
    keys = {partition_of(f"k{n}", PARTITIONS): f"k{n}" for n in range(40)}
    await log.append([counted(n, keys[n % PARTITIONS]) for n in range(40)])
    end = await log.end(topic)
    await log.truncate(topic, {0: end[0]})
    for until in (None, end):
        async for record in log.read(topic, {0: 0, 1: 0}, until=until, partitions=(1,)):
            assert numbers([record]) == [1]
            break


async def test_a_partition_that_does_not_exist_is_an_error_that_names_it(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(0, "k")])
    end = await log.end(topic)
    for until in (None, end):
        for wrong in (PARTITIONS, -1):
            for cursor, partitions in (({wrong: 0}, None), ({}, (0, wrong))):
                with pytest.raises(EventValidationError, match=f"{topic} has partitions 0 to 3, not {wrong}"):
                    await anext(aiter(log.read(topic, cursor, until=until, partitions=partitions)))


async def test_reading_to_an_end_that_is_reached_already_ends_at_once(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(10)])
    end = await log.end(topic)
    assert [record async for record in log.read(topic, end, until=end)] == []
    assert [record async for record in log.read(topic, {}, until={})] == []


async def test_reading_without_until_goes_on_live(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(0, "k")])
    async with Tail(log, topic) as tail:
        await tail.has(1)
        for n in range(1, 30):
            await log.append([counted(n, "k")])
        assert numbers(await tail.has(30)) == list(range(30))


async def test_a_tail_on_one_log_sees_what_another_log_appends(log_factory: Open) -> None:
    reader, writer = await log_factory(), await log_factory()
    topic = reader.topology.events("demo")
    await writer.append([counted(0, "k")])
    async with Tail(reader, topic) as tail:
        await tail.has(1)
        await writer.append([counted(1, "k"), counted(2, "k")])
        assert numbers(await tail.has(3)) == [0, 1, 2]


async def test_batches_hold_the_same_records_as_the_reader(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n % 5}") for n in range(200)])
    end = await log.end(topic)
    batches = [batch async for batch in log.read_batches(topic, {}, until=end)]
    assert all(batches)
    offsets = [(record.partition, record.offset) for batch in batches for record in batch]
    assert sorted(offsets) == [(record.partition, record.offset) for record in await stored(log, topic)]
    for partition in range(PARTITIONS):
        own = [offset for number, offset in offsets if number == partition]
        assert own == sorted(own)


async def test_types_keep_exact_names_and_prefixes(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(1, "k"), noted(2, "k"), counted(3, "k")])
    assert numbers(await stored(log, topic, types=["demo.counted"])) == [1, 3]
    assert numbers(await stored(log, topic, types=["demo.noted."])) == [2]
    assert numbers(await stored(log, topic, types=["demo."])) == [1, 2, 3]
    assert numbers(await stored(log, topic, types=["demo.noted"])) == []
    assert numbers(await stored(log, topic, types=[])) == []


async def test_a_type_filter_decodes_nothing(backend: Backend) -> None:
    log = await backend.open()
    topic = log.topology.events("demo")
    partition = partition_of("k", PARTITIONS)
    await log.append([counted(1, "k")])
    headers = [("ce_type", b"demo.noted.twice"), ("ce_id", b"x")]
    await backend.inject(topic, partition, "k", headers, b"\xff no envelope at all")
    await log.append([counted(2, "k")])
    assert numbers(await stored(log, topic, types=["demo.counted"])) == [1, 2]
    [other] = await stored(log, topic, types=["demo.noted."])
    assert other.header("ce_id") == b"x"


async def test_a_corrupt_record_is_named_and_reading_goes_on_behind_it(backend: Backend) -> None:
    log = await backend.open()
    topic = log.topology.events("demo")
    partition = partition_of("k", PARTITIONS)
    [before] = await log.append([counted(1, "k")])
    await backend.inject(topic, partition, "k", [("ce_type", b"demo.counted")], b"\xc3\x01 torn")
    [after] = await log.append([counted(2, "k")])
    seen: list[int] = []
    corrupt: list[CorruptRecordError] = []
    async for record in log.read(topic, {}, until=await log.end(topic)):
        try:
            seen.append(record.envelope.payload["n"])
        except CorruptRecordError as error:
            corrupt.append(error)
    assert seen == [1, 2]
    [error] = corrupt
    assert (error.topic, error.partition) == (topic, partition)
    assert before.offset < error.offset < after.offset
    assert f"{topic}/{partition}@{error.offset}" in str(error)


async def test_a_cursor_below_the_first_retained_offset_is_an_error_that_names_both(log: EventLog) -> None:
    topic = log.topology.events("demo")
    positions = await log.append([counted(n, "k") for n in range(10)])
    partition, first = positions[4].partition, positions[4].offset
    # A transaction's marker takes an offset and may come after the commit; who has read all has met it.
    assert len(await stored(log, topic)) == 10
    end = await log.end(topic)
    await log.truncate(topic, {partition: first})
    assert (await log.beginning(topic))[partition] == first
    assert await log.end(topic) == end
    for wanted in (positions[0].offset, positions[3].offset):
        with pytest.raises(LogTruncatedError) as caught:
            async for _ in log.read(topic, {partition: wanted}, until={partition: first + 1}):
                pass
        error = caught.value
        assert (error.topic, error.partition, error.wanted, error.first) == (topic, partition, wanted, first)
    assert numbers(await stored(log, topic)) == [4, 5, 6, 7, 8, 9]
    assert numbers(await stored(log, topic, {partition: positions[6].offset})) == [6, 7, 8, 9]


async def test_offsets_go_on_after_everything_was_truncated(log: EventLog) -> None:
    topic = log.topology.events("demo")
    positions = await log.append([counted(n, "k") for n in range(5)])
    partition = positions[0].partition
    # A transaction's marker takes an offset and may come after the commit; who has read all has met it.
    assert len(await stored(log, topic)) == 5
    end = (await log.end(topic))[partition]
    await log.truncate(topic, {partition: end})
    assert await stored(log, topic) == []
    assert (await log.beginning(topic))[partition] == (await log.end(topic))[partition] == end
    [next_one] = await log.append([counted(5, "k")])
    assert next_one.offset >= end
    assert numbers(await stored(log, topic)) == [5]


async def test_who_has_not_looked_since_a_truncation_appends_at_the_end(log_factory: Open) -> None:
    idle, busy = await log_factory(), await log_factory()
    topic = idle.topology.events("demo")
    [first] = await idle.append([counted(0, "k")])
    # While one process is idle, another one appends, and retention takes away where the idle one was.
    await busy.append([counted(1, "k")])
    last = (await busy.append([counted(2, "k"), counted(3, "k")]))[-1]
    await busy.truncate(topic, {first.partition: last.offset})
    [next_one] = await idle.append([counted(4, "k")])
    assert next_one.offset > last.offset
    assert numbers(await stored(busy, topic)) == [3, 4]


async def test_a_reader_that_waited_at_the_end_hears_of_a_truncation_beyond_it(log_factory: Open) -> None:
    idle, busy = await log_factory(), await log_factory()
    topic = idle.topology.events("demo")
    [first] = await idle.append([counted(0, "k")])
    assert numbers(await stored(idle, topic)) == [0]
    end = (await idle.end(topic))[first.partition]
    await busy.append([counted(1, "k")])
    last = (await busy.append([counted(2, "k"), counted(3, "k")]))[-1]
    await busy.truncate(topic, {first.partition: last.offset})
    with pytest.raises(LogTruncatedError):
        async for _ in idle.read(topic, {first.partition: end}, until={first.partition: last.offset + 1}):
            pass


async def test_a_topic_that_is_not_there_is_an_error_that_names_it(log: EventLog) -> None:
    topic = log.topology.events("nowhere")
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        await anext(log.read(topic, {}))
    for question in (log.end, log.beginning, log.last_offset, log.topic_id):
        with pytest.raises(TopicNotFoundError, match="nowhere"):
            await question(topic)


async def test_the_end_is_where_the_next_record_comes_after_all_that_is_there(log: EventLog) -> None:
    topic = log.topology.events("demo")
    positions = await log.append([counted(n, f"k{n}") for n in range(20)])
    end, beginning = await log.end(topic), await log.beginning(topic)
    assert set(end) == set(beginning) == set(range(PARTITIONS))
    for position in positions:
        assert beginning[position.partition] <= position.offset < end[position.partition]
    last = await log.last_offset(topic)
    assert sum(end.values()) <= last <= sum((await log.end(topic)).values())


async def test_append_times_never_run_backwards_and_are_the_logs(log: EventLog) -> None:
    topic = log.topology.events("demo")
    started = SystemClock().now_ms()
    for n in range(5):
        await log.append([counted(n, "k").replace(timestamp_ms=1000 - n)])
    times = [record.timestamp_ms for record in await stored(log, topic)]
    assert times == sorted(times)
    assert started - 60_000 <= times[0] <= times[-1] <= SystemClock().now_ms() + 60_000


async def test_what_is_correlated_is_found_in_several_topics(log: EventLog) -> None:
    await log.append([counted(n, "k", correlation_id=f"c{n % 2}") for n in range(6)])
    await log.append(
        [counted(n, "k", correlation_id=f"c{n % 2}") for n in range(6, 10)], topic=log.topology.dlq
    )
    await log.append([counted(99, "c1", text="speaks of c1 only")])
    topics = [log.topology.events("demo"), log.topology.dlq]
    found = [record async for record in log.read_by_correlation("c1", topics)]
    assert numbers(found) == [1, 3, 5, 7, 9]


async def test_a_closed_log_says_so(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(1, "k")])
    async with Tail(log, topic) as tail:
        await tail.has(1)
        await log.close()
        await log.close()
        with pytest.raises(LogClosedError):
            await tail.has(2)
    with pytest.raises(LogClosedError):
        await log.append([counted(2, "k")])
    with pytest.raises(LogClosedError):
        await log.end(topic)


async def test_many_tails_each_see_everything(log: EventLog) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(0, "k")])
    tails = [Tail(log, topic) for _ in range(5)]
    try:
        await asyncio.gather(*(log.append([counted(n, f"k{n}")]) for n in range(1, 20)))
        for tail in tails:
            assert sorted(numbers(await tail.has(20))) == list(range(20))
    finally:
        for tail in tails:
            await tail.__aexit__()
    await eventually(lambda: all(tail._task.done() for tail in tails))


async def test_a_cursor_beyond_the_end_gives_nothing_and_never_another_partitions_records(
    log: EventLog,
) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(20)])
    end = await log.end(topic)
    for offset in (end[0] + 1, 2**39, 2**62):
        assert [record async for record in log.read(topic, {0: offset}, until={0: end[0]})] == []
