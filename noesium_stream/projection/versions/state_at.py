"""A projection's state as of an earlier position or time.

It is built in a separate folder (`state_until.py`).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from noesium_stream.errors import ConfigError
from noesium_stream.log.port import EventLog, Position, TopicPartition
from noesium_stream.log.topics import partition_of
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.stored.folder import matching
from noesium_stream.projection.stored.placement import lies_in_one
from noesium_stream.projection.stored.stored_projection import ABOUT, StoredProjection
from noesium_stream.projection.versions.state_until import At, fold_until

_POSITION: Final = re.compile(r"(?P<topic>[^/\s]+)/(?P<partition>[0-9]{1,10})@(?P<offset>[0-9]{1,19})")


def parse_at(text: str) -> At:
    """Parse `TOPIC/PARTITION@OFFSET` or an RFC 3339 time (`2026-03-01T12:00:00Z`; UTC without an offset).

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
            f"{text[:100]!r} is neither a position nor a time.",
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
    """The state as of a position or a time.

    With a position: the state of that partition, including that position. With a time: the states of all
    partitions, including everything appended until then. With `key` only what that row needs is folded.

    Raises:
        ConfigError: the projection does not fold this topic, the log does not have this position yet, or this
            version of the projection begins later.
        LogTruncatedError: the log has lost events that are needed.
    """
    with TemporaryDirectory(prefix="noesium-") as name:
        folder = Path(name)
        for tp in await _partitions(log, projection, at, key):
            await fold_until(log, projection, stored.path.parent.parent, tp, at, folder)
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
    if key is not None and lies_in_one(projection):
        return [TopicPartition(topic, partition_of(key, counts[topic])) for topic in topics]
    return [TopicPartition(topic, p) for topic in topics for p in range(counts[topic])]
