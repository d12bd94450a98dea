"""A broker that its controller has fenced: it answers, but names no broker and no leader until it is back.

A machine that stood still for nine seconds does that to a lone broker. Here its heartbeats are too rare, so
that it is fenced for half of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from noesium_stream.log.broker.local import LocalBroker
from noesium_stream.log.kafka.offsets import list_offsets
from noesium_stream.log.open import open_log
from noesium_stream.log.port import Subscription
from noesium_stream.log.record import Record
from tests.support.events import catalogue, counted, outgoing
from tests.support.kafka import LOCAL_SETTINGS, count
from tests.support.reading import eventually, numbers, stored

TOPIC = "noesium.agent.tester.inbox"


class Flapping:
    """A lone broker that is fenced again and again."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.url = f"kafka://{bootstrap}?partitions=1"

    async def fenced(self, times: int = 1) -> None:
        """Return when it is fenced, or was so often and is it again."""
        await eventually(self._names_no_broker)
        for _ in range(times - 1):
            await eventually(lambda: not self._names_no_broker())
            await eventually(self._names_no_broker)

    def _names_no_broker(self) -> bool:
        try:
            return not AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=10).brokers
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError._PARTIAL)  # a new client says so of no broker


@pytest.fixture
def flapping(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Flapping]:
    rare = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "8000"}
    broker = LocalBroker(tmp_path, 0, settings={**LOCAL_SETTINGS, **rare})
    count(request.config, "kafka: own brokers of the Python packages")
    try:
        yield Flapping(broker.up().address.replace("localhost", "127.0.0.1"))
    finally:
        broker.kill()


async def test_topics_are_made_and_used_once_a_fenced_broker_is_back(flapping: Flapping) -> None:
    await flapping.fenced()
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(_used(flapping.url, f"t{number}"))


async def _used(url: str, namespace: str) -> None:
    log = await open_log(f"{url}&namespace={namespace}", catalogue=catalogue())
    inbox = log.topology.inbox("tester")
    await log.ensure_topics([log.topology.spec(inbox)])
    await log.append([counted(1)], topic=inbox)
    assert numbers(await stored(log, inbox)) == [1]
    await log.close()


async def test_a_client_that_has_seen_no_leader_finds_the_leader_that_is_back(flapping: Flapping) -> None:
    log = await open_log(flapping.url)
    await log.ensure_topics([log.topology.spec(TOPIC)])
    await log.close()
    await flapping.fenced()
    client = AdminClient({"bootstrap.servers": flapping.bootstrap})
    found = await list_offsets(
        lambda: client,
        lambda topic: asyncio.to_thread(client.list_topics, topic, 10),
        flapping.bootstrap,
        {TopicPartition(TOPIC, 0): OffsetSpec.latest()},
    )
    assert found == {(TOPIC, 0): 0}


async def test_members_and_writers_go_on_after_a_broker_that_was_fenced(flapping: Flapping) -> None:
    """A member that joins while no partition has a leader, and one that has been there for a while."""
    heard: dict[str, list[int]] = {"early": [], "late": []}
    log = await open_log(flapping.url, catalogue=catalogue())
    inbox, journal = log.topology.inbox("tester"), log.topology.journal("tester")
    await log.ensure_topics([log.topology.spec(topic) for topic in (inbox, journal)])
    writer = await log.writer("w")

    async def member(group: str) -> Subscription:
        async def hear(records: Sequence[Record]) -> None:
            heard[group] += numbers(records)

        return await log.subscribe(group, [inbox], hear)

    early = await member("early")
    await log.append([counted(1)], topic=inbox)
    await eventually(lambda: heard["early"] == [1])
    await flapping.fenced(4)
    late = await member("late")
    await log.append([counted(2)], topic=inbox)
    await eventually(lambda: heard == {"early": [1, 2], "late": [1, 2]})
    await writer.commit(outgoing([counted(3)], journal, 0))
    assert numbers(await stored(log, journal)) == [3]
    await early.close()
    await late.close()
    await log.close()
