"""A namespace of its own on the broker, removed afterwards: a broker may be somebody's."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from tests.bench.events import catalogue
from tests.support.kafka import KafkaServer, remove_topics


@asynccontextmanager
async def kafka_log(kafka: KafkaServer, parameters: str = "") -> AsyncIterator[EventLog]:
    """A log on the broker, with more parameters of its URL; its topics are gone at the end."""
    url = kafka.url(f"bench{secrets.token_hex(4)}") + parameters
    log = await open_log(url, catalogue=catalogue())
    try:
        yield log
    finally:
        namespace = log.topology.namespace
        await log.close()
        await asyncio.to_thread(remove_topics, kafka.bootstrap, namespace)
