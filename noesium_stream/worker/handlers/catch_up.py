"""Catch-up of a new owner: reads how far a handler's partition has come, and folds the state up to there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noesium_stream.errors import LogTruncatedError
from noesium_stream.event.standard import HandlerAdvanced
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.fold.partition_fold import UNFLUSHED_BYTES, PartitionFold

_FIRST_LOOK: Final = 1_000


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
    end = (await log.end(journal))[partition]
    first = (await log.beginning(journal))[partition]
    span = _FIRST_LOOK
    before = end
    while before > first:
        begin = max(first, end - span)
        found: dict[str, Any] | None = None
        async for record in log.read(
            journal, {partition: begin}, until={partition: before}, types=(HandlerAdvanced.TYPE,)
        ):
            payload = record.envelope.payload
            if record.key == key and payload["topic_id"] == topic_id:
                found = payload
        if found is not None:
            return found
        before, span = begin, span * 4
    return None


async def fold_until(
    open_file: Callable[[], PartitionFold[Any]],
    log: EventLog,
    place: TopicPartition,
    until: int,
    began: int,
    progress: Callable[[str], None],
) -> PartitionFold[Any]:
    """Bring a state up to `until`: from its file, and from the later events of the topic.

    Args:
        open_file: opens the state file.
        log: an open log.
        place: the partition to fold.
        until: end of the fold: the first offset that is not folded.
        began: offset at which the handler began; it has never read earlier events.
        progress: takes one line for people.

    Raises:
        LogTruncatedError: events that the state lacks are gone from the topic.
    """
    topic, partition = place
    fold = open_file()
    try:
        if fold.cursor > until:
            # Its writer's last commit is not on this log: the log was replaced or lost data.
            progress(f"{fold.file.path}: it is ahead of the log. It is discarded; folded again.")
            fold.file.discard()
            fold = open_file()
        first = (await log.beginning(topic))[partition]
        if fold.cursor < first:
            if fold.cursor > 0 or began < first:
                raise LogTruncatedError(topic, partition, fold.cursor, first)
            fold.begin_at(first)
        if fold.cursor < until:
            async for batch in log.read_batches(
                topic,
                {partition: fold.cursor},
                until={partition: until},
                partitions=[partition],
            ):
                fold.take(batch)
                if fold.unflushed_bytes >= UNFLUSHED_BYTES:
                    fold.flush()
            fold.advance(until)
        fold.flush()
    except BaseException:
        fold.file.close()
        raise
    return fold
