"""A broker that takes no record of a size which a handler makes stops it at the event that it comes of."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from noesium_stream.errors import EventHeldError
from noesium_stream.log import open_log
from noesium_stream.log.record import Record
from noesium_stream.worker import Worker
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S, Tail, stored
from tests.support.writing import Writing, ask

COUNT = 12
LARGE = 7
LIMIT = 20_000
NOISE = secrets.token_hex(LIMIT)  # lz4 makes about half of it


def letters(records: Sequence[Record]) -> list[tuple[int, int]]:
    payloads = [record.envelope.payload for record in records]
    return [(payload["number"], payload["before"]) for payload in payloads]


def two_of_each(count: int) -> list[tuple[int, int]]:
    return [(number, number) for number in range(count) for _ in range(2)]


async def test_what_a_broker_does_not_take_stops_the_handler_at_its_event(
    kafka: KafkaServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log(f"{kafka.url(namespace)}&partitions=1")
    topic = log.topology.events("letters")
    config = {
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "-1",
        "max.message.bytes": f"{LIMIT}",
    }
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(PATIENCE_S)
    await ask(log, COUNT)
    monkeypatch.setattr(Writing, "texts", {LARGE: NOISE})
    for _ in range(2):  # the next process meets it again
        async with Worker(log, [Writing], home=tmp_path) as worker:
            with pytest.raises(EventHeldError) as held:
                await asyncio.wait_for(worker.wait(), PATIENCE_S)
        assert letters(await stored(log, topic)) == two_of_each(LARGE)
    message = held.value.message
    assert message.startswith("The handler writing stops. It cannot take the event at ")
    assert f"{namespace}.events.texts/0@" in message
    assert "(texts.asked): RecordTooLargeError: letters.written " in message
    assert " has 40," in message, "how many bytes it has"
    assert message.endswith(f" bytes; the topic {topic} takes 20,000 at once (max.message.bytes).")
    assert "let the topic take more (max.message.bytes)" in (held.value.hint or "")
    Writing.texts.clear()
    async with Tail(log, topic) as tail:
        async with Worker(log, [Writing], home=tmp_path):
            await tail.has(2 * COUNT)
        assert letters(tail.records) == two_of_each(COUNT)
    await log.close()
