"""A live tail whose broker stays away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.kafka import tail as kafka_tail
from noesium_stream.log.kafka.settings import KafkaSettings
from noesium_stream.log.kafka.tail import Tail


@pytest.mark.parametrize("stop", [asyncio.CancelledError(), KafkaConnectionError("gone"), None])
async def test_who_reads_hears_that_the_broker_is_away_however_its_client_ends(
    monkeypatch: pytest.MonkeyPatch, stop: BaseException | None
) -> None:
    class Consumer:
        stopped = False

        def assign(self, partitions: Any) -> None:
            pass

        def seek(self, partition: Any, offset: int) -> None:
            pass

        async def getmany(self, **options: Any) -> Any:
            raise KafkaConnectionError("away")

        async def stop(self) -> None:
            self.stopped = True
            if stop is not None:
                raise stop

    consumer = Consumer()

    async def started(*arguments: Any) -> Consumer:
        return consumer

    monkeypatch.setattr(kafka_tail, "started", started)
    tail = Tail(KafkaSettings("here"), None, None, "t")  # type: ignore[arg-type]
    with pytest.raises(LogUnavailableError, match="KafkaConnectionError"):
        await anext(tail.batches({0: 0}, None, lambda: None))
    assert consumer.stopped
