"""Starts aiokafka's clients; on a failed connection it asks the admin client for the reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from aiokafka.errors import KafkaError as AioKafkaError

from noesium_stream.log.kafka.admin import KafkaAdmin
from noesium_stream.log.kafka.errors import PATIENCE_S, translated_aio

Client = TypeVar("Client", AIOKafkaConsumer, AIOKafkaProducer)
_PAUSE_S: Final = 0.2


async def started(make: Callable[[], Client], admin: KafkaAdmin, what: str) -> Client:
    """A connected client; retries while the brokers are unavailable (they may be restarting).

    Raises:
        LogUnavailableError: they stay unavailable, or refuse this client.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client = make()
        try:
            await client.start()
        except AioKafkaError as error:
            await client.stop()
            await admin.still_let_in()
            if not isinstance(error, KafkaConnectionError) or time.monotonic() > deadline:
                raise translated_aio(error, admin.bootstrap, what) from error
            await asyncio.sleep(_PAUSE_S)
        except BaseException:
            await client.stop()
            raise
        else:
            return client
