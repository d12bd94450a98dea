"""Runs on a real Kafka, in this process: what the worker needs of the broker and memory:// cannot show."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from confluent_kafka.admin import AdminClient

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S
from tests.support.sample_agents import Asker, Echo


async def test_an_inbox_that_was_made_anew_is_read_from_its_beginning(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    url = f"{kafka.url('w' + secrets.token_hex(4))}&partitions=1"
    log = await open_log(url)
    inbox = log.topology.inbox("echo")
    async with Worker(log, [Echo], home=tmp_path), Client(log) as client:
        for number in range(5):
            run = await client.start("echo", {"text": f"before {number}"})
            await run.result(timeout=PATIENCE_S)
    await log.close()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    await asyncio.to_thread(admin.delete_topics([inbox])[inbox].result)
    log = await open_log(url)
    async with Client(log) as client:
        run = await client.start("echo", {"text": "after"})
        async with Worker(log, [Echo], home=tmp_path):
            assert await run.result(timeout=PATIENCE_S) == {"reply": "AFTER"}
    await log.close()


async def test_a_run_delegates_on_kafka_and_every_record_is_numbered(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    log = await open_log(f"{kafka.url('w' + secrets.token_hex(4))}&partitions=2")
    async with Worker(log, [Echo, Asker], home=tmp_path), Client(log) as client:
        run = await client.start("asker", {"words": ["a", "b"]})
        assert (await run.result(timeout=PATIENCE_S))["replies"] == ["A", "B"]
        for info in await client.list_runs():
            records = [r async for r in (await client.get_run(info.run_id)).records(follow=False)]
            numbers = [int(record.header("noesium_seq") or b"-1") for record in records]
            assert numbers == list(range(len(numbers)))
            assert records[-1].event_type == "run.completed"
    await log.close()
