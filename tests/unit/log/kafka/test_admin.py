"""What the admin client makes of answers that no broker of a test gives at will."""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.kafka import offsets as kafka_offsets
from noesium_stream.log.kafka.admin import KafkaAdmin
from noesium_stream.log.kafka.settings import KafkaSettings


class Client:
    """A broker that comes back: at first nobody leads any partition, or who leads has just begun to, or the
    client says nothing of that.

    Args:
        error: what the client says at first; None: no offset, and that nothing is wrong.
        until: so often.
    """

    def __init__(self, error: int | None, until: float = 1) -> None:
        self.asked = 0
        self.error = error
        self.until = until
        self.refreshed = 0

    def list_offsets(
        self, wanted: dict[TopicPartition, OffsetSpec], **options: Any
    ) -> dict[Any, Future[Any]]:
        self.asked += 1
        answer: Future[Any] = Future()
        if self.asked <= self.until and self.error is None:
            answer.set_result(SimpleNamespace(offset=OFFSET_INVALID))
        elif self.asked <= self.until:
            answer.set_exception(KafkaException(KafkaError(self.error)))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(wanted, answer)

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.refreshed += 1
        return SimpleNamespace(brokers={1: "a broker"})


def admin_of(client: Client, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> KafkaAdmin:
    async def one(topic: str) -> int:
        return 1

    admin = KafkaAdmin(KafkaSettings("127.0.0.1:1"), executor)
    monkeypatch.setattr(admin._connection, "client", client)
    monkeypatch.setattr(admin, "existing", one)
    return admin


@pytest.mark.parametrize("error", [KafkaError._NOENT, KafkaError.OFFSET_NOT_AVAILABLE, None])
async def test_offsets_are_asked_for_again_while_nobody_leads_a_partition_or_has_just_begun_to(
    monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    client = Client(error)
    with ThreadPoolExecutor(1) as executor:
        admin = admin_of(client, executor, monkeypatch)
        assert await admin.offsets("t", OffsetSpec.latest()) == {0: 7}
        assert client.asked == 2
        assert client.refreshed == 1, "the client would not look for the leader by itself"


@pytest.mark.parametrize("error", [KafkaError.OFFSET_NOT_AVAILABLE, None])
async def test_offsets_that_nobody_knows_for_long_are_none(
    monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    monkeypatch.setattr(kafka_offsets, "PATIENCE_S", 0.1)
    with ThreadPoolExecutor(1) as executor:
        admin = admin_of(Client(error, until=math.inf), executor, monkeypatch)
        with pytest.raises(LogUnavailableError):
            await admin.offsets("t", OffsetSpec.latest())
