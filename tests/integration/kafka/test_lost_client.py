"""Clients that have lost their cluster for good are replaced, and nothing is missed.

librdkafka loses a cluster by chance, when all brokers are fenced (`test_fenced.py`). Here it is said to have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import pytest
from confluent_kafka import Consumer

from noesium_stream.log.kafka import bounded_reader
from noesium_stream.log.kafka.group import subscription
from noesium_stream.log.kafka.lost_client import is_lost
from noesium_stream.log.kafka.probe import KAFKA_LOGGER
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.open import open_log
from noesium_stream.log.port import TopicPartition
from noesium_stream.log.record import Record
from tests.support.events import catalogue, counted, outgoing
from tests.support.kafka import KafkaServer
from tests.support.ports import dead_port
from tests.support.reading import eventually, numbers, stored


@pytest.fixture
def dead() -> Iterator[str]:
    """An address at which nobody answers."""
    with dead_port() as port:
        yield f"127.0.0.1:{port}"


def consumer(bootstrap: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "g"}, logger=KAFKA_LOGGER)


def test_only_a_client_that_a_new_one_would_better_is_lost(kafka: KafkaServer, dead: str) -> None:
    lost = consumer(dead)
    # A busy broker may need longer for its answer than one question waits.
    assert any(is_lost(lost, KafkaSettings(kafka.bootstrap)) for _ in range(10))
    assert not is_lost(consumer(kafka.bootstrap), KafkaSettings(kafka.bootstrap))
    assert not is_lost(consumer(dead), KafkaSettings(dead))


class SaidToBeLost:
    """In the place of `is_lost`: true once, of the first client that has read three records."""

    def __init__(self) -> None:
        self.lost: Consumer | None = None
        self.replaced = False

    def __call__(self, client: Consumer, settings: KafkaSettings, topic: str) -> bool:
        if self.lost is not None:
            self.replaced |= client is not self.lost
        elif any(tp.offset >= 3 for tp in client.position(client.assignment())):
            self.lost = client
            return True
        return False


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> SaidToBeLost:
    said = SaidToBeLost()
    for module in (subscription, bounded_reader):
        monkeypatch.setattr(module, "is_lost", said)
    monkeypatch.setattr(subscription, "LOOK_AFTER_S", 0.0)
    monkeypatch.setattr(bounded_reader, "_ASK_AFTER_S", 0.0)
    return said


async def test_a_member_joins_again_and_goes_on(
    kafka: KafkaServer, namespace: str, lost: SaidToBeLost
) -> None:
    log = await open_log(f"{kafka.url(namespace)}&partitions=1", catalogue=catalogue())
    inbox = log.topology.inbox("tester")
    await log.ensure_topics([log.topology.spec(inbox)])
    heard, told = list[int](), list[str]()

    async def hear(records: Sequence[Record]) -> None:
        heard.extend(numbers(records))

    async def assigned(tps: frozenset[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        told.append("assigned")
        return {tp: len(heard) for tp in tps}

    async def revoked(tps: frozenset[TopicPartition]) -> None:
        told.append("revoked")

    member = await log.subscribe("g", [inbox], hear, on_assigned=assigned, on_revoked=revoked)
    for number in range(1, 4):
        await log.append([counted(number)], topic=inbox)
    await eventually(lambda: lost.replaced and "revoked" in told)
    await log.append([counted(4)], topic=inbox)
    await eventually(lambda: heard == [1, 2, 3, 4])
    assert told[:3] == ["assigned", "revoked", "assigned"]
    await member.close()
    await log.close()


async def test_a_read_up_to_an_end_goes_on_where_it_was(
    kafka: KafkaServer, namespace: str, lost: SaidToBeLost
) -> None:
    log = await open_log(f"{kafka.url(namespace)}&partitions=1", catalogue=catalogue())
    journal = log.topology.journal("tester")
    await log.ensure_topics([log.topology.spec(journal)])
    writer = await log.writer("w")
    await writer.commit(outgoing([counted(number) for number in range(1, 4)], journal, 0))
    before = (await log.end(journal))[0]
    transaction = await writer.begin()
    await transaction.write(outgoing([counted(4)], journal, 0))

    async def behind_the_transaction() -> bool:
        return (await log.end(journal))[0] > before

    await eventually(behind_the_transaction)
    reading = asyncio.create_task(stored(log, journal))
    await eventually(lambda: lost.replaced)
    await transaction.commit()
    assert numbers(await reading) == [1, 2, 3, 4]
    await log.close()
