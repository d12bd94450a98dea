"""Check that a log is the one whose events a state has folded: the last folded event must be on it.

A log that was restored from an earlier copy keeps its topic ids. After it has grown again, its end does not
reveal the restore either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from noesium_stream.errors import LogTruncatedError, StateFileError
from noesium_stream.log.port import EventLog
from noesium_stream.projection.event_headers import id_if_told
from noesium_stream.projection.state.manifest import Manifest


class Folded(NamedTuple):
    """The last record that a state has folded of a partition; None: it has folded none."""

    partition: int
    last_offset: int | None
    last_event_id: str | None


async def other_logs(log: EventLog, topic: str, states: Iterable[Manifest]) -> dict[int, StateFileError]:
    """The states of a topic that were folded from another log, as errors by partition.

    States of this log, and states whose last event is no longer retained, are left out.

    Raises:
        TopicNotFoundError, LogUnavailableError
    """
    return await other_events(
        log,
        topic,
        [Folded(one.identity.partition, one.last_offset, one.last_event_id) for one in states],
    )


async def other_events(log: EventLog, topic: str, folded: Iterable[Folded]) -> dict[int, StateFileError]:
    """As `other_logs`, for states that say themselves what they have folded last."""
    first, end = await log.beginning(topic), await log.end(topic)
    last = {
        partition: (offset, event_id)
        for partition, offset, event_id in folded
        if offset is not None and first.get(partition, 0) <= offset < end.get(partition, 0)
    }
    if not last:
        return {}
    starts = {partition: offset for partition, (offset, _) in last.items()}
    stops = {partition: offset + 1 for partition, offset in starts.items()}
    found: dict[int, str | None] = {}
    try:
        async for batch in log.read_batches(topic, starts, until=stops, partitions=list(starts)):
            found.update((record.partition, id_if_told(record)) for record in batch)
    except LogTruncatedError:
        return {}
    return {
        partition: StateFileError(
            f"{topic}/{partition}@{offset}: the log has another event there than the one that was folded "
            "last; was an earlier copy of it put back?"
        )
        for partition, (offset, event_id) in last.items()
        if partition not in found or found[partition] != event_id
    }
