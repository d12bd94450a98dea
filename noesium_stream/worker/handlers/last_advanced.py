"""How far the owners of a handler's partition have come, as their journal says."""

from __future__ import annotations

from typing import Any

from noesium_stream.event.standard import HandlerAdvanced
from noesium_stream.log.last_record import last_record
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.log.record import Record


async def last_advanced(
    log: EventLog, journal: str, partition: int, key: str, topic_id: str
) -> dict[str, Any] | None:
    """Find the last `handler.advanced` of a partition, searching the journal from its end.

    Args:
        log: an open log.
        journal: the handler's journal topic.
        partition: number of the journal partition.
        key: key of the records that the owner of the handler's partition writes there.
        topic_id: id of the topic that the handler reads.
    """

    def is_wanted(record: Record) -> bool:
        return record.key == key and record.envelope.payload["topic_id"] == topic_id

    place = TopicPartition(journal, partition)
    found = await last_record(log, place, is_wanted, types=(HandlerAdvanced.TYPE,))
    return None if found is None else found.envelope.payload
