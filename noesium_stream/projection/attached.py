"""A projection attached to a log as a member of a consumer group, with its queries (RFC-0004 §4).

`group/member.py` is the group's side: which partitions this process owns, and how they are folded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import KeyElsewhereError, ProjectionError, StateFileError, TopicNotFoundError
from noesium_stream.log.port import EventLog, Position, TopicPartition, process_of
from noesium_stream.log.topics import partition_of
from noesium_stream.projection.base import AnyProjection, require_instance
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.group.member import GroupMember
from noesium_stream.projection.stored.folder import Report, having, merged, merged_rows
from noesium_stream.projection.stored.placement import lies_in_one

DISCOVER_S: Final = 5.0
"""Interval between searches for new topics that match the projection's patterns, in seconds."""
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

    `start` it, `wait` for its end and `close` it, or use it as an asynchronous context manager.

    Args:
        log: the log to fold.
        projection: the projection; its patterns select the topics.
        folder: where state files are stored; the file of a partition that moves away stays there.
        report: called with one sentence when a state file had to be discarded, or the log is unavailable.
        call: how `key` and `apply` are called; see `PartitionFold`.
        discover_interval: interval between searches for new topics.

    Raises:
        ProjectionLoadError: it is not a projection, or its declaration is invalid; see
            `BaseProjection.check`.
    """

    def __init__(
        self,
        log: EventLog,
        projection: AnyProjection,
        folder: Path,
        *,
        report: Report = lambda text: None,
        call: Callable[..., Any] | None = None,
        discover_interval: Duration = DISCOVER_S,
    ) -> None:
        require_instance(projection)
        projection.check()
        self.projection = projection
        self._log = log
        self._member = GroupMember(
            log, projection, Path(folder), report, call, in_seconds(discover_interval, "discover_interval")
        )
        self.group = self._member.group

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this process folds now."""
        return frozenset(self.folds)

    @property
    def folds(self) -> Mapping[TopicPartition, PartitionFold[Any]]:
        """The folds of those partitions."""
        return self._member.folds

    async def __aenter__(self) -> AttachedProjection:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group. Topics may be created later.

        Raises:
            ProjectionError: its state has parts in several partitions, and `merge` is not declared.
            LogUnavailableError
        """
        await self._member.start()

    async def wait(self) -> None:
        """Return when the projection or its log is closed.

        Raises:
            EventHeldError, SequenceGapError, ProjectionError: the error that stopped the fold; see
                `PartitionFold`.
            LogTruncatedError: the log has lost events that were not folded yet; nothing is skipped.
            StateBusyError: another process still writes a state file of a partition that this process now
                owns.
        """
        await self._member.wait()

    async def close(self) -> None:
        """Write what is folded and leave the group. Idempotent; `wait` raises earlier failures."""
        await self._member.close()

    def flush(self) -> None:
        """Write what is folded.

        Raises:
            ProjectionError: as `PartitionFold.flush`, and the projection stops. A damaged file does not
                raise: it is rebuilt.
        """
        self._member.flush()

    async def wait_for(self, position: Position) -> None:
        """Return when the state includes this position (read your own writes).

        Waits while the partition moves between processes.

        Raises:
            KeyElsewhereError: another process folds the partition; the message names it.
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

    async def wait_until_caught_up(self) -> None:
        """Return when what the log holds now is folded, here or by the other members of the group.

        Only this process's own partitions are waited for.

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
        """The state of a row with everything folded so far; None if there is no such row.

        Raises:
            KeyElsewhereError: another process may have folded the row; the message names it.
            ProjectionError: the row has parts in several partitions, and `merge` is not declared.
            StateFileError: a file is damaged. It is rebuilt; until that is done, queries may miss later
                events.
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
        """The rows of this process's partitions, ordered by the UTF-8 bytes of their keys.

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
        """Rebuild a file that a reader finds damaged."""
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
        """Whether the fold has passed this offset of the current topic.

        A topic that was deleted and created again reuses the offsets of the old one.
        """
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
        """The partitions that may hold parts of a row."""
        if lies_in_one(self.projection):
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
        """Return when this process owns these partitions.

        Raises:
            KeyElsewhereError: another process owns some of them.
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
