"""Whether a log is still the one whose events a state has folded: the last of them is asked for.

A log that was put back to an earlier copy of it keeps its topics' ids, and when it has grown again its end
tells nothing either.
"""

from __future__ import annotations

from collections.abc import Iterable

from noesium_stream.errors import LogTruncatedError, StateFileError
from noesium_stream.log.port import EventLog
from noesium_stream.projection.headers import id_if_told
from noesium_stream.projection.manifest import Manifest


async def other_logs(log: EventLog, topic: str, states: Iterable[Manifest]) -> dict[int, StateFileError]:
    """Why states of a topic are not of this log's events, by partition.

    Those that are, or whose last event is retained no more, are left out.

    Raises:
        TopicNotFoundError, LogUnavailableError
    """
    first, end = await log.beginning(topic), await log.end(topic)
    last = {
        state.identity.partition: (state.last_offset, state.last_event_id)
        for state in states
        if state.last_offset is not None
        and first.get(state.identity.partition, 0) <= state.last_offset < end.get(state.identity.partition, 0)
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
