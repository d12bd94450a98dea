"""A broker that takes no record of a size which a handler makes stops it at the event that it comes of."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from noesium_stream.agent import BaseHandler
from noesium_stream.clock import SystemClock
from noesium_stream.errors import EventHeldError
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.domain import DomainEvent
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.projection import Projection
from noesium_stream.worker import Worker
from tests.support.kafka import KafkaServer
from tests.support.reading import stored

COUNT = 12
LARGE = 7
LIMIT = 20_000
NOISE = secrets.token_hex(LIMIT)  # lz4 makes about half of it


class Asked(DomainEvent, event_type="texts.asked"):
    number: int


class Written(DomainEvent, event_type="letters.written"):
    number: int
    before: int
    text: str


class Counts(Projection[int]):
    name = "counts"
    topics = ("events.texts",)
    events = (Asked,)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + 1


class Writing(BaseHandler):
    agent_type = "writing"
    state = Counts
    events = (Written,)

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        number = event.payload["number"]
        yield Written(number=number, before=state, text=NOISE if number == LARGE else "")


async def written(log: EventLog) -> list[tuple[int, int]]:
    payloads = [record.envelope.payload for record in await stored(log, log.topology.events("letters"))]
    return [(payload["number"], payload["before"]) for payload in payloads]


async def test_what_a_broker_does_not_take_stops_the_handler_at_its_event(
    kafka: KafkaServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log(f"{kafka.url(namespace)}&partitions=1")
    for kind in (Asked, Written):
        log.catalogue.register(kind)
    topic = log.topology.events("letters")
    config = {
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "-1",
        "max.message.bytes": f"{LIMIT}",
    }
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    clock = SystemClock()
    trace = TraceContext(clock.token(16), clock.token(8))
    me = AgentRef("x", "x")
    await log.append(
        [Asked(number=n).to_envelope(me, trace, partition_key="a", clock=clock) for n in range(COUNT)]
    )
    for _ in range(2):  # the next process meets it again
        async with Worker(log, [(Writing, None)], home=tmp_path) as worker:
            with pytest.raises(EventHeldError) as held:
                await asyncio.wait_for(worker.wait(), 60)
        assert await written(log) == [(number, number) for number in range(LARGE)]
    message = held.value.message
    assert message.startswith("The handler writing stops. It cannot take the event at ")
    assert f"{namespace}.events.texts/0@" in message
    assert "(texts.asked): RecordTooLargeError: letters.written " in message
    assert " has 40," in message, "how many bytes it has"
    assert message.endswith(f" bytes; the topic {topic} takes 20,000 at once (max.message.bytes).")
    assert "let the topic take more (max.message.bytes)" in (held.value.hint or "")
    monkeypatch.setattr(f"{__name__}.NOISE", "")
    async with Worker(log, [(Writing, None)], home=tmp_path), asyncio.timeout(60):
        while len(found := await written(log)) < COUNT:
            await asyncio.sleep(0.05)
    assert found == [(number, number) for number in range(COUNT)]
    await log.close()
