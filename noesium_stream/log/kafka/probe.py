"""A check whether a Kafka answers at an address, without the noise of a client that keeps retrying."""

from __future__ import annotations

import logging
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

KAFKA_LOGGER: Final = logging.getLogger("noesium_stream.log.kafka.log.client")
"""Receives librdkafka's log. Its handler drops every line, so that nothing reaches standard error unasked."""
KAFKA_LOGGER.addHandler(logging.NullHandler())
KAFKA_LOGGER.setLevel(logging.CRITICAL + 1)


def answers(bootstrap: str, *, timeout_s: float) -> bool:
    """Whether a Kafka at `bootstrap` (plain, no authentication) answers within `timeout_s` seconds."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "socket.timeout.ms": max(100, int(timeout_s * 1000)),
    }
    try:
        AdminClient(settings, logger=KAFKA_LOGGER).list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return True
