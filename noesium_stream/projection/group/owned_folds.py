"""Folds of the partitions that one process owns: opened on assignment, written and closed on revocation.

A file whose content cannot be trusted is discarded here, while its lock is held. Its partition waits in
`broken` to be opened again and folded from the beginning; the other partitions continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from noesium_stream.errors import StateBusyError, StateFileError, TopicNotFoundError, brief
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.engine import begin
from noesium_stream.projection.fold.partition_fold import UNFLUSHED_BYTES, PartitionFold
from noesium_stream.projection.fold.redrive import answer_requests, requests_in
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.manifest import Manifest
from noesium_stream.projection.state.same_log import other_logs
from noesium_stream.projection.stored.folder import Report, version_folder
from noesium_stream.projection.versions.migration_event import Migration, migration_of
from noesium_stream.projection.versions.open_migrated import open_migrated
from noesium_stream.state_file.claim import discard

BUSY_TRIES: Final = 250
BUSY_PAUSE_S: Final = 0.02
"""Retry interval while another process on this machine still locks a partition that it hands over."""


class _Topic(NamedTuple):
    topic_id: str
    first: Mapping[int, int]
    end: Mapping[int, int]


class Share:
    """One process's folds of a projection; see `AttachedProjection` for the arguments."""

    def __init__(
        self,
        log: EventLog,
        projection: AnyProjection,
        folder: Path,
        report: Report,
        call: Callable[..., Any] | None,
    ) -> None:
        self.folds: dict[TopicPartition, PartitionFold[Any]] = {}
        self.broken: set[TopicPartition] = set()
        self._mine: set[TopicPartition] = set()
        self._log = log
        self._projection = projection
        self._folder = folder
        self._report = report
        self._call = call
        self._codec: StateCodec[Any] = StateCodec(projection)
        self._opening = asyncio.Lock()
        self._to_verify: dict[TopicPartition, tuple[PartitionFold[Any], Manifest]] = {}

    async def take_over(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Open the folds of new partitions; return each one's start offset.

        Raises:
            LogTruncatedError: the log has lost events that a state has not seen.
            StateBusyError: another process keeps writing a file.
            ProjectionError: a file cannot be written.
            TopicNotFoundError, LogUnavailableError
        """
        self._mine.update(tps)
        return await self._open(tps)

    async def open_broken(self) -> dict[TopicPartition, int]:
        """Open the folds whose files were discarded; return each one's start offset.

        Raises as `take_over`.
        """
        return await self._open(self.broken & self._mine)

    async def _open(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        async with self._opening:
            wanted = sorted(tp for tp in tps if tp not in self.folds)
            topics = sorted({tp.topic for tp in wanted})
            found = dict(
                zip(topics, await asyncio.gather(*(self._topic(topic) for topic in topics)), strict=True)
            )
            migration = await migration_of(self._log, self._projection)
            opened: dict[TopicPartition, PartitionFold[Any]] = {}
            try:
                for tp in wanted:
                    if tp.partition in found[tp.topic].end:
                        opened[tp] = await self._open_one(tp, found[tp.topic], migration)
            except BaseException:
                for fold in opened.values():
                    fold.file.close()
                raise
            for tp, fold in opened.items():
                if tp in self._mine:
                    self.folds[tp] = fold
                    self._to_verify[tp] = (fold, fold.manifest)
                    self.broken.discard(tp)
                else:
                    fold.file.close()
            # A recreated topic may have fewer partitions than the group still assigns.
            self.broken.update(self._mine.intersection(tps) - self.folds.keys())
            return {tp: self.folds[tp].cursor for tp in tps if tp in self.folds}

    async def verify(self) -> None:
        """Discard opened files that belong to another log; raises `LogUnavailableError`.

        The check takes a moment; the files are being folded meanwhile.
        """
        for topic in {tp.topic for tp in self._to_verify}:
            opened = {tp: self._to_verify[tp] for tp in self._to_verify if tp.topic == topic}
            others: Mapping[int, StateFileError] = {}
            with suppress(TopicNotFoundError):  # deleted meanwhile
                others = await other_logs(self._log, topic, (manifest for _, manifest in opened.values()))
            for tp, (fold, _) in opened.items():
                if self._to_verify.get(tp) == opened[tp]:
                    del self._to_verify[tp]
                if tp.partition in others and self.folds.get(tp) is fold:
                    self.start_over(tp, others[tp.partition])

    async def _topic(self, topic: str) -> _Topic:
        log = self._log
        return _Topic(*await asyncio.gather(log.topic_id(topic), log.beginning(topic), log.end(topic)))

    async def _open_one(
        self, tp: TopicPartition, topic: _Topic, migration: Migration | None
    ) -> PartitionFold[Any]:
        fold = await self._open_file(tp, topic, migration)
        try:
            # The previous owner may have folded more since: ask for the end again.
            if fold.cursor > topic.end[tp.partition] and await self._is_ahead(fold, tp):
                reason = StateFileError(
                    f"{fold.file.path}: it is ahead of the log, which has lost its newest events."
                )
                self._discard(fold, reason)
                fold = await self._open_file(tp, topic, migration)
            begin(fold, topic.first[tp.partition], self._report)
        except BaseException:
            fold.file.close()
            raise
        return fold

    async def _is_ahead(self, fold: PartitionFold[Any], tp: TopicPartition) -> bool:
        return fold.cursor > (await self._log.end(tp.topic))[tp.partition]

    async def _open_file(
        self, tp: TopicPartition, topic: _Topic, migration: Migration | None
    ) -> PartitionFold[Any]:
        for left in reversed(range(BUSY_TRIES)):
            try:
                return await open_migrated(
                    self._folder,
                    self._projection,
                    self._codec,
                    self._log,
                    tp,
                    topic.topic_id,
                    migration,
                    self._report,
                    self._call,
                    partitions=len(topic.end),
                )
            except StateBusyError:
                if not left:
                    raise
                await asyncio.sleep(BUSY_PAUSE_S)
        raise AssertionError

    def let_go(self, tps: Iterable[TopicPartition]) -> None:
        """Write and close the folds of all these partitions.

        Raises:
            ProjectionError: a file could not be written; the missing events are folded again.
            LogUnavailableError: as `PartitionFold.take`.
        """
        failure: Exception | None = None
        for tp in tps:
            self._mine.discard(tp)
            self.broken.discard(tp)
            fold = self.folds.pop(tp, None)
            if fold is None:
                continue
            try:
                fold.flush()
            except StateFileError as error:
                self._discard(fold, error)
            except Exception as error:  # write the other folds first, then raise
                failure = failure or error
            finally:
                fold.file.close()
        if failure is not None:
            raise failure

    def let_go_of_all(self) -> None:
        """Call `let_go` for all partitions."""
        try:
            self.let_go(list(self.folds))
        finally:
            self._mine.clear()
            self.broken.clear()
            self._to_verify.clear()

    def take(self, records: Sequence[Record]) -> None:
        """Fold records; ignore those of partitions that are not open.

        Raises:
            EventHeldError, SequenceGapError, ProjectionError: see `PartitionFold.take`.
        """
        for (topic, partition), same in groupby(records, key=lambda r: (r.topic, r.partition)):
            tp = TopicPartition(topic, partition)
            fold = self.folds.get(tp)
            if fold is not None:
                try:
                    fold.take(list(same))
                except StateFileError as error:
                    self.start_over(tp, error)
        if sum(fold.unflushed_bytes for fold in self.folds.values()) > UNFLUSHED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is folded.

        Raises:
            ProjectionError: a file or a state cannot be written.
        """
        for tp, fold in list(self.folds.items()):
            try:
                fold.flush()
            except StateFileError as error:
                self.start_over(tp, error)

    def asked(self) -> dict[TopicPartition, Sequence[Path]]:
        """The requests beside the state files of its partitions (`fold/redrive.py`)."""
        beside = requests_in(version_folder(self._folder, self._projection))
        asked = ((tp, beside.get(fold.file.path.name)) for tp, fold in self.folds.items())
        return {tp: requests for tp, requests in asked if requests}

    def answer_requests(self, asked: Mapping[TopicPartition, Sequence[Path]]) -> None:
        """Execute the requests beside these state files; everything folded must be flushed before."""
        for tp, requests in asked.items():
            fold = self.folds.get(tp)
            if fold is None:
                continue
            try:
                done = answer_requests(self._log, fold, requests)
            except StateFileError as error:
                self.start_over(tp, error)
            else:
                self._report(f"{fold.file.path}: {done.folded} letters folded again, {done.stayed} stay.")

    def start_over(self, tp: TopicPartition, reason: StateFileError) -> None:
        """Discard a partition's file; `open_broken` recreates it."""
        fold = self.folds.pop(tp)
        self.broken.add(tp)
        self._discard(fold, reason)

    def put_back(self, tps: Iterable[TopicPartition]) -> None:
        """Close partitions that `open_broken` opened too early; it opens them again."""
        for tp in tps:
            self.folds.pop(tp).file.close()
            self.broken.add(tp)

    def _discard(self, fold: PartitionFold[Any], reason: StateFileError) -> None:
        """Remove the file while it is locked: after unlocking, another process may own it."""
        self._report(f"{brief(reason)} It is discarded; the events are folded again.")
        discard(fold.file.path)
        fold.file.close()
