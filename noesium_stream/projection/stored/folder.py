"""Folder of projection states, and reads that combine several state files.

The path is `FOLDER/NAME/vVERSION/TOPIC-PARTITION.state`: one file per partition, so that a partition that
moves to another process can reuse its file here when it returns.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from heapq import merge as in_order
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

from noesium_stream.errors import ProjectionError, StateBusyError, StateFileError, brief
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.log.topics import TopicKind, Topology, first_generation
from noesium_stream.projection.base import AnyProjection, BaseProjection
from noesium_stream.projection.event_versions import require_versions
from noesium_stream.projection.faults import Misplaced
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.source_line import with_line
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.manifest import Identity
from noesium_stream.projection.state.snapshots import Snapshots
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.state_file.checksummed_file import Claim
from noesium_stream.state_file.claim import locked

TState = TypeVar("TState")
Report = Callable[[str], None]

SUFFIX: Final = ".state"


def state_path(folder: Path, projection: AnyProjection, tp: TopicPartition) -> Path:
    """The state file of a projection's partition."""
    return version_folder(folder, projection) / f"{tp.topic}-{tp.partition}{SUFFIX}"


def version_folder(folder: Path, projection: AnyProjection) -> Path:
    """The folder with the state files of this version of a projection."""
    return folder / projection.name / f"v{projection.version}"


def matching(topics: Iterable[str], projection: AnyProjection, topology: Topology) -> list[str]:
    """The topics that the projection folds, by name.

    A projection that folds a topic also folds its later generations.
    """
    patterns = [f"{topology.namespace}.{pattern}" for pattern in projection.topics]
    return sorted(
        topic
        for topic in topics
        if any(
            fnmatch.fnmatchcase(name, pattern)
            for pattern in patterns
            for name in {topic, first_generation(topic)}
        )
    )


def register_events(log: EventLog, projection: AnyProjection) -> None:
    """Register the projection's `events` with the log.

    Raises:
        ProjectionError: its `event_versions` are not those that are known.
        ConfigError: the log knows one of its `events` with another schema.
    """
    for event in projection.events:
        log.catalogue.register(event, lazily=True)
    require_versions(projection, log.catalogue)


def open_fold(
    folder: Path,
    projection: BaseProjection[TState],
    codec: StateCodec[TState],
    log: EventLog,
    tp: TopicPartition,
    topic_id: str,
    report: Report,
    call: Callable[..., Any] | None = None,
    *,
    flushes: bool = True,
    claim: Claim | None = None,
    misplaced: Misplaced | None = None,
) -> PartitionFold[TState]:
    """Open a partition's state; discard a file that cannot be trusted and call `report` with the reason.

    This registers the projection's `events` with the log. `call`, `flushes` and `misplaced`: see
    `PartitionFold`.

    Raises:
        StateBusyError: another process writes it.
        ProjectionError: it cannot be written, or the projection's `event_versions` are not those that are
            known.
        ConfigError: the log knows one of its `events` with another schema.
    """
    register_events(log, projection)
    path = state_path(folder, projection, tp)
    identity = Identity(projection.name, projection.version, codec.shape, tp.topic, topic_id, tp.partition)
    journal = log.topology.kind(tp.topic) is TopicKind.JOURNAL

    def tell(error: StateFileError) -> None:
        report(f"{error} It is discarded; the events are folded again.")

    file = StateFile.open(path, identity, instead=tell, claim=claim)
    try:
        copies = Snapshots(file)
        return PartitionFold(
            projection,
            codec,
            file,
            journal=journal,
            call=call,
            snapshots=copies,
            flushes=flushes,
            misplaced=misplaced,
        )
    except BaseException:
        file.close()
        raise


def merged(
    projection: BaseProjection[TState],
    found: Iterable[TState],
    key: str,
    where: Callable[[], Iterable[TopicPartition]] = tuple,
) -> TState | None:
    """One state from those of several partitions; None if there are none.

    Raises:
        ProjectionError: there are several and the projection declares no `merge`, or `merge` fails. `where`
            provides the partitions for the message.
    """
    states = iter(found)
    one = next(states, None)
    for other in states:
        if not projection.merges():
            parts = projection.unmerged()
            raise parted(projection.name, projection.keyed(), key, list(where()), parts)
        assert one is not None
        one = _merge(projection, one, other, key)
    return one


def _merge(projection: BaseProjection[TState], one: TState, other: TState, key: str) -> TState:
    of = f"of the key {key!r}" if projection.keyed() else "of two partitions"
    try:
        both = projection.merge(one, other)
        what = f"returned None for states {of}"
    except Exception as error:
        both = None
        what = f"failed on states {of}: {type(error).__name__}: {with_line(brief(error, 300), error)}"
    if both is None:
        raise ProjectionError(
            f"`merge` of the projection {projection.name} {what}.",
            hint="Mend it: it takes the states of two partitions and returns one. Nothing is folded again.",
        )
    return both


def merged_rows(
    projection: BaseProjection[TState],
    parts: Iterable[Iterator[tuple[str, TState]]],
    folds: Mapping[TopicPartition, PartitionFold[Any]],
) -> Iterator[tuple[str, TState | None]]:
    """The rows of several partitions as one table, in UTF-8 byte order of their keys; raises as `merged`.

    Args:
        projection: the projection.
        parts: the rows of each partition, in that order.
        folds: the folds of the partitions.
    """
    rows = in_order(*parts, key=lambda row: row[0].encode())
    for key, same in groupby(rows, key=itemgetter(0)):
        yield key, merged(projection, (state for _, state in same), key, partial(having, folds, key))


def is_written(folder: Path, projection: AnyProjection) -> bool:
    """Whether another process is writing a state of this version; raises `OSError`."""
    for path in version_folder(folder, projection).glob(f"*{SUFFIX}"):
        try:
            locked(path).close()
        except StateBusyError:
            return True
    return False


def having(folds: Mapping[TopicPartition, PartitionFold[Any]], key: str) -> list[TopicPartition]:
    """The partitions that hold a part of a row; raises `StateFileError`."""
    return [tp for tp, fold in folds.items() if fold.state(key) is not None]


def parted(
    name: str, keyed: bool, key: str, where: Collection[TopicPartition], unmerged: Collection[str]
) -> ProjectionError:
    """The error for a state with several parts and no `merge`.

    Args:
        name: the projection's name.
        keyed: whether its state is a table.
        key: the row.
        where: the partitions that hold a part of it.
        unmerged: if composed, the parts without `merge`.
    """
    topics = sorted({tp.topic for tp in where})
    several = f"topics ({', '.join(topics)})" if len(topics) > 1 else "partitions"
    what = f"The key {key!r}" if keyed else "The state"
    hint = "Declare `merge`"
    if unmerged:
        hint += f" in {', '.join(unmerged)}"
    if len(topics) > 1:
        hint += ", or name one topic alone in `topics`: a key's parts lie by topic and partition."
    elif keyed:
        hint += ", or let `key` return the event's partition key."
    else:
        hint += ", or `key`: without one there is a state per partition."
    return ProjectionError(f"{what} of the projection {name} has parts in several {several}.", hint=hint)
