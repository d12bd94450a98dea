"""The last heartbeats of workers, as anybody can read them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from noesium_stream.errors import CorruptRecordError, LogTruncatedError, TopicNotFoundError
from noesium_stream.event.standard import AgentHeartbeat
from noesium_stream.log.port import EventLog

_LOOKED_AT: Final = 5_000
"""How far back heartbeats are searched, in offsets of a partition."""


async def last_heartbeats(log: EventLog) -> list[tuple[int, dict[str, Any]]]:
    """Read the last heartbeat of each worker and agent type with its time (ms), the newest last.

    Anyone may write heartbeats: a record that is none is passed over. What retention removes meanwhile is too
    old to be of use: it is as if it had never been there.

    Raises:
        LogUnavailableError
    """
    topic = log.topology.heartbeat
    try:
        ends, firsts = await log.end(topic), await log.beginning(topic)
    except TopicNotFoundError:
        return []
    cursor = {partition: max(firsts[partition], end - _LOOKED_AT) for partition, end in ends.items()}
    last: dict[str, tuple[int, dict[str, Any]]] = {}
    with suppress(LogTruncatedError):
        async for record in log.read(topic, cursor, until=ends, types=(AgentHeartbeat.TYPE,)):
            try:
                event = record.envelope
            except CorruptRecordError:
                continue
            last[f"{event.payload['instance_id']} {event.payload['agent_type']}"] = (
                event.timestamp_ms,
                event.payload,
            )
    return sorted(last.values(), key=lambda one: one[0])
