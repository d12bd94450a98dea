"""Where the parts of a row may lie, so that a missing `merge` is found while folding, and not by a reader.

A state is kept per partition. A table whose key is the partition key has each row in one partition of a
topic. Any other key, and a state without keys, may have parts in several; `merge` makes one of them. A topic
with one partition has all parts. Parts of a row in several topics are found by readers (`folder.merged`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from noesium_stream.errors import CorruptRecordError, ProjectionError
from noesium_stream.log.port import TopicShape
from noesium_stream.log.record import Record
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.faults import Misplaced, place_of

_WIDTH: Final = 80


def lies_in_one(projection: AnyProjection) -> bool:
    """Whether a row lies in the partition of its key: it has no parts elsewhere in its topic."""
    return projection.keyed() and not projection.merges() and not projection.local_keys


def require_merge(projection: AnyProjection, topics: Mapping[str, TopicShape]) -> None:
    """Refuse a state without keys and without `merge` that would have parts in several partitions.

    Args:
        projection: the projection.
        topics: the topics that it folds.

    Raises:
        ProjectionError: they have several partitions.
    """
    if projection.keyed() or projection.merges() or projection.local_keys:
        return
    partitions = sum(shape.partitions for shape in topics.values())
    if partitions > 1:
        raise ProjectionError(
            f"The projection {projection.name} has a state per partition, and folds {partitions} of them.",
            hint=f"Declare {_merge(projection)}, or `key`: a row per key. Or say local_keys = True if a "
            "state per partition is wanted.",
        )


def misplaced_in(projection: AnyProjection, partitions: int) -> Misplaced | None:
    """What refuses an event whose row may have parts in other partitions of its topic; None: nothing does.

    Args:
        projection: the projection.
        partitions: the number of the topic's partitions.
    """
    return partial(_misplaced, projection) if partitions > 1 and lies_in_one(projection) else None


def _misplaced(projection: AnyProjection, record: Record, key: str) -> ProjectionError:
    hint = f"Declare {_merge(projection)}, or let `key` return the event's partition key. "
    if _is_said_key(record, key):
        hint += "(In the caller's journal, a call of another agent has the called run as its partition key.) "
    return ProjectionError(
        f"The key {_shown(key)} of the projection {projection.name} may have parts in several partitions: "
        f"the event at {place_of(record)} lies in that of {_shown(record.key)}.",
        hint=f"{hint}Or say local_keys = True if all events of a key lie in one partition all the same.",
    )


def _is_said_key(record: Record, key: str) -> bool:
    try:
        return record.envelope.partition_key == key
    except CorruptRecordError:
        return False


def _merge(projection: AnyProjection) -> str:
    parts = projection.unmerged()
    return f"`merge` in {', '.join(parts)}" if parts else "`merge`"


def _shown(key: str) -> str:
    return repr(key if len(key) <= _WIDTH else f"{key[: _WIDTH - 1]}…")
