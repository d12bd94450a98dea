"""Which epoch a transactional id is in: DescribeTransactions (KIP-664), which neither client offers.

Decision record: librdkafka says the epoch in its debug log alone, and has each step of each transaction in
there as well: a lone commit took some 0.5 ms longer by it. Who asks the coordinator instead may be told of a
newer epoch than the one that was asked for; then the id has been taken by somebody else, and no commit of
the older one is on the log. Written with aiokafka's own parts for protocol messages.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError, NoError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from noesium_stream.log.kafka_errors import PATIENCE_S, translated_aio
from noesium_stream.log.kafka_settings import KafkaSettings

_API: Final = 65
_TEXT: Final = CompactString("utf-8")
_PAUSE_S: Final = 0.1


class _Answer(Response):
    API_KEY = _API
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", _TEXT),
                ("transaction_state", _TEXT),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(
                        ("topic", _TEXT), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Question(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = _API
    API_VERSION = 0
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(("transactional_ids", CompactArray(_TEXT)), ("tags", TaggedFields))


class _DescribeTransactions(Request[_Question]):
    API_KEY = _API

    def __init__(self, transactional_id: str) -> None:
        self._id = transactional_id

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class([self._id], {})


async def producer_epoch(settings: KafkaSettings, transactional_id: str, what: str) -> int:
    """Producer id and epoch of the newest producer of this id, as one number that grows with each.

    Raises:
        LogUnavailableError: no coordinator answers, or it does not let us in.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client = AIOKafkaClient(**settings.aiokafka())
        try:
            return await _asked(client, transactional_id)
        except KafkaError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise translated_aio(error, settings.bootstrap, f"opening {what}") from error
        finally:
            await client.close()
        await asyncio.sleep(_PAUSE_S)


async def _asked(client: AIOKafkaClient, transactional_id: str) -> int:
    await client.bootstrap()
    broker = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
    question = _DescribeTransactions(transactional_id)
    answer: Any = await client.send(broker, question, group=ConnectionGroup.COORDINATION)
    code, _, _, _, _, producer_id, epoch, _, _ = answer.transaction_states[0]
    error = for_code(code)
    if error is not NoError:
        raise error(f"describing {transactional_id}")
    return int(producer_id) << 16 | int(epoch)
