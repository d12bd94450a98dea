"""The connection of the admin client: what happens to others when a client is replaced."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.kafka import admin_connection
from noesium_stream.log.kafka.admin_connection import AdminConnection
from noesium_stream.log.kafka.settings import KafkaSettings
from tests.support.ports import dead_port
from tests.support.reading import PATIENCE_S


async def test_who_awaits_an_answer_of_a_replaced_client_still_gets_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin_connection, "is_lost", lambda *_: True)
    monkeypatch.setattr(admin_connection, "PATIENCE_S", 0.3)
    monkeypatch.setattr(admin_connection, "REQUEST_S", 0.2)
    with dead_port() as port, ThreadPoolExecutor(1) as executor:
        connection = AdminConnection(KafkaSettings(f"127.0.0.1:{port}"), executor)
        first = connection.client
        awaited = first.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}, request_timeout=2)
        del first
        with pytest.raises(LogUnavailableError):
            await connection.metadata()
        async with asyncio.timeout(PATIENCE_S):
            for answer in awaited.values():
                with pytest.raises(KafkaException):
                    await asyncio.wrap_future(answer)


async def test_a_client_is_kept_while_its_cluster_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[object]()
    monkeypatch.setattr(admin_connection, "is_lost", lambda client, *_: bool(asked.append(client)))
    monkeypatch.setattr(admin_connection, "PATIENCE_S", 0.3)
    monkeypatch.setattr(admin_connection, "REQUEST_S", 0.2)
    with dead_port() as port, ThreadPoolExecutor(1) as executor:
        connection = AdminConnection(KafkaSettings(f"127.0.0.1:{port}"), executor)
        first = connection.client
        with pytest.raises(LogUnavailableError):
            await connection.metadata()
        assert asked == [first] * len(asked) != []
        assert connection.client is first, "it is not lost: the cluster is away"
