"""Catch-up of a new owner: folds the state of a handler's partition up to where the previous one has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noesium_stream.errors import LogTruncatedError
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.fold.partition_fold import UNFLUSHED_BYTES, PartitionFold


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
