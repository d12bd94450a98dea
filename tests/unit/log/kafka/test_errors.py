"""Which of the client's errors mean that a broker is away, comes back, or has handed its part to another."""

from __future__ import annotations

import pytest
from aiokafka import errors as aio
from confluent_kafka import KafkaError

from noesium_stream.errors import LogForbiddenError, LogUnavailableError, LogUnsupportedError
from noesium_stream.log.kafka.errors import translated, translated_aio


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


@pytest.mark.parametrize(
    "error",
    [
        translated(KafkaError(code), "here:9092", "the commit of writer w")
        for code in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )
    ]
    + [translated_aio(aio.TopicAuthorizationFailedError(), "here:9092", "the commit of writer w")],
)
def test_a_right_that_is_missing_is_not_waited_for(error: Exception) -> None:
    assert isinstance(error, LogForbiddenError)
    assert not error.retriable
    assert error.message.startswith("the commit of writer w: the Kafka broker at here:9092 does not allow it")
    assert error.hint is not None
    assert "noesium security acls" in error.hint


@pytest.mark.parametrize(
    "error",
    [
        translated(KafkaError(code), "here:9092", "the commit of writer w")
        for code in (
            KafkaError.UNSUPPORTED_VERSION,
            KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            KafkaError.INVALID_TRANSACTION_TIMEOUT,
            KafkaError._UNSUPPORTED_FEATURE,
        )
    ]
    + [
        translated_aio(aio.UnsupportedVersionError(), "here:9092", "the commit of writer w"),
        translated_aio(aio.UnsupportedForMessageFormatError(), "here:9092", "the commit of writer w"),
    ],
)
def test_what_a_broker_will_never_do_is_not_waited_for(error: Exception) -> None:
    assert isinstance(error, LogUnsupportedError)
    assert not error.retriable
    assert error.message.startswith("the commit of writer w: the Kafka broker at here:9092 cannot do it")
    assert error.hint is not None
    assert "version" in error.hint
