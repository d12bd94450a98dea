"""Where the states of projections lie, and what is read from them together.

`FOLDER/NAME/vVERSION/TOPIC-PARTITION.state`: a file per partition, so that a partition that moves to another
process keeps its file here for when it comes back.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from noesium_stream.errors import ProjectionError, StateFileError
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.log.topics import TopicKind, Topology
from noesium_stream.projection.base import AnyProjection, BaseProjection
from noesium_stream.projection.fold import PartitionFold
from noesium_stream.projection.reads import require_versions
from noesium_stream.projection.snapshots import Snapshots
from noesium_stream.projection.state_codec import StateCodec
from noesium_stream.projection.state_file import Identity, StateFile

TState = TypeVar("TState")
Report = Callable[[str], None]

SUFFIX: Final = ".state"


def state_path(folder: Path, projection: AnyProjection, tp: TopicPartition) -> Path:
    """The state file of a projection's partition."""
    return version_folder(folder, projection) / f"{tp.topic}-{tp.partition}{SUFFIX}"


def version_folder(folder: Path, projection: AnyProjection) -> Path:
    """Where the files of this version of a projection are."""
    return folder / projection.name / f"v{projection.version}"


def matching(topics: Iterable[str], projection: AnyProjection, topology: Topology) -> list[str]:
    """Those of `topics` that the projection folds, by name."""
    patterns = [f"{topology.namespace}.{pattern}" for pattern in projection.topics]
    return sorted(
        topic for topic in topics if any(fnmatch.fnmatchcase(topic, pattern) for pattern in patterns)
    )


def open_fold(
    folder: Path,
    projection: BaseProjection[TState],
    codec: StateCodec[TState],
    log: EventLog,
    tp: TopicPartition,
    topic_id: str,
    report: Report,
    call: Callable[..., Any] | None = None,
) -> PartitionFold[TState]:
    """Open a partition's state; a file that cannot be trusted is discarded, and `report` is told why.

    Raises:
        StateBusyError: another process writes it.
        ProjectionError: it cannot be written, or the projection `reads` other versions than are known.
    """
    require_versions(projection, log.catalogue)
    path = state_path(folder, projection, tp)
    identity = Identity(projection.name, projection.version, codec.shape, tp.topic, topic_id, tp.partition)
    journal = log.topology.kind(tp.topic) is TopicKind.JOURNAL

    def tell(error: StateFileError) -> None:
        report(f"{error} It is discarded; the events are folded again.")

    file = StateFile.open(path, identity, instead=tell)
    try:
        copies = Snapshots(file)
        return PartitionFold(projection, codec, file, journal=journal, call=call, snapshots=copies)
    except BaseException:
        file.close()
        raise


def merged(projection: BaseProjection[TState], found: Iterable[TState], key: str) -> TState | None:
    """One state from those of several partitions; None where there is none.

    Raises:
        ProjectionError: there are several, and the projection declares no `merge`.
    """
    states = iter(found)
    one = next(states, None)
    for other in states:
        if not projection.merges():
            what = f"The key {key!r}" if projection.keyed() else "The state"
            raise ProjectionError(
                f"{what} of the projection {projection.name} has parts in several partitions.",
                hint="Declare `merge`, or let `key` return the event's partition key.",
            )
        assert one is not None
        one = projection.merge(one, other)
    return one
