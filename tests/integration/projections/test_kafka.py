"""An attached projection on a Kafka whose topics are deleted, and that is away for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

from confluent_kafka.admin import AdminClient

from noesium_stream.log.broker.local import LocalBroker
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.projection.attached import AttachedProjection
from tests.integration.projections.test_attached import add, attach, expected, seen
from tests.support.attach import rows_in
from tests.support.events import catalogue, counted, sold
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S, eventually


async def opened(kafka: KafkaServer, namespace: str, partitions: int = 2) -> EventLog:
    return await open_log(f"{kafka.url(namespace)}&partitions={partitions}", catalogue=catalogue())


async def delete(kafka: KafkaServer, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    await asyncio.to_thread(admin.delete_topics([topic])[topic].result)


async def gone(log: EventLog, topic: str) -> None:
    async def away() -> bool:
        return topic not in await log.layout()

    await eventually(away)


async def test_a_topic_made_anew_between_two_starts_is_folded_from_its_beginning(
    kafka: KafkaServer, namespace: str, tmp_path: Path
) -> None:
    said: list[str] = []
    log = await opened(kafka, namespace)
    async with attach(log, tmp_path) as attached:
        await seen(attached, await add(log, 0, 40))
    topic = log.topology.events("demo")
    await delete(kafka, topic)
    await gone(log, topic)
    await log.close()
    log = await opened(kafka, namespace)
    places = await add(log, 0, 100)
    async with attach(log, tmp_path, report=said.append) as attached:
        await seen(attached, places)
        assert dict(attached.scan()) == expected(100)
    assert len(said) == 2, "one file per partition"
    assert all("deleted and made anew" in text for text in said)
    await log.close()


async def test_a_topic_made_anew_while_it_is_attached_is_folded_from_its_beginning(
    kafka: KafkaServer, namespace: str, tmp_path: Path
) -> None:
    said: list[str] = []
    log = await opened(kafka, namespace)
    async with attach(log, tmp_path, report=said.append) as attached:
        shop = await log.append([sold(n, f"s{n}") for n in range(20)])
        await seen(attached, [*await add(log, 0, 40), *shop])
        topic = log.topology.events("demo")
        await delete(kafka, topic)
        await gone(log, topic)
        other = await opened(kafka, namespace)
        places = await add(other, 0, 100)

        async def folded() -> bool:
            await seen(attached, places)
            return dict(attached.scan("k")) == expected(100)

        await eventually(folded)
        await seen(attached, [*await add(other, 100, 200), *shop])
        assert dict(attached.scan("k")) == expected(200)
        assert dict(attached.scan("s")) == {f"s{n}": [n] for n in range(20)}
    assert rows_in(tmp_path)["k1"] == expected(200)["k1"]
    await other.close()
    await log.close()


async def test_a_topic_that_is_deleted_for_good_leaves_the_others_alone(
    kafka: KafkaServer, namespace: str, tmp_path: Path
) -> None:
    log = await opened(kafka, namespace)
    async with attach(log, tmp_path) as attached:
        await seen(attached, [*await add(log, 0, 40), *await log.append([sold(1, "s")])])
        await delete(kafka, log.topology.events("demo"))
        await eventually(lambda: {tp.topic for tp in attached.assignment} == {log.topology.events("shop")})
        await seen(attached, await log.append([sold(2, "s")]))
        assert dict(attached.scan()) == {"s": [1, 2]}
    await log.close()


async def test_it_goes_on_by_itself_when_the_broker_was_away(own_broker: LocalBroker, tmp_path: Path) -> None:
    own_broker.up()
    said: list[str] = []
    url = f"{own_broker.status().url}?namespace=away&partitions=2"
    log = await open_log(url, catalogue=catalogue())
    async with AttachedProjection(
        log, attach(log, tmp_path).projection, tmp_path / "state", report=said.append, discover_interval=0.2
    ) as attached:
        await seen(attached, await add(log, 0, 100))
        await asyncio.to_thread(own_broker.kill)
        await eventually(lambda: said)
        assert "goes on when it can" in said[0]
        await asyncio.to_thread(own_broker.up)
        other = await open_log(url, catalogue=catalogue())
        places = await add(other, 100, 200)
        async with asyncio.timeout(PATIENCE_S):
            for place in places:
                await attached.wait_for(place)
        assert dict(attached.scan()) == expected(200)
        assert sum(fold.manifest.events for fold in attached.folds.values()) == 200
        await other.close()
    await log.close()


async def test_a_topic_with_other_partitions_than_before_is_folded_whole(
    kafka: KafkaServer, namespace: str, tmp_path: Path
) -> None:
    log = await opened(kafka, namespace)
    topic = log.topology.events("demo")
    async with attach(log, tmp_path) as attached:
        await seen(attached, await add(log, 0, 40))
        await delete(kafka, topic)
        await gone(log, topic)
        other = await opened(kafka, namespace, 3)
        places = await other.append([counted(n, f"k{n}") for n in range(30)])
        assert len({place.partition for place in places}) == 3

        async def folded() -> bool:
            return dict(attached.scan()) == {f"k{n}": [n] for n in range(30)}

        await eventually(folded)
        await seen(attached, places)
        await other.close()
    await log.close()
