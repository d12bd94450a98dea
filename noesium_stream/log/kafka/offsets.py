"""Offsets of partitions, requested from their leaders with retries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from noesium_stream.log.kafka.errors import PATIENCE_S, translated, unavailable

_REQUEST_S: Final = 10.0
_MOMENTS: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_CACHE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,  # a broker that comes back knows no leaders yet
    }
)
"""Errors of a leader that has just changed, or of a new topic; they pass within moments."""


async def list_offsets(
    client: Callable[[], AdminClient],
    refresh: Callable[[str], Awaitable[object]],
    bootstrap: str,
    wanted: Mapping[TopicPartition, OffsetSpec],
) -> dict[tuple[str, int], int]:
    """The offsets by topic and partition, including records that are not committed.

    While a partition has no leader, its metadata is requested between the attempts. librdkafka (2.16) would
    keep "no leader" as its answer: its offset request does not refresh metadata that it has in its cache.

    Args:
        client: gives the admin client.
        refresh: loads a topic's metadata into the admin client, which may become another one.
        bootstrap: the cluster's address, for error messages.
        wanted: the offset to look up, by partition.

    Raises:
        LogUnavailableError: the leaders have not returned them within `PATIENCE_S`.
        TopicNotFoundError: there is no such partition.
    """
    if not wanted:
        return {}
    found: dict[tuple[str, int], int] = {}
    deadline = time.monotonic() + PATIENCE_S
    missing = dict(wanted)
    while missing:
        answers = client().list_offsets(
            missing, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_REQUEST_S
        )
        missing = {}
        for tp, answer in answers.items():
            offset = await _offset(answer, bootstrap, f"the offsets of {tp.topic}", deadline)
            if offset is None:
                missing[tp] = wanted[tp]
            else:
                found[tp.topic, tp.partition] = offset
        if missing:
            for topic in {tp.topic for tp in missing}:
                await refresh(topic)
            await asyncio.sleep(0.02)
    return found


async def _offset(answer: Future[Any], bootstrap: str, what: str, deadline: float) -> int | None:
    """The offset; None: ask again."""
    late = time.monotonic() > deadline
    try:
        offset: int = (await asyncio.wrap_future(answer)).offset
    except KafkaException as error:
        if error.args[0].code() not in _MOMENTS or late:
            raise translated(error, bootstrap, what) from error
        return None
    # While leaders change, the client may return -1001 without an error. Taken for an end, it would hide
    # every record before it; taken for a cursor, it would never be reached.
    if offset < 0 and late:
        raise unavailable(bootstrap, PATIENCE_S, f"{what} are not known")
    return offset if offset >= 0 else None
