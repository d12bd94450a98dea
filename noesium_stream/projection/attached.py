"""A projection attached to a log as a consumer group: it follows, and shares its partitions (RFC-0004 §4).

Where a partition goes on is said by its state file, not by the group's offset. Events are folded as they come
and written together, at the latest `FLUSH_S` after they were folded, and before a partition goes to another
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge as in_order
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import KeyElsewhereError, ProjectionError, StateFileError
from noesium_stream.log.port import EventLog, Position, Subscription, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.log.topics import TopicKind, partition_of
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.engine import begin
from noesium_stream.projection.fold import PartitionFold
from noesium_stream.projection.folder import Report, matching, merged, open_fold
from noesium_stream.projection.redrive import answer_request
from noesium_stream.projection.state_codec import StateCodec
from noesium_stream.projection.state_file import discard

FLUSH_S: Final = 0.05
DISCOVER_S: Final = 5.0
"""How often topics are looked for that the projection's patterns match and that it does not read yet."""
LOOK_S: Final = 0.5
"""How often requests beside the state files are looked for (`redrive.py`)."""


def group_of(log: EventLog, projection: AnyProjection) -> str:
    """The consumer group of this version of a projection."""
    return f"{log.topology.namespace}.projection.{projection.name}.v{projection.version}"


