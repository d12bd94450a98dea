"""Opening of a partition's state as a migration event prescribes, and appending of such an event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from noesium_stream.clock import Clock
from noesium_stream.errors import ProjectionLoadError, StateBusyError
from noesium_stream.log.port import EventLog, Position, TopicPartition
from noesium_stream.projection.base import AnyProjection, BaseProjection
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.stored.folder import Report, is_written, matching, open_fold
from noesium_stream.projection.stored.placement import misplaced_in
from noesium_stream.projection.versions.migration_event import Migration, migration_now, migration_of, say
from noesium_stream.projection.versions.state_until import At, begin_with, fold_until

TState = TypeVar("TState")


async def open_migrated(
    folder: Path,
    projection: BaseProjection[TState],
    codec: StateCodec[TState],
    log: EventLog,
    tp: TopicPartition,
    topic_id: str,
    migration: Migration | None,
    report: Report,
    call: Callable[..., Any] | None = None,
    *,
    partitions: int,
) -> PartitionFold[TState]:
    """As `open_fold`, but a state that did not begin as `migration` prescribes is rebuilt accordingly.

    `partitions` is the number of the topic's partitions: in one of several, the fold refuses an event whose
    row may have parts in others.

    Raises:
        StateBusyError, ProjectionError, ConfigError: as `open_fold`.
        ProjectionError, LogTruncatedError: as `begin_with`.
    """
    misplaced = misplaced_in(projection, partitions)
    fold = open_fold(folder, projection, codec, log, tp, topic_id, report, call, misplaced=misplaced)
    handover = None if migration is None else migration.at(tp, topic_id)
    wanted = None if handover is None else handover.event_id
    if fold.manifest.migration == wanted:
        return fold
    try:
        if fold.cursor:
            report(
                f"{fold.file.path}: the log says that this version begins otherwise (projection.migrated). "
                "It is discarded; the events are folded again."
            )
        if handover is None:
            fold.file.discard()
        else:
            await begin_with(log, projection, codec, folder, tp, handover, fold.file, call)
    except BaseException:
        fold.file.close()
        raise
    return open_fold(folder, projection, codec, log, tp, topic_id, report, call, misplaced=misplaced)


async def migrate(
    log: EventLog,
    projection: AnyProjection,
    folder: Path,
    clock: Clock,
    call: Callable[..., Any] | None = None,
) -> bool:
    """Record on the log that a version takes over the previous one's state, as of the log's current ends.

    The migration is tried first: if it fails, nothing is recorded. The states themselves are migrated by the
    next process that opens them (`ProjectionEngine`, `AttachedProjection`).

    Returns:
        Whether it was recorded; False if the log already has a migration, which stays valid.

    Raises:
        ProjectionLoadError: the projection declares no `previous_version`.
        ProjectionError, LogTruncatedError: as `begin_with`.
        StateBusyError: another process on this machine already folds this version.
        LogUnavailableError, CommitUnknownError
    """
    projection.check()
    if projection.previous_version is None:
        raise ProjectionLoadError(
            f"{type(projection).__name__} does not say which version was before it.",
            hint="Declare before = THE_OLDER_CLASS, and migrate(self, key, state).",
        )
    if await migration_of(log, projection) is not None:
        return False
    if is_written(folder, projection):  # that process would ignore the migration until its restart
        raise StateBusyError(
            f"{projection.name} v{projection.version} is folded by another process already.",
            hint="Stop it first.",
        )
    topics = matching(await log.layout(), projection.previous_version(), log.topology)
    tried = await migration_now(log, projection, topics)
    with TemporaryDirectory(prefix="noesium-") as name:
        for topic, begins in tried.topics.items():
            for partition, offset in begins.offsets.items():
                if offset:
                    tp = TopicPartition(topic, int(partition))
                    at = At(Position(topic, tp.partition, offset - 1))
                    await fold_until(log, projection, folder, tp, at, Path(name), tried, call)
    await say(log, projection, tried, clock)
    return True
