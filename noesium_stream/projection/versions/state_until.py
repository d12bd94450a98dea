"""A partition's state as of an earlier moment, in a file of its own; also the first state of a new version.

The fold starts from the newest snapshot before the moment (`state/snapshots.py`, or the live state) and adds
the log's events in between. What lies before a migration event's position is folded by the previous version
in the same way, and its rows go through `migrate` (`migration_event.py`).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from noesium_stream.errors import (
    ConfigError,
    LogCorruptError,
    LogTruncatedError,
    ProjectionError,
    StateFileError,
    brief,
)
from noesium_stream.log.port import EventLog, Position, TopicPartition
from noesium_stream.log.topics import TopicKind
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.fold.changed_rows import STATE
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.fold.pending_rows import NEXT
from noesium_stream.projection.fold.repeats import SEEN
from noesium_stream.projection.fold_guard import FOLDING
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.manifest import Identity, Manifest
from noesium_stream.projection.state.snapshots import snapshots_of
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import register_events, state_path
from noesium_stream.projection.versions.migration_event import Handover, Migration, migration_of
from noesium_stream.state_file.claim import discard

_BATCH_BYTES: Final = 4_000_000
_ROW_BYTES: Final = 500
_MINE: Final[Any] = object()


class At(NamedTuple):
    """A moment in the past: a position in one partition, or a time of the log in milliseconds."""

    position: Position | None = None
    time_ms: int | None = None


async def fold_until(
    log: EventLog,
    projection: AnyProjection,
    states: Path,
    tp: TopicPartition,
    at: At,
    folder: Path,
    migration: Migration | None = _MINE,
    call: Callable[..., Any] | None = None,
) -> Path:
    """Build a partition's state as of a moment in a folder; return its file.

    Args:
        log: the log to fold.
        projection: the projection.
        states: the folder of all states.
        tp: the partition.
        at: the moment; a position must be in this partition.
        folder: the folder for the file, which gets the live file's name.
        migration: the start of this version; by default read from the log.
        call: how its `migrate`, `key` and `apply` are called; see `PartitionFold`.

    Raises:
        ConfigError: this version begins later.
        LogTruncatedError: the log has lost events that are needed.
        ProjectionError: as `begin_with`.
    """
    codec: StateCodec[Any] = StateCodec(projection)
    register_events(log, projection)
    if migration is _MINE:
        migration = await migration_of(log, projection)
    topic_id = await log.topic_id(tp.topic)
    identity = Identity(projection.name, projection.version, codec.shape, tp.topic, topic_id, tp.partition)
    handover = None if migration is None else migration.at(tp, topic_id)
    if handover is not None and at.position is not None and at.position.offset + 1 < handover.offset:
        raise _begins_later(projection, tp, handover)
    live = state_path(states, projection, tp)
    target = folder / live.name
    file = _nearest(live, target, identity, at, None if handover is None else handover.event_id)
    try:
        if handover is not None and file.manifest.migration is None:
            await begin_with(log, projection, codec, states, tp, handover, file, call)
            file = StateFile.open(target, identity)
        if _is_beyond(file.manifest, at):
            raise _begins_later(projection, tp, handover)
        journal = log.topology.kind(tp.topic) is TopicKind.JOURNAL
        fold = PartitionFold(projection, codec, file, journal=journal, call=call)
        await _fold_on(log, fold, tp, at)
    finally:
        file.close()
    return target


async def begin_with(
    log: EventLog,
    projection: AnyProjection,
    codec: StateCodec[Any],
    states: Path,
    tp: TopicPartition,
    handover: Handover,
    file: StateFile,
    call: Callable[..., Any] | None = None,
) -> None:
    """Replace an open file by the migrated state of the previous version; the open file is closed.

    Args:
        log: the log with its events.
        projection: the newer version.
        codec: the codec of its states.
        states: the folder of all states, which may save folding the older version from its beginning.
        tp: the partition.
        handover: the start of the newer version.
        file: the file to replace, which has the identity of the new one.
        call: how `migrate` is called; see `PartitionFold`.

    Raises:
        ProjectionError: `migrate` cannot take a row, or the older version has dead letters.
        LogTruncatedError: the log has lost events that are needed.
    """
    assert projection.previous_version is not None
    before = projection.previous_version()
    path = file.path
    mine = f".{path.name}.migrating."
    for left in path.parent.glob(f"{mine}*"):  # left by a killed process; the file is locked
        shutil.rmtree(left, ignore_errors=True)
    at = At(Position(tp.topic, tp.partition, handover.offset - 1))
    with (
        TemporaryDirectory(prefix="noesium-") as name,
        TemporaryDirectory(prefix=mine, dir=path.parent) as beside,
    ):
        old = StateFile.open_to_read(await fold_until(log, before, states, tp, at, Path(name)))
        with closing(old), closing(StateFile.open(Path(beside) / path.name, file.manifest.identity)) as new:
            if old.manifest.held:
                letters = f"{old.manifest.held:,} dead letter{'' if old.manifest.held == 1 else 's'}"
                raise ProjectionError(
                    f"{before.name} v{before.version} has {letters} in {tp.topic}/"
                    f"{tp.partition} before offset {handover.offset}: its state is not whole.",
                    hint=f"Mend its `apply`, then: noesium dlq redrive {before.name}",
                )
            await _carry_over(projection, before, codec, old, new, handover, call)
        file.give_way_to(Path(beside) / path.name)


async def _carry_over(
    projection: AnyProjection,
    before: AnyProjection,
    codec: StateCodec[Any],
    old: StateFile,
    new: StateFile,
    handover: Handover,
    call: Callable[..., Any] | None,
) -> None:
    """Write all migrated rows; the sequence numbers of runs continue, and events stay known."""
    was, decode = old.manifest, StateCodec(before).decode
    manifest = Manifest(
        new.manifest.identity,
        cursor=handover.offset,
        events=was.events,
        last_event_id=was.last_event_id,
        last_offset=was.last_offset,
        last_ms=was.last_ms,
        first=was.first,
        migration=handover.event_id,
    )
    rows: dict[bytes, bytes | None] = {}
    room = _BATCH_BYTES
    for key, value in old.scan(b""):
        if key.startswith((NEXT, SEEN)):
            rows[key] = value
        elif key.startswith(STATE):
            state = _migrated(projection, key[len(STATE) :].decode(), decode(value), call)
            if state is None:
                continue
            rows[key] = codec.encode(state)
        room -= _ROW_BYTES + len(key) + len(rows.get(key) or b"")
        if room <= 0:
            new.commit(rows, manifest)
            rows.clear()
            room = _BATCH_BYTES
            await asyncio.sleep(0)  # it may take seconds
    new.commit(rows, manifest)


def _migrated(projection: AnyProjection, key: str, state: Any, call: Callable[..., Any] | None) -> Any:
    try:
        with FOLDING:
            return projection.migrate(key, state) if call is None else call(projection.migrate, key, state)
    except ProjectionError:
        raise
    except Exception as error:
        raise ProjectionError(
            f"`migrate` of {projection.name} v{projection.version} cannot take the row {key!r}: "
            f"{type(error).__name__}: {brief(error, 300)}",
            hint="Mend it; nothing was replaced.",
        ) from error


def _begins_later(projection: AnyProjection, tp: TopicPartition, handover: Handover | None) -> ConfigError:
    assert handover is not None
    assert projection.previous_version is not None
    older = projection.previous_version.version
    return ConfigError(
        f"Version {projection.version} of {projection.name} begins at {tp.topic}/{tp.partition}@"
        f"{handover.offset}; before that its state was version {older}'s.",
        hint=f"Ask for that one: --version {older}",
    )


async def _fold_on(log: EventLog, fold: PartitionFold[Any], tp: TopicPartition, at: At) -> None:
    end = written = (await log.end(tp.topic))[tp.partition]
    first = (await log.beginning(tp.topic))[tp.partition]
    if at.position is not None:
        end = at.position.offset + 1
        if fold.cursor < end <= first:
            raise LogTruncatedError(tp.topic, tp.partition, fold.cursor, first)
        if end > written:
            raise LogCorruptError(
                f"{tp.topic}/{tp.partition} ends at offset {written}, and is needed up to {end}.",
                hint="It has lost its newest events.",
            )
    if fold.cursor == 0 and first:
        fold.begin_at(min(first, end))  # as a rebuilt state does
    if fold.cursor < end:
        await _fold(log, fold, tp, end, at.time_ms)
    fold.flush()


async def _fold(
    log: EventLog, fold: PartitionFold[Any], tp: TopicPartition, end: int, time_ms: int | None
) -> None:
    batches = log.read_batches(
        tp.topic, {tp.partition: fold.cursor}, until={tp.partition: end}, partitions=[tp.partition]
    )
    try:
        async for batch in batches:
            if time_ms is None:
                fold.take(batch)
                continue
            # Stop at the first later record: a new leader's clock may be behind the old one's.
            before = list(takewhile(lambda record: record.timestamp_ms <= time_ms, batch))
            fold.take(before)
            if len(before) < len(batch):
                return
    finally:
        if isinstance(batches, AsyncGenerator):
            await batches.aclose()


def _nearest(live: Path, target: Path, identity: Identity, at: At, migration: str | None) -> StateFile:
    """A copy of the newest state that is not beyond the moment; an empty file if there is none."""
    for path in [live, *(snapshot.path for snapshot in reversed(snapshots_of(live)))]:
        try:
            with closing(StateFile.open_to_read(path)) as found:
                if _is_beyond(found.manifest, at) or found.manifest.migration != migration:
                    continue
                found.copy_to(target)
            copy = StateFile.open(target, identity)
            if not _is_beyond(copy.manifest, at):
                return copy
            copy.close()  # its owner has written it meanwhile
            discard(target)
        except StateFileError:
            discard(target)  # damaged, or with another identity: try an older one
    return StateFile.open(target, identity)


def _is_beyond(manifest: Manifest, at: At) -> bool:
    if at.position is not None:
        return manifest.cursor > at.position.offset + 1
    return at.time_ms is not None and manifest.last_ms > at.time_ms
