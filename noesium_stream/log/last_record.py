"""Search for the last record of a partition, from its end backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noesium_stream.log.port import EventLog, TopicPartition, Types
from noesium_stream.log.record import Record

_FIRST_LOOK: Final = 1_000


async def last_record(
    log: EventLog,
    place: TopicPartition,
    is_wanted: Callable[[Record], bool],
    *,
    types: Types = None,
    before: int | None = None,
    most: int | None = None,
) -> Record | None:
    """Find the last wanted record; each look reaches four times as far back as the one before.

    Args:
        log: an open log.
        place: the partition.
        is_wanted: judges the records of a look in their order.
        types: event types to look at.
        before: offset at which the search begins; default: the end of the partition.
        most: number of offsets that are searched; default: the whole partition.

    Raises:
        LogTruncatedError: retention removed records meanwhile.
        LogUnavailableError, TopicNotFoundError
    """
    topic, partition = place
    first = (await log.beginning(topic))[partition]
    end = (await log.end(topic))[partition] if before is None else before
    if most is not None:
        first = max(first, end - most)
    until, span = end, _FIRST_LOOK
    while until > first:
        begin = max(first, end - span)
        found: Record | None = None
        async for record in log.read(topic, {partition: begin}, until={partition: until}, types=types):
            if is_wanted(record):
                found = record
        if found is not None:
            return found
        until, span = begin, span * 4
    return None
