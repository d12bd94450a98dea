"""The stream topic: its present end, and the pieces in its records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

from noesium_stream.errors import CorruptRecordError, LogForbiddenError, TopicNotFoundError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.stream_pieces import MAX_RECORD_BYTES
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record

_PAUSE_S: Final = 0.5
T_co = TypeVar("T_co", covariant=True)


class Order(Protocol[T_co]):
    """What one reader has seen of a run's records in the stream topic, as `PieceOrder`.

    Attributes:
        agent_id: the agent that has the run; None: not known yet.
        offset: the next offset to read; None: none is known.
    """

    agent_id: str | None
    offset: int | None

    def take(self, event: EventEnvelope, offset: int) -> T_co | None:
        """What is in a record of this run; None: nothing for this reader."""

    def drop(self, reason: str) -> None:
        """Count a record that is dropped."""

    def wrong(self) -> str:
        """Say how many records were dropped that no reader should meet, and why; empty: there were none."""


async def stream_ends(log: EventLog) -> Mapping[int, int]:
    """The present end of the stream topic, by partition; a missing topic is made, or waited for.

    Raises:
        LogUnavailableError
        LogForbiddenError: the topic is there and may not be read.
    """
    topic = log.topology.stream
    while True:
        try:
            return await log.end(topic)
        except TopicNotFoundError:
            try:
                await log.ensure_topics([log.topology.spec(topic)])
            except LogForbiddenError:
                await asyncio.sleep(_PAUSE_S)  # a worker makes it for the first piece


def piece_in(record: Record, order: Order[T_co]) -> T_co | None:
    """The piece, or progress, in a record of a run, for a reader that has seen `order`; None: it has none."""
    if len(record.value) > MAX_RECORD_BYTES:
        order.drop("are too large")
        return None
    try:
        event = record.envelope
    except CorruptRecordError:
        order.drop("are not valid, or not signed by whom they are from")
        return None
    return order.take(event, record.offset)
