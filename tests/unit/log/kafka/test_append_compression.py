"""Both producers of Kafka compress with zstd."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import codec

from noesium_stream.log.kafka import append, transactional_producer
from noesium_stream.log.kafka.settings import KafkaSettings


def test_transactions_are_compressed_with_zstd(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(transactional_producer, "Producer", lambda config, logger: made.append(config))
    transactional_producer.TransactionalProducer(KafkaSettings("here"), "id", "the writer w")
    assert made[0]["compression.type"] == "zstd"


def test_appends_are_compressed_with_zstd(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(append, "AIOKafkaProducer", lambda **config: made.append(config))
    append.Publisher(KafkaSettings("here"), None)._make()  # type: ignore[arg-type]
    assert made[0]["compression_type"] == "zstd"
    assert codec.has_zstd()
