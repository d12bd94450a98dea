"""The connection of the admin client: what happens to others when a client is replaced."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.kafka import admin_connection
from noesium_stream.log.kafka.admin_connection import AdminConnection
from noesium_stream.log.kafka.errors import ClientLog
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


class StandingStill:
    """A client and the clock of its machine, which stands still for a minute in the first question."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waited_s = list[float]()

    def monotonic(self) -> float:
        return self.now_s

    def poll(self, timeout_s: float) -> None: ...

    def list_topics(self, timeout: float) -> None:
        self.waited_s.append(timeout)
        self.now_s += 60.0 if len(self.waited_s) == 1 else timeout
        if len(self.waited_s) < 5:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize(("patience_s", "answers"), [(10.0, True), (4.0, False)])
async def test_a_broker_is_given_its_time_on_a_machine_that_stood_still(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, answers: bool
) -> None:
    still: Any = StandingStill()
    monkeypatch.setattr(admin_connection, "time", still)
    monkeypatch.setattr(admin_connection, "_client", lambda _: (still, ClientLog()))
    monkeypatch.setattr(admin_connection, "OPEN_TIMEOUT_S", patience_s)
    with ThreadPoolExecutor(1) as executor:
        connection = AdminConnection(KafkaSettings("127.0.0.1:9"), executor)
        if answers:
            await connection.probe()
        else:
            with pytest.raises(LogUnavailableError, match="tried for 4 s"):
                await connection.probe()
    assert still.waited_s == [1.0] * (5 if answers else 4)


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
