"""A projection's state as it was at an earlier position or time.

The nearest copy before it (`snapshots.py`, or the live state) is taken, and the log's events between are
folded into it, in a folder of its own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from noesium_stream.errors import ConfigError, LogTruncatedError, StateFileError
from noesium_stream.log.port import EventLog, Position, TopicPartition
from noesium_stream.log.topics import TopicKind, partition_of
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.fold import PartitionFold
from noesium_stream.projection.folder import matching, state_path
from noesium_stream.projection.manifest import Identity, Manifest
from noesium_stream.projection.snapshots import snapshots_of
from noesium_stream.projection.state_codec import StateCodec
from noesium_stream.projection.state_file import StateFile, discard
from noesium_stream.projection.stored import ABOUT, StoredProjection

_POSITION: Final = re.compile(r"(?P<topic>[^/\s]+)/(?P<partition>\d+)@(?P<offset>\d+)")


class At(NamedTuple):
    """A moment of the past: a position of one partition, or a time of the log in milliseconds."""

    position: Position | None = None
    time_ms: int | None = None


def parse_at(text: str) -> At:
    """`TOPIC/PARTITION@OFFSET`, or a time of RFC 3339 (`2026-03-01T12:00:00Z`; UTC if it says nothing).

    Raises:
        ConfigError: it is neither.
    """
    found = _POSITION.fullmatch(text)
    if found is not None:
        return At(Position(found["topic"], int(found["partition"]), int(found["offset"])))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is neither a position nor a time.",
            hint="Write TOPIC/PARTITION@OFFSET, or a time such as 2026-03-01T12:00:00Z.",
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return At(time_ms=int(moment.timestamp() * 1000))


@asynccontextmanager
async def state_at(
    log: EventLog,
    projection: AnyProjection,
    stored: StoredProjection,
    at: At,
    *,
    key: str | None = None,
    load: Callable[[str], AnyProjection],
) -> AsyncIterator[StoredProjection]:
    """The state as it was: with a position that of its partition, which has seen it; with a time that of all
    partitions, which have seen what the log took until then. With `key` only what that row needs is folded.

    Raises:
        ConfigError: the projection does not fold this topic, or the log has no such position yet.
        LogTruncatedError: events that are needed are gone.
    """
    with TemporaryDirectory(prefix="noesium-") as name:
        folder = Path(name)
        for tp in await _partitions(log, projection, at, key):
            await _fold_until(log, projection, stored, tp, at, folder)
        if not (folder / ABOUT).exists():
            shutil.copy(stored.path / ABOUT, folder / ABOUT)
        yield StoredProjection(folder, load)


async def _partitions(
    log: EventLog, projection: AnyProjection, at: At, key: str | None
) -> list[TopicPartition]:
    counts = {info.name: info.partitions for info in await log.topics()}
    topics = matching(counts, projection, log.topology)
    if at.position is not None:
        topic, partition, offset = at.position
        if topic not in topics:
            raise ConfigError(
                f"The projection {projection.name} does not fold {topic}.",
                hint=f"It folds: {', '.join(topics)}." if topics else "It folds no topic of this log.",
            )
        if partition >= counts[topic]:
            raise ConfigError(f"{topic} has no partition {partition}.", hint=f"It has {counts[topic]}.")
        end = (await log.end(topic)).get(partition, 0)
        if offset >= end:
            raise ConfigError(
                f"{topic}/{partition} has no offset {offset} yet.", hint=f"The next one will be {end}."
            )
        return [TopicPartition(topic, partition)]
    if key is not None and projection.keyed() and not projection.merges():
        return [TopicPartition(topic, partition_of(key, counts[topic])) for topic in topics]
    return [TopicPartition(topic, p) for topic in topics for p in range(counts[topic])]


async def _fold_until(
    log: EventLog,
    projection: AnyProjection,
    stored: StoredProjection,
    tp: TopicPartition,
    at: At,
    folder: Path,
) -> None:
    codec: StateCodec[Any] = StateCodec(projection)
    identity = Identity(
        projection.name,
        projection.version,
        codec.shape,
        tp.topic,
        await log.topic_id(tp.topic),
        tp.partition,
    )
    target = folder / state_path(folder, projection, tp).name
    file = _nearest(stored.path / target.name, target, identity, at)
    with closing(file):
        journal = log.topology.kind(tp.topic) is TopicKind.JOURNAL
        fold = PartitionFold(projection, codec, file, journal=journal)
        end = (await log.end(tp.topic))[tp.partition]
        first = (await log.beginning(tp.topic))[tp.partition]
        if at.position is not None:
            end = at.position.offset + 1
            if fold.cursor < end <= first:
                raise LogTruncatedError(tp.topic, tp.partition, fold.cursor, first)
        if fold.cursor == 0:
            fold.advance(min(first, end))  # as a state does that is made anew
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
            # Up to the first that came later: a new leader's clock may be behind the old one's.
            before = list(takewhile(lambda record: record.timestamp_ms <= time_ms, batch))
            fold.take(before)
            if len(before) < len(batch):
                return
    finally:
        if isinstance(batches, AsyncGenerator):
            await batches.aclose()


def _nearest(live: Path, target: Path, identity: Identity, at: At) -> StateFile:
    """A copy of the newest state that is not beyond the moment; an empty one where there is none."""
    for path in [live, *(snapshot.path for snapshot in reversed(snapshots_of(live)))]:
        try:
            with closing(StateFile.open_to_read(path)) as found:
                if _is_beyond(found.manifest, at):
                    continue
                found.copy_to(target)
            copy = StateFile.open(target, identity)
            if not _is_beyond(copy.manifest, at):
                return copy
            copy.close()  # its owner has written it in between
            discard(target)
        except StateFileError:
            discard(target)  # damaged, or of something else: an older one will do
    return StateFile.open(target, identity)


def _is_beyond(manifest: Manifest, at: At) -> bool:
    if at.position is not None:
        return manifest.cursor > at.position.offset + 1
    return at.time_ms is not None and manifest.last_ms > at.time_ms
