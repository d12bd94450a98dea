"""Appending: all or none, where the key says, never into a journal."""

from __future__ import annotations

import pytest

from noesium_stream.errors import ConfigError, EventValidationError, RecordTooLargeError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog, Position
from noesium_stream.log.prepare import MAX_RECORD_BYTES
from noesium_stream.log.topics import partition_of
from tests.support.backends import PARTITIONS, Open
from tests.support.events import PRODUCER, TRACE, counted, noted, sold
from tests.support.reading import numbers, stored


def invalid(key: str) -> EventEnvelope:
    good = counted(0, key)
    return good.replace(payload={"n": "not a number"})


async def test_a_record_lies_in_the_partition_that_murmur2_of_its_key_names(log: EventLog) -> None:
    keys = [f"run-{number}" for number in range(40)]
    positions = await log.append([counted(n, key) for n, key in enumerate(keys)])
    assert [position.partition for position in positions] == [partition_of(key, PARTITIONS) for key in keys]
    assert {position.partition for position in positions} == set(range(PARTITIONS))


async def test_positions_say_where_each_record_is_read(log: EventLog) -> None:
    envelopes = [counted(n, f"k{n % 7}") for n in range(30)] + [sold(n, f"k{n % 3}") for n in range(10)]
    positions = await log.append(envelopes)
    found = {}
    for topic in (log.topology.events("demo"), log.topology.events("shop")):
        for record in await stored(log, topic):
            found[Position(record.topic, record.partition, record.offset)] = record.envelope
    assert [found[position] for position in positions] == envelopes


async def test_events_of_one_key_keep_their_order(log: EventLog) -> None:
    for start in range(0, 60, 6):
        await log.append([counted(n, f"k{n % 3}") for n in range(start, start + 6)])
    records = await stored(log, log.topology.events("demo"))
    for key in ("k0", "k1", "k2"):
        of_key = numbers([record for record in records if record.key == key])
        assert of_key == sorted(of_key)
        assert len(of_key) == 20


async def test_one_bad_event_among_good_ones_keeps_all_out(log: EventLog) -> None:
    await log.append([counted(1, "a")])
    before = await log.end(log.topology.events("demo"))
    with pytest.raises(EventValidationError, match="payload"):
        await log.append([counted(2, "a"), noted(3, "b"), invalid("c"), counted(4, "d")])
    assert await log.end(log.topology.events("demo")) == before
    assert numbers(await stored(log, log.topology.events("demo"))) == [1]


async def test_a_record_that_is_too_large_keeps_all_out(log: EventLog) -> None:
    await log.append([counted(1, "a")])
    before = await log.end(log.topology.events("demo"))
    with pytest.raises(RecordTooLargeError, match=r"demo\.counted"):
        await log.append([counted(2, "a"), counted(3, "a", text="x" * MAX_RECORD_BYTES), counted(4, "a")])
    assert await log.end(log.topology.events("demo")) == before


async def test_a_record_just_below_the_limit_goes_through(log: EventLog) -> None:
    large = counted(1, "a", text="x" * (MAX_RECORD_BYTES - 2000))
    await log.append([large])
    [record] = await stored(log, log.topology.events("demo"))
    assert record.envelope == large


async def test_a_journal_is_refused(log: EventLog) -> None:
    journal = log.topology.journal("tester")
    with pytest.raises(EventValidationError, match="journal"):
        await log.append([counted(1, "a")], topic=journal)
    assert journal not in [topic.name for topic in await log.topics()]


async def test_a_topic_of_another_namespace_is_refused(log: EventLog) -> None:
    with pytest.raises(ConfigError, match="elsewhere"):
        await log.append([counted(1, "a")], topic="elsewhere.events.demo")


async def test_a_request_goes_to_the_inbox_of_the_agent_type_that_it_names(log: EventLog) -> None:
    request = counted(1, "run", metadata={"to": "librarian"})
    position = await log.publish(request)
    assert position.topic == log.topology.inbox("librarian")
    [record] = await stored(log, position.topic)
    assert record.envelope == request


async def test_a_named_topic_stands_above_the_route(log: EventLog) -> None:
    event = counted(1, "run")
    [position] = await log.append([event], topic=log.topology.dlq)
    assert position.topic == log.topology.dlq
    assert [record.envelope for record in await stored(log, log.topology.dlq)] == [event]


async def test_an_append_of_nothing_is_nothing(log: EventLog) -> None:
    assert await log.append([]) == []
    assert await log.topics() == []


async def test_an_event_without_a_key_is_ordered_by_its_correlation_else_by_itself(log: EventLog) -> None:
    by_correlation = counted(1, correlation_id="the-correlation")
    alone = counted(2)
    await log.append([by_correlation, alone])
    keys = {record.envelope.event_id: record.key for record in await stored(log, log.topology.events("demo"))}
    assert keys == {by_correlation.event_id: "the-correlation", alone.event_id: alone.event_id}


async def test_every_record_has_the_headers_of_cloudevents_and_of_trace_context(log: EventLog) -> None:
    event = counted(1, "run")
    await log.append([event])
    [record] = await stored(log, log.topology.events("demo"))
    headers = dict(record.headers)
    assert headers["ce_specversion"] == b"1.0"
    assert headers["ce_id"].decode() == event.event_id
    assert headers["ce_type"] == b"demo.counted"
    assert headers["ce_source"] == f"/agents/{PRODUCER.agent_type}/{PRODUCER.agent_id}".encode()
    assert headers["ce_time"].decode() == event.to_dict()["timestamp"]
    assert headers["traceparent"] == f"00-{TRACE.trace_id}-{TRACE.span_id}-01".encode()
    assert record.event_type == "demo.counted"


async def test_two_logs_on_one_store_append_between_each_other_and_lose_nothing(log_factory: Open) -> None:
    first, second = await log_factory(), await log_factory()
    for n in range(0, 40, 2):
        await first.append([counted(n, "k")])
        await second.append([counted(n + 1, "k")])
    assert numbers(await stored(first, first.topology.events("demo"))) == list(range(40))