class AttachedProjection:
    """One process's share of a projection.

    Args:
        log: what is folded.
        projection: its patterns say which topics.
        folder: where states are kept; a partition that moves away keeps its file there.
        report: told in one sentence when a state file had to be discarded.
        call: how `key` and `apply` are called; see `PartitionFold`.
        discover_s: how often new topics are looked for, in seconds.

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
        self.projection = projection
        self.group = group_of(log, projection)
        self._log = log
        self._folder = folder
        self._report = report
        self._call = call
        self._discover_s = discover_s
        self._codec: StateCodec[Any] = StateCodec(projection)
        self._folds: dict[TopicPartition, PartitionFold[Any]] = {}
        self._topics: list[str] = []
        self._partitions: dict[str, int] = {}
        self._subscription: Subscription | None = None
        self._flusher: asyncio.TimerHandle | None = None
        self._moved = asyncio.Condition()
        self._trouble: asyncio.Future[None] | None = None
        self._main: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this process folds now."""
        return frozenset(self._folds)

    @property
    def folds(self) -> Mapping[TopicPartition, PartitionFold[Any]]:
        """Their folds."""
        return self._folds

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
        await self._find_topics()
        await self._subscribe()
        self._main = asyncio.create_task(self._run(), name=f"noesium projection {self.projection.name}")

    async def wait(self) -> None:
        """Return when it is closed.

        Raises:
            EventHeldError, SequenceGapError, ProjectionError: what stopped the fold; see `PartitionFold`.
            LogTruncatedError: the log lacks events that were not folded yet; nothing is skipped.
            StateBusyError: another process writes the same state folder.
        """
        if self._main is not None:
            await asyncio.shield(self._main)

    async def close(self) -> None:
        """Write what is folded and leave the group; harmless when repeated. `wait` tells what had failed."""
        main, self._main = self._main, None
        if main is not None:
            main.cancel()
            await asyncio.wait((main,))
        await self._unsubscribe()

    async def barrier(self, position: Position) -> None:
        """Return when the state has seen this position: read your own writes.

        Raises:
            KeyElsewhereError: its partition is folded by another process.
            ProjectionError: the projection does not fold this topic, or has stopped.
        """
        tp = TopicPartition(position.topic, position.partition)
        if not matching([tp.topic], self.projection, self._log.topology):
            raise ProjectionError(f"The projection {self.projection.name} does not fold {tp.topic}.")
        async with self._moved:
            await self._moved.wait_for(lambda: self._failure is not None or self._seen(tp, position.offset))
        if self._failure is not None:
            raise ProjectionError(f"The projection {self.projection.name} has stopped.") from self._failure

    def query(self, key: str) -> Any | None:
        """The state of a row, as of what is folded now; None if there is no such row.

        Raises:
            KeyElsewhereError: its partition is folded by another process.
            ProjectionError: it has parts in several partitions, and no `merge` is declared.
        """
        self._require_here(key)
        states = [fold.state(key) for fold in self._folds.values()]
        return merged(self.projection, (state for state in states if state is not None), key)

    def scan(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Rows of this process's partitions, in the order of their keys' UTF-8 bytes.

        Raises:
            ProjectionError: as `query`.
        """
        self.flush()
        rows = in_order(
            *(fold.rows(prefix) for fold in self._folds.values()), key=lambda row: row[0].encode()
        )
        for key, same in groupby(rows, key=itemgetter(0)):
            yield key, merged(self.projection, (state for _, state in same), key)

    def flush(self) -> None:
        """Write what is folded.

        Raises:
            StateFileError, ProjectionError: as `PartitionFold.flush`.
        """
        if self._flusher is not None:
            self._flusher.cancel()
            self._flusher = None
        for fold in self._folds.values():
            fold.flush()

    def _seen(self, tp: TopicPartition, offset: int) -> bool:
        fold = self._folds.get(tp)
        if fold is not None:
            return fold.cursor > offset
        return False

    def _require_here(self, key: str) -> None:
        if self.projection.merges():
            wanted = {
                TopicPartition(topic, p) for topic in self._topics for p in range(self._partitions[topic])
            }
        else:
            wanted = {TopicPartition(topic, partition_of(key, n)) for topic, n in self._partitions.items()}
        elsewhere = sorted(wanted - self._folds.keys())
        if elsewhere:
            where = ", ".join(f"{tp.topic}/{tp.partition}" for tp in elsewhere[:3])
            raise KeyElsewhereError(
                f"The key {key!r} of the projection {self.projection.name} may live in another process, "
                f"which folds {where}.",
                hint="Ask there, or attach fewer processes.",
            )

    async def _run(self) -> None:
        """Follow; subscribe anew when topics came or a state file had to be discarded."""
        looked = 0.0
        try:
            while True:
                subscription = self._subscription
                assert subscription is not None
                ended = asyncio.ensure_future(subscription.wait())
                try:
                    trouble = self._trouble = asyncio.get_running_loop().create_future()
                    done, _ = await asyncio.wait(
                        (ended, trouble),
                        timeout=min(LOOK_S, self._discover_s),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if done:
                        await self._after_end(done.pop())
                        continue
                    self._answer_requests()
                    looked += LOOK_S
                    if looked < self._discover_s:
                        continue
                    looked = 0.0
                    if await self._find_topics():
                        await self._unsubscribe()
                        await self._subscribe()
                finally:
                    ended.cancel()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failure = error
            async with self._moved:
                self._moved.notify_all()
            raise

    async def _after_end(self, ended: asyncio.Future[None]) -> None:
        try:
            await ended
        except StateFileError as error:
            self._report(f"{error} It is discarded; the events are folded again.")
            for tp in list(self._folds):
                self._close(tp, broken=error)
        await self._unsubscribe()
        await self._subscribe()

    def _answer_requests(self) -> None:
        for fold in self._folds.values():
            done = answer_request(self._log, fold)
            if done is not None:
                self._report(f"{fold.file.path}: {done.folded} letters folded again, {done.stayed} stay.")

    async def _find_topics(self) -> bool:
        infos = {info.name: info.partitions for info in await self._log.topics()}
        topics = matching(infos, self.projection, self._log.topology)
        changed = topics != self._topics
        self._topics, self._partitions = topics, {topic: infos[topic] for topic in topics}
        return changed

    async def _subscribe(self) -> None:
        kinds = {self._log.topology.kind(topic) for topic in self._topics}
        self._subscription = await self._log.subscribe(
            self.group,
            self._topics,
            self._take,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            types=None if TopicKind.JOURNAL in kinds else self.projection.event_types,
        )

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()
        for tp in list(self._folds):
            self._close(tp)

    async def _assigned(self, tps: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        starts = {}
        for topic in sorted({tp.topic for tp in tps}):
            first, end = await self._log.beginning(topic), await self._log.end(topic)
            topic_id = await self._log.topic_id(topic)
            for tp in sorted(tp for tp in tps if tp.topic == topic):
                fold = self._open(tp, topic_id)
                if fold.cursor > end[tp.partition]:
                    reason = f"{fold.file.path}: it is ahead of the log, which has lost its newest events."
                    self._report(f"{reason} It is discarded; the events are folded again.")
                    fold.file.close()
                    discard(fold.file.path)
                    fold = self._open(tp, topic_id)
                self._folds[tp] = fold
                begin(fold, first[tp.partition])
                starts[tp] = fold.cursor
        async with self._moved:
            self._moved.notify_all()
        return starts

    def _open(self, tp: TopicPartition, topic_id: str) -> PartitionFold[Any]:
        return open_fold(
            self._folder, self.projection, self._codec, self._log, tp, topic_id, self._report, self._call
        )

    async def _revoked(self, tps: frozenset[TopicPartition]) -> None:
        for tp in tps:
            self._close(tp)
        async with self._moved:
            self._moved.notify_all()

    def _close(self, tp: TopicPartition, broken: StateFileError | None = None) -> None:
        fold = self._folds.pop(tp, None)
        if fold is None:
            return
        try:
            if broken is None:
                fold.flush()
        finally:
            fold.file.close()
        if broken is not None and str(fold.file.path) in broken.message:
            discard(fold.file.path)

    async def _take(self, records: Sequence[Record]) -> None:
        for tp, same in groupby(records, key=lambda record: TopicPartition(record.topic, record.partition)):
            fold = self._folds.get(tp)
            if fold is not None:
                fold.take(list(same))
        if self._flusher is None:
            self._flusher = asyncio.get_running_loop().call_later(FLUSH_S, self._flush_later)
        async with self._moved:
            self._moved.notify_all()

    def _flush_later(self) -> None:
        self._flusher = None
        try:
            self.flush()
        except ProjectionError as error:
            if self._trouble is not None and not self._trouble.done():
                self._trouble.set_exception(error)
