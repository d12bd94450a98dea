"""Batches that are small packed and huge unpacked: every reader goes on behind them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaProducer

from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, Position
from noesium_stream.log.record import Record
from tests.support.events import catalogue, counted
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S

HUGE = 150_000_000
RECORDS = 3


async def bombed(kafka: KafkaServer, namespace: str, packed: str) -> tuple[EventLog, str]:
    """A log with an event, a batch of large records, and another event."""
    log = await open_log(
        f"kafka://{kafka.bootstrap}?partitions=1&namespace={namespace}", catalogue=catalogue()
    )
    topic = log.topology.events("demo")
    await log.append([counted(1, "k")])
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap,
        max_request_size=2**31 - 1,
        max_batch_size=2**31 - 1,
        compression_type=packed,
        request_timeout_ms=120_000,
    )
    await producer.start()
    batch = producer.create_batch()
    for _ in range(RECORDS):
        batch.append(key=b"k", value=bytes(HUGE), timestamp=None)
    await (await producer.send_batch(batch, topic, partition=0))
    await producer.stop()
    await log.append([counted(2, "k")])
    return log, topic


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "noesium_stream.log.kafka.unpacking")
    return caplog


def offsets_told(told: pytest.LogCaptureFixture, topic: str) -> list[int]:
    """The offsets at which a batch was passed over."""
    lines = [record.getMessage() for record in told.records if record.getMessage().startswith(topic)]
    assert all("is passed over" in line for line in lines)
    return [int(line.partition("@")[2].partition(":")[0]) for line in lines]


async def test_a_bounded_reader_goes_on_behind_it(
    kafka: KafkaServer, namespace: str, told: pytest.LogCaptureFixture
) -> None:
    log, topic = await bombed(kafka, namespace, "zstd")
    found = [record async for record in log.read(topic, {}, until=await log.end(topic))]
    assert [record.envelope.payload["n"] for record in found] == [1, 2]
    assert offsets_told(told, topic) == [1, 2, 3]
    await log.close()


async def test_a_member_of_a_group_goes_on_behind_it(
    kafka: KafkaServer, namespace: str, told: pytest.LogCaptureFixture
) -> None:
    log, topic = await bombed(kafka, namespace, "zstd")
    seen: list[Position] = []
    done = asyncio.Event()

    async def handle(records: Sequence[Record]) -> None:
        seen.extend(Position(record.topic, record.partition, record.offset) for record in records)
        if records[-1].offset == RECORDS + 1:
            done.set()

    subscription = await log.subscribe("g", [topic], handle)
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
    await subscription.close()
    assert [position.offset for position in seen] == [0, RECORDS + 1]
    assert offsets_told(told, topic) == [1, 2, 3]
    await log.close()


@pytest.mark.parametrize("packed", ["zstd", "gzip"])
async def test_a_live_reader_goes_on_behind_it(
    kafka: KafkaServer, namespace: str, told: pytest.LogCaptureFixture, packed: str
) -> None:
    log, topic = await bombed(kafka, namespace, packed)
    async with asyncio.timeout(PATIENCE_S):
        found = []
        async for record in log.read(topic, {0: 0}):
            found.append(record.offset)
            if record.offset == RECORDS + 1:
                break
    assert found == [0, RECORDS + 1]
    assert offsets_told(told, topic) == [1, 2, 3]
    await log.close()
