"""A writer that is not told where its records lie commits as any other, and says what is wrong as plainly."""

from __future__ import annotations

import secrets

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from noesium_stream.errors import FencedError, RecordTooLargeError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, Outgoing
from tests.support.events import catalogue, counted
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S, numbers, stored


async def opened(kafka: KafkaServer, namespace: str) -> EventLog:
    log = await open_log(kafka.url(namespace), catalogue=catalogue())
    topic = NewTopic(
        log.topology.events("demo"),
        2,
        1,
        config={"message.timestamp.type": "LogAppendTime", "retention.ms": "-1", "max.message.bytes": "4000"},
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([topic])[topic.topic].result(PATIENCE_S)
    return log


def outgoing(log: EventLog, event: EventEnvelope, partition: int = 0) -> Outgoing:
    return Outgoing(event, log.topology.events("demo"), partition, "k")


async def test_what_the_broker_does_not_take_is_named_and_nothing_of_the_commit_is_there(
    kafka: KafkaServer, namespace: str
) -> None:
    log = await opened(kafka, namespace)
    writer = await log.writer("w")
    writer.tells_positions = False
    assert await writer.commit([outgoing(log, counted(1)), outgoing(log, counted(2), 1)]) == []
    large = counted(3).replace(metadata={"noise": secrets.token_hex(8_000)})
    with pytest.raises(RecordTooLargeError):
        await writer.commit([outgoing(log, counted(4)), outgoing(log, large, 1)])
    assert await writer.commit([outgoing(log, counted(5))]) == []
    assert sorted(numbers(await stored(log, log.topology.events("demo")))) == [1, 2, 5]
    await log.close()


@pytest.mark.parametrize("records", [1, 500, 2_000, 20_000])
@pytest.mark.parametrize("told", [False, True])
async def test_who_was_fenced_hears_so(kafka: KafkaServer, namespace: str, told: bool, records: int) -> None:
    """Of many records the client sends the first ones, and hears of the fence, while it is given the rest."""
    log = await opened(kafka, namespace)
    writer = await log.writer("w")
    writer.tells_positions = told
    await writer.commit([outgoing(log, counted(1))])
    following = await log.writer("w")
    with pytest.raises(FencedError):
        await writer.commit([outgoing(log, counted(2))] * records)
    await following.commit([outgoing(log, counted(3))])
    assert numbers(await stored(log, log.topology.events("demo"))) == [1, 3]
    await log.close()
