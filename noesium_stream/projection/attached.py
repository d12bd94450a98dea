"""A projection attached to a log as a consumer group: what its readers ask (RFC-0004 §4).

`member.py` is the group's side of it: which partitions this process has, and how they are folded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import KeyElsewhereError, ProjectionError, StateFileError, TopicNotFoundError
from noesium_stream.log.port import EventLog, Position, TopicPartition, process_of
from noesium_stream.log.topics import partition_of
from noesium_stream.projection.base import AnyProjection, require_instance
from noesium_stream.projection.fold import PartitionFold
from noesium_stream.projection.folder import Report, having, merged, merged_rows
from noesium_stream.projection.member import GroupMember

DISCOVER_S: Final = 5.0
"""How often topics are looked for that the projection's patterns match and that it does not read yet."""
_LEFT_S: Final = 0.05
_ASK_S: Final = 0.2
_SEE_S: Final = 0.01
_MOST: Final = 3
_ASK_ALL: Final = (
    "A key that is merged has parts in all partitions: ask a `ProjectionEngine`, which folds them all, or "
    "attach one process."
)


class AttachedProjection:
    """One process's share of a projection.

    Args:
        log: what is folded.
        projection: its patterns say which topics.
        folder: where states are kept; a partition that moves away keeps its file there.
        report: told in one sentence when a state file had to be discarded, or the log is away.
        call: how `key` and `apply` are called; see `PartitionFold`.
        discover_s: how often new topics are looked for, in seconds.

    Raises:
        ProjectionLoadError: it is no projection, or declares what cannot be; see `BaseProjection.check`.

    `start` it, `wait` for its end, `close` it; or use it as an asynchronous context manager.
    """

    def __init__(
        self,
        log: EventLog,
        projection: AnyProjection,
        folder: Path,
        *,
        report: Report = lambda text: None,
        call: Callable[..., Any] | None = None,
        discover_s: float = DISCOVER_S,
    ) -> None:
        require_instance(projection)
        projection.check()
        self.projection = projection
        self._log = log
        self._member = GroupMember(log, projection, Path(folder), report, call, discover_s)
        self.group = self._member.group

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this process folds now."""
        return frozenset(self.folds)

    @property
    def folds(self) -> Mapping[TopicPartition, PartitionFold[Any]]:
        """Their folds."""
        return self._member.folds

    async def __aenter__(self) -> AttachedProjection:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group; topics may come later.

        Raises:
            LogUnavailableError
        """
        await self._member.start()

    async def wait(self) -> None:
        """Return when it is closed, or its log is.

        Raises:
            EventHeldError, SequenceGapError, ProjectionError: what stopped the fold; see `PartitionFold`.
            LogTruncatedError: the log lacks events that were not folded yet; nothing is skipped.
            StateBusyError: another process goes on writing a state file that is this one's now.
        """
        await self._member.wait()

    async def close(self) -> None:
        """Write what is folded and leave the group; harmless when repeated. `wait` tells what had failed."""
        await self._member.close()

    def flush(self) -> None:
        """Write what is folded.

        Raises:
            ProjectionError: as `PartitionFold.flush`, and the projection stops; a damaged file is made anew
                instead.
        """
        self._member.flush()

    async def barrier(self, position: Position) -> None:
        """Return when the state has seen this position: read your own writes.

        A partition that is changing hands is waited for.

        Raises:
            KeyElsewhereError: its partition is folded by another process; names it.
            ProjectionError: the projection does not fold this partition, or has stopped.
            LogUnavailableError
        """
        tp = TopicPartition(position.topic, position.partition)
        if not self._folds_partition(tp):
            await self._member.discover()
        self._this(tp)
        what = f"{tp.topic}/{tp.partition} is folded"
        while not await self._has_seen(tp, position.offset):
            await self._here(lambda: self._this(tp), what)
            if not self._member.has_passed(tp, position.offset):
                await self._member.change(_SEE_S)
                self._member.check_running()

    async def caught_up(self) -> None:
        """Return when what the log holds now was folded: here, or left to the other processes of the group.

        Raises:
            ProjectionError: the projection has stopped.
            LogUnavailableError
        """
        await self._member.discover()
        topics = list(self._member.layout)
        ends = await asyncio.gather(*(self._log.end(topic) for topic in topics))
        left = {
            TopicPartition(topic, partition): offset
            for topic, end in zip(topics, ends, strict=True)
            for partition, offset in end.items()
        }
        while left:
            self._member.check_running()
            left = {
                tp: end
                for tp, end in left.items()
                if self._folds_partition(tp) and not self._member.has_passed(tp, end - 1)
            }
            if left.keys() - self.folds.keys():
                for share in await self._member.others():
                    left = {tp: end for tp, end in left.items() if tp not in share.partitions}
            if left:
                await self._member.change(_LEFT_S)

    async def query(self, key: str) -> Any | None:
        """The state of a row, as of what is folded now; None if there is no such row.

        Raises:
            KeyElsewhereError: it may have been folded by another process; names it.
            ProjectionError: it has parts in several partitions, and no `merge` is declared.
            StateFileError: a file is damaged; it is made anew, and asked again it may lack what comes later.
        """
        await self._here(lambda: self._partitions_of(key), f"The key {key!r} may live elsewhere: a part is")
        states = []
        try:
            for tp, fold in list(self.folds.items()):
                with self._mending(tp):
                    states.append(fold.state(key))
        except StateFileError:
            raise
        except BaseException as error:
            self._member.stop(error)
            raise
        found = (state for state in states if state is not None)
        return merged(self.projection, found, key, partial(having, self.folds, key))

    def scan(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Rows of this process's partitions, in the order of their keys' UTF-8 bytes.

        Raises:
            ProjectionError: as `query`.
        """
        self.flush()
        yield from merged_rows(self.projection, (self._rows(tp, prefix) for tp in self.folds), self.folds)

    def _rows(self, tp: TopicPartition, prefix: str) -> Iterator[tuple[str, Any]]:
        with self._mending(tp):
            yield from self.folds[tp].rows(prefix)

    @contextmanager
    def _mending(self, tp: TopicPartition) -> Iterator[None]:
        """A file that a reader finds damaged is made anew."""
        fold = self.folds[tp]
        try:
            yield
        except StateFileError as error:
            if self.folds.get(tp) is fold:
                self._member.start_over(tp, error)
            raise

    def _folds_partition(self, tp: TopicPartition) -> bool:
        shape = self._member.layout.get(tp.topic)
        return shape is not None and tp.partition < shape.partitions

    async def _has_seen(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the fold has passed this offset of the topic as it is now: one that was made anew has the
        old one's offsets too."""
        if not self._member.has_passed(tp, offset):
            return False
        with suppress(TopicNotFoundError):
            topic_id = await self._log.topic_id(tp.topic)
            fold = self.folds.get(tp)
            if fold is None or fold.manifest.identity.topic_id == topic_id:
                return self._member.has_passed(tp, offset)
        await self._member.discover()
        return False

    def _this(self, tp: TopicPartition) -> set[TopicPartition]:
        if not self._folds_partition(tp):
            where = f"{tp.topic}/{tp.partition}"
            raise ProjectionError(f"The projection {self.projection.name} does not fold {where}.")
        return {tp}

    def _partitions_of(self, key: str) -> set[TopicPartition]:
        """Where a row's parts may be."""
        if self.projection.keyed() and not self.projection.merges():
            return {
                TopicPartition(topic, partition_of(key, shape.partitions))
                for topic, shape in self._member.layout.items()
            }
        return {
            TopicPartition(topic, partition)
            for topic, shape in self._member.layout.items()
            for partition in range(shape.partitions)
        }

    async def _here(self, wanted: Callable[[], set[TopicPartition]], what: str) -> None:
        """Return when this process has these partitions.

        Raises:
            KeyElsewhereError: another one has some of them.
        """
        self._member.check_running()
        while missing := wanted() - self.folds.keys():
            for share in await self._member.others():
                others = sorted(missing & share.partitions)
                if others:
                    owner = process_of(share.member)
                    where = ", ".join(f"{tp.topic}/{tp.partition}" for tp in others[:_MOST])
                    where += f" and {len(others) - _MOST} more" if len(others) > _MOST else ""
                    merges = self.projection.merges()
                    raise KeyElsewhereError(
                        f"{what} by the process {owner} ({where}), not by this one, for the projection "
                        f"{self.projection.name}.",
                        owner=owner,
                        hint=_ASK_ALL if merges else "Ask there, or attach fewer processes.",
                    )
            await self._member.change(_ASK_S)
            self._member.check_running()
