"""A namespace of its own on the broker, removed afterwards: a broker may be somebody's."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from confluent_kafka.admin import AdminClient

from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from tests.bench.events import catalogue
from tests.support.kafka import KafkaServer


@asynccontextmanager
async def kafka_log(kafka: KafkaServer, parameters: str = "") -> AsyncIterator[EventLog]:
    """A log on the broker, with more parameters of its URL; its topics are gone at the end."""
    url = kafka.url(f"bench{secrets.token_hex(4)}") + parameters
    log = await open_log(url, catalogue=catalogue())
    try:
        yield log
    finally:
        topics = [topic.name for topic in await log.topics()]
        await log.close()
        if topics:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            for done in admin.delete_topics(topics).values():
                done.result(30)
