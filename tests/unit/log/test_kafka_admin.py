"""What the admin client makes of answers that no broker of a test gives at will."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from noesium_stream.log.kafka_admin import KafkaAdmin
from noesium_stream.log.kafka_settings import KafkaSettings


class Client:
    """A broker that comes back: at first nobody leads any partition, or who leads has just begun to."""

    def __init__(self, error: int) -> None:
        self.asked = 0
        self.error = error

    def list_offsets(
        self, wanted: dict[TopicPartition, OffsetSpec], **options: Any
    ) -> dict[Any, Future[Any]]:
        self.asked += 1
        answer: Future[Any] = Future()
        if self.asked == 1:
            answer.set_exception(KafkaException(KafkaError(self.error)))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(wanted, answer)


@pytest.mark.parametrize("error", [KafkaError._NOENT, KafkaError.OFFSET_NOT_AVAILABLE])
async def test_offsets_are_asked_for_again_while_nobody_leads_a_partition_or_has_just_begun_to(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    async def one(topic: str) -> int:
        return 1

    client = Client(error)
    with ThreadPoolExecutor(1) as executor:
        admin = KafkaAdmin(KafkaSettings("127.0.0.1:1"), executor)
        monkeypatch.setattr(admin, "_client", client)
        monkeypatch.setattr(admin, "existing", one)
        assert await admin.offsets("t", OffsetSpec.latest()) == {0: 7}
        assert client.asked == 2
