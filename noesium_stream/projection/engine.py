"""Projections of one process: register, catch up on demand, query (RFC-1001 §8.2).

The engine folds all partitions itself, each time it is asked. To share a projection's partitions among
processes and to follow the log, attach the projection (`attached.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from noesium_stream.errors import LogTruncatedError, ProjectionError, StateFileError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog, Position, TopicPartition, TopicShape
from noesium_stream.log.topics import TopicKind
from noesium_stream.projection.base import AnyProjection, require_instance
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.manifest import Manifest
from noesium_stream.projection.state.same_log import other_logs
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import Report, having, matching, merged, merged_rows, state_path
from noesium_stream.projection.stored.placement import require_merge
from noesium_stream.projection.versions.migration_event import migration_of
from noesium_stream.projection.versions.open_migrated import open_migrated
from noesium_stream.state_file.claim import discard, locked

Folds = dict[TopicPartition, PartitionFold[Any]]


class _BrokenError(Exception):
    """The state file of this partition cannot be trusted."""

    def __init__(self, tp: TopicPartition, reason: StateFileError) -> None:
        super().__init__(str(reason))
        self.tp = tp
        self.reason = reason


@contextmanager
def _naming(tp: TopicPartition) -> Iterator[None]:
    try:
        yield
    except StateFileError as error:
        raise _BrokenError(tp, error) from error


class _Registered:
    def __init__(self, projection: AnyProjection) -> None:
        self.projection = projection
        self.codec: StateCodec[Any] = StateCodec(projection)
        self.folds: Folds = {}
        self.turn = asyncio.Lock()


class ProjectionEngine:
    """Folds, stores and queries projections over one log.

    Use it as a context manager, or `close` it.

    Args:
        log: the log to fold.
        folder: where state files are stored; None stores them until the engine is closed.
        report: called with one sentence when a state file had to be discarded.
        call: how `key` and `apply` are called; see `PartitionFold`.
    """

    def __init__(
        self,
        log: EventLog,
        folder: Path | None = None,
        *,
        report: Report = lambda text: None,
        call: Callable[..., Any] | None = None,
    ) -> None:
        self.log = log
        self._temporary: TemporaryDirectory[str] | None = None
        if folder is None:
            self._temporary = TemporaryDirectory(prefix="noesium-")
            folder = Path(self._temporary.name)
        self._folder = folder
        self._report = report
        self._call = call
        self._registered: dict[str, _Registered] = {}
        self._closed = False

    def __enter__(self) -> ProjectionEngine:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def register(self, name: str, projection: AnyProjection) -> None:
        """Register a projection under a name.

        Raises:
            ProjectionLoadError: it is not a projection, or its declaration is invalid; see
                `BaseProjection.check`.
            ProjectionError: the name is taken, the state cannot be stored, or a registered projection has the
                same name and version and thus the same files.
        """
        require_instance(projection)
        projection.check()
        if name in self._registered:
            raise ProjectionError(f"There is a projection {name} already.")
        for other, found in self._registered.items():
            if (found.projection.name, found.projection.version) == (projection.name, projection.version):
                raise ProjectionError(
                    f"{name} and {other} are both version {projection.version} of {projection.name}.",
                    hint="Give one of the classes another `name`: it says where the state is kept.",
                )
        self._registered[name] = _Registered(projection)

    async def get_state(self, name: str) -> Any:
        """The state as of the log's current end: a dict of rows for a table, else the single state.

        Raises:
            LogTruncatedError: the log has lost events that were not folded yet.
            ProjectionError: there is no such projection; or as `catch_up`.
        """
        await self.catch_up(name)
        found = self._find(name)
        if found.projection.keyed():
            return dict(self.scan(name))
        state = merged(found.projection, self._states(found, ""), "", lambda: having(found.folds, ""))
        return found.projection.initial_state() if state is None else state

    def query(self, name: str, key: str) -> Any | None:
        """The state of a row as of the last `catch_up`; None if there is no such row.

        Raises:
            ProjectionError: the row has parts in several partitions, and `merge` is not declared.
        """
        found = self._asked(name)
        return merged(found.projection, self._states(found, key), key, lambda: having(found.folds, key))

    def scan(self, name: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Rows whose keys begin with `prefix`, ordered by the UTF-8 bytes of their keys.

        Raises:
            ProjectionError: as `query`.
        """
        found = self._asked(name)
        parts = (fold.rows(prefix) for fold in found.folds.values())
        yield from merged_rows(found.projection, parts, found.folds)

    async def wait_for(self, name: str, position: Position) -> None:
        """Return when the projection's state includes this position (read your own writes).

        Raises:
            ProjectionError: the projection does not fold this topic, or the log has no such position.
        """
        await self.catch_up(name)
        fold = self._find(name).folds.get(TopicPartition(position.topic, position.partition))
        if fold is None or fold.cursor <= position.offset:
            where = f"{position.topic}/{position.partition}@{position.offset}"
            raise ProjectionError(
                f"The projection {name} cannot see {where}: it is not on a log that it folds."
            )

    async def apply_event(self, event: EventEnvelope) -> None:
        """Catch all projections up with the log after `event` was appended; nothing is folded twice."""
        for name in self._registered:
            await self.catch_up(name)

    async def rebuild(self, name: str) -> Any:
        """Discard the state and fold everything again; return the new state."""
        found = self._find(name)
        async with found.turn:
            self._forget(found, list(found.folds))
            layout = await self.log.layout()
            for topic in matching(layout, found.projection, self.log.topology):
                for partition in range(layout[topic].partitions):
                    self._discard_file(found, TopicPartition(topic, partition))
        return await self.get_state(name)

    async def catch_up(
        self, name: str, until: Mapping[str, Mapping[int, int]] | None = None
    ) -> list[Manifest]:
        """Fold what the log holds now and write it; return the manifest of each partition.

        `until` limits the fold to these next offsets per topic and partition; a partition that is already
        further stays.

        Raises:
            ProjectionError: a row may have parts in several partitions, and `merge` is not declared.
            EventHeldError, SequenceGapError, ProjectionError: see `PartitionFold.take`.
            LogTruncatedError: the log has lost events that were not folded yet; nothing is skipped.
            StateBusyError: another process writes the state.
        """
        found = self._find(name)
        self._closed = False
        async with found.turn:
            layout = await self.log.layout()
            self._let_go_of_gone(found, layout)
            topics = matching(layout, found.projection, self.log.topology)
            require_merge(found.projection, {topic: layout[topic] for topic in topics})
            for topic in topics:
                end: Mapping[int, int] | None = None
                if until is not None:
                    end = until.get(topic)
                    if end is None:
                        continue
                broken: set[TopicPartition] = set()
                while True:
                    try:
                        await self._catch_up_topic(found, topic, layout[topic].topic_id, end)
                        break
                    except _BrokenError as error:
                        if error.tp in broken:
                            raise error.reason from None
                        broken.add(error.tp)
                        self._report(f"{brief(error.reason)} It is discarded; the events are folded again.")
                        self._forget(found, {error.tp})
            return [fold.manifest for _, fold in sorted(found.folds.items())]

    def file(self, name: str, tp: TopicPartition) -> StateFile | None:
        """The state file of a partition; None if the partition was never folded."""
        fold = self._find(name).folds.get(tp)
        return None if fold is None else fold.file

    async def _catch_up_topic(
        self, found: _Registered, topic: str, topic_id: str, end: Mapping[int, int] | None
    ) -> None:
        now = await self.log.end(topic)
        until = now if end is None else {p: min(end[p], now[p]) for p in end if p in now}
        await self._open(found, topic, topic_id, until)
        folds = {partition: found.folds[TopicPartition(topic, partition)] for partition in until}
        if any(fold.cursor > now[partition] for partition, fold in folds.items()):
            now = await self.log.end(topic)  # the file's previous owner may have folded more
        for partition, fold in folds.items():
            with _naming(TopicPartition(topic, partition)):
                _check_log(fold, topic_id, now[partition])
        behind = {p: fold.cursor for p, fold in folds.items() if fold.cursor < until[p]}
        if behind:
            await self._read(found.projection, topic, folds, behind, until)
        for partition, fold in folds.items():  # includes records taken before another file was found damaged
            with _naming(TopicPartition(topic, partition)):
                if partition in behind:
                    fold.advance(until[partition])
                fold.flush()

    async def _read(
        self,
        projection: AnyProjection,
        topic: str,
        folds: Mapping[int, PartitionFold[Any]],
        behind: Mapping[int, int],
        until: Mapping[int, int],
    ) -> None:
        journal = self.log.topology.kind(topic) is TopicKind.JOURNAL
        types = None if journal else projection.event_types
        try:
            async for batch in self.log.read_batches(
                topic, behind, until={p: until[p] for p in behind}, types=types, partitions=list(behind)
            ):
                for partition, records in groupby(batch, key=lambda record: record.partition):
                    with _naming(TopicPartition(topic, partition)):
                        folds[partition].take(list(records))
        except _BrokenError:
            raise  # the other partitions continue where they are
        except BaseException:
            for fold in folds.values():  # write what was folded before the error
                fold.flush()
            raise

    async def _open(self, found: _Registered, topic: str, topic_id: str, end: Mapping[int, int]) -> None:
        missing = [p for p in end if TopicPartition(topic, p) not in found.folds]
        if not missing:
            return
        first = await self.log.beginning(topic)
        migration = await migration_of(self.log, found.projection)
        for partition in missing:
            tp = TopicPartition(topic, partition)
            fold = await open_migrated(
                self._folder,
                found.projection,
                found.codec,
                self.log,
                tp,
                topic_id,
                migration,
                self._report,
                self._call,
                partitions=len(first),
            )
            try:
                begin(fold, first.get(partition, 0), self._report)
            except BaseException:
                fold.file.close()
                raise
            found.folds[tp] = fold
        opened = [found.folds[TopicPartition(topic, partition)].manifest for partition in missing]
        others = await other_logs(self.log, topic, opened)
        if others:
            for reason in others.values():
                self._report(f"{brief(reason)} It is discarded; the events are folded again.")
            self._forget(found, [TopicPartition(topic, partition) for partition in others])
            await self._open(found, topic, topic_id, end)

    def _forget(self, found: _Registered, tps: Collection[TopicPartition]) -> None:
        """Discard files while they are locked: after unlocking, another process may own them."""
        for tp in tps:
            discard(state_path(self._folder, found.projection, tp))
            found.folds.pop(tp).file.close()

    def _let_go_of_gone(self, found: _Registered, layout: Mapping[str, TopicShape]) -> None:
        """Drop deleted topics, and partitions that a recreated topic no longer has."""
        for tp in list(found.folds):
            shape = layout.get(tp.topic)
            if shape is None:
                found.folds.pop(tp).file.close()
            elif tp.partition >= shape.partitions:
                self._forget(found, {tp})

    def _discard_file(self, found: _Registered, tp: TopicPartition) -> None:
        """Discard a file that is not open.

        Raises:
            StateBusyError: another process writes it.
        """
        path = state_path(self._folder, found.projection, tp)
        if path.exists():
            with locked(path):
                discard(path)

    def _states(self, found: _Registered, key: str) -> Iterator[Any]:
        for fold in found.folds.values():
            state = fold.state(key)
            if state is not None:
                yield state

    def _asked(self, name: str) -> _Registered:
        if self._closed:
            raise ProjectionError(
                f"The projection engine is closed; nothing is known of {name}.", hint="`catch_up` opens it."
            )
        return self._find(name)

    def _find(self, name: str) -> _Registered:
        if name not in self._registered:
            raise ProjectionError(f"There is no projection {name}.", hint="Register it first.")
        return self._registered[name]

    def close(self) -> None:
        """Close all state files. Idempotent."""
        self._closed = True
        for found in self._registered.values():
            for fold in found.folds.values():
                fold.file.close()
            found.folds.clear()
        if self._temporary is not None:
            self._temporary.cleanup()


def _check_log(fold: PartitionFold[Any], topic_id: str, end: int) -> None:
    """Check that the log is the one that was folded.

    Raises:
        StateFileError: it is another log.
    """
    identity = fold.manifest.identity
    if identity.topic_id != topic_id:
        raise StateFileError(
            f"{fold.file.path}: the topic was deleted and made anew (its id was {identity.topic_id})."
        )
    if fold.cursor > end:
        raise StateFileError(f"{fold.file.path}: it is ahead of the log, which has lost its newest events.")


def begin(fold: PartitionFold[Any], first: int, report: Report) -> None:
    """Start a new state at the first retained offset; report it if that is not offset 0.

    Raises:
        LogTruncatedError: the log has lost events that the state has not seen.
    """
    if fold.cursor >= first:
        return
    if fold.cursor > 0:
        at = fold.manifest.identity
        raise LogTruncatedError(at.topic, at.partition, fold.cursor, first)
    report(f"{fold.file.path}: the log begins at offset {first}, the events before it are not in this state.")
    fold.begin_at(first)
