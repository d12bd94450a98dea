"""Detection of a client that has lost its cluster for good.

When all brokers of a cluster are fenced, one of them answers a request for topics with no broker at all.
librdkafka (2.10 to 2.16) then forgets every broker, also those that it was configured with, never connects
again, and reports nothing: https://github.com/confluentinc/librdkafka/issues/5301. Only a new client helps.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from noesium_stream.log.kafka.probe import KAFKA_LOGGER
from noesium_stream.log.kafka.settings import KafkaSettings

_ANSWER_S: Final = 2.0

LOOK_AFTER_S: Final = 10.0
"""How long a client that hears nothing is trusted to be connected."""


def is_lost(client: Consumer | AdminClient, settings: KafkaSettings, topic: str | None = None) -> bool:
    """Whether a new client reaches the cluster and this one does not; blocks for up to six seconds.

    Args:
        client: the client that may have lost its cluster.
        settings: of the new client.
        topic: whose metadata are requested; None: those of all topics.
    """
    return (
        not _answered(client, topic)
        and _answered(_new_client(settings), topic)
        and not _answered(client, topic)
    )


def _new_client(settings: KafkaSettings) -> AdminClient:
    return AdminClient(settings.confluent(), logger=KAFKA_LOGGER)


def _answered(client: Consumer | AdminClient, topic: str | None) -> bool:
    try:
        return bool(client.list_topics(topic, timeout=_ANSWER_S).brokers)
    except KafkaException:
        return False
