"""Which of the client's errors mean that a broker is away, comes back, or has handed its part to another."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.kafka_errors import translated


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._NODE_UPDATE,
        KafkaError._NOENT,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    ],
)
def test_what_a_broker_that_comes_back_answers_can_be_tried_again(code: int) -> None:
    error = translated(KafkaError(code), "here:9092", "asking")
    assert isinstance(error, LogUnavailableError)
    assert error.retriable
