"""A projection attached to a log as a consumer group: it follows, and shares its partitions (RFC-0004 §4).

Where a partition goes on is said by its state file, not by the group's offset. Events are folded as they come
and written together, `FLUSH_S` to `FLUSH_MOST_S` later, and before a partition goes to another
process. Processes of one machine may share the folder: a file is locked by the one that has the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import merge as in_order
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import (
    EventStoreError,
    KeyElsewhereError,
    LogCorruptError,
    ProjectionError,
    StateFileError,
    TopicNotFoundError,
    brief,
)
from noesium_stream.log.port import (
    EventLog,
    GroupShare,
    Position,
    Subscription,
    TopicPartition,
    TopicShape,
    process_of,
)
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.fold import PartitionFold
from noesium_stream.projection.folder import Report, having, matching, merged
from noesium_stream.projection.share import Share

FLUSH_S: Final = 0.05
FLUSH_MOST_S: Final = 0.5
"""Where writing takes long it is done less often, so that it takes a tenth of the time, up to here."""
DISCOVER_S: Final = 5.0
"""How often topics are looked for that the projection's patterns match and that it does not read yet."""
LOOK_S: Final = 0.5
"""How often requests beside the state files are looked for (`redrive.py`)."""
RETRY_S: Final = 1.0
"""How long to wait before joining the group anew, where the log was away."""
_ASK_S: Final = 0.2
_SEE_S: Final = 0.01


def group_of(log: EventLog, projection: AnyProjection) -> str:
    """The consumer group of this version of a projection."""
    return f"{log.topology.namespace}.projection.{projection.name}.v{projection.version}"


class AttachedProjection:
    """One process's share of a projection.

    Args:
        log: what is folded.
        projection: its patterns say which topics.
        folder: where states are kept; a partition that moves away keeps its file there.
        report: told in one sentence when a state file had to be discarded, or the log is away.
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
        self._report = report
        self._discover_s = discover_s
        self._share = Share(log, projection, folder, report, call)
        self._layout: dict[str, TopicShape] = {}
        self._followed: Mapping[str, TopicShape] = {}
        self._subscription: Subscription | None = None
        self._flusher: asyncio.TimerHandle | None = None
        self._flush_took_s = 0.0
        self._moved = asyncio.Event()
        self._wake = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._trouble: BaseException | None = None
        self._failure: BaseException | None = None
        self._away = False
        self._corrupt = False

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this process folds now."""
        return frozenset(self._share.folds)

    @property
    def folds(self) -> Mapping[TopicPartition, PartitionFold[Any]]:
        """Their folds."""
        return self._share.folds

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
        """Return when it is closed, or its log is.

        Raises:
            EventHeldError, SequenceGapError, ProjectionError: what stopped the fold; see `PartitionFold`.
            LogTruncatedError: the log lacks events that were not folded yet; nothing is skipped.
            StateBusyError: another process goes on writing a state file that is this one's now.
        """
        if self._main is not None:
            await asyncio.wait((self._main,))
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Write what is folded and leave the group; harmless when repeated. `wait` tells what had failed."""
        if self._main is not None:
            self._main.cancel()
            await asyncio.wait((self._main,))
            await self._end()  # a task that is cancelled before it began has left nothing

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
            await self._discover()
        self._this(tp)
        what = f"{tp.topic}/{tp.partition} is folded"
        while not self._seen(tp, position.offset):
            await self._here(lambda: self._this(tp), what)
            if not self._seen(tp, position.offset):
                await self._change(_SEE_S)
                self._check_running()

    async def caught_up(self) -> None:
        """Return when what the log holds now was folded: here, or left to the other processes of the group.

        Raises:
            ProjectionError: the projection has stopped.
            LogUnavailableError
        """
        await self._discover()
        topics = list(self._layout)
        ends = await asyncio.gather(*(self._log.end(topic) for topic in topics))
        left = {
            TopicPartition(topic, partition): offset
            for topic, end in zip(topics, ends, strict=True)
            for partition, offset in end.items()
        }
        while left:
            self._check_running()
            left = {
                tp: end
                for tp, end in left.items()
                if self._folds_partition(tp) and not self._seen(tp, end - 1)
            }
            if left.keys() - self.folds.keys():
                for share in await self._others():
                    left = {tp: end for tp, end in left.items() if tp not in share.partitions}
            if left:
                await self._change(FLUSH_S)

    async def query(self, key: str) -> Any | None:
        """The state of a row, as of what is folded now; None if there is no such row.

        Raises:
            KeyElsewhereError: it may have been folded by another process; names it.
            ProjectionError: it has parts in several partitions, and no `merge` is declared.
        """
        await self._here(lambda: self._partitions_of(key), f"The key {key!r} may live elsewhere: a part is")
        try:
            states = [fold.state(key) for fold in self.folds.values()]
        except StateFileError:
            raise
        except BaseException as error:
            self._stop(error)
            raise
        found = (state for state in states if state is not None)
        return merged(self.projection, found, key, partial(having, self.folds, key))

    def scan(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Rows of this process's partitions, in the order of their keys' UTF-8 bytes.

        Raises:
            ProjectionError: as `query`.
        """
        self.flush()
        rows = in_order(*(fold.rows(prefix) for fold in self.folds.values()), key=lambda row: row[0].encode())
        for key, same in groupby(rows, key=itemgetter(0)):
            states = (state for _, state in same)
            yield key, merged(self.projection, states, key, partial(having, self.folds, key))

    def flush(self) -> None:
        """Write what is folded.

        Raises:
            ProjectionError: as `PartitionFold.flush`, and the projection stops; a damaged file is made anew
                instead.
        """
        if self._flusher is not None:
            self._flusher.cancel()
            self._flusher = None
        try:
            self._share.flush()
        except BaseException as error:
            self._stop(error)
            raise
        if self._share.broken:
            self._wake.set()

    def _stop(self, error: BaseException) -> None:
        """End, or join anew: a fold may be back at what is in its file, and nothing may follow on that."""
        self._trouble = self._trouble or error
        self._wake.set()

    def _folds_partition(self, tp: TopicPartition) -> bool:
        shape = self._layout.get(tp.topic)
        return shape is not None and tp.partition < shape.partitions

    def _this(self, tp: TopicPartition) -> set[TopicPartition]:
        if not self._folds_partition(tp):
            where = f"{tp.topic}/{tp.partition}"
            raise ProjectionError(f"The projection {self.projection.name} does not fold {where}.")
        return {tp}

    def _seen(self, tp: TopicPartition, offset: int) -> bool:
        fold = self.folds.get(tp)
        if fold is None or self._subscription is None:
            return False
        # Events that are not wanted are read and not handed over.
        return max(fold.cursor, self._subscription.position(tp) or 0) > offset

    def _partitions_of(self, key: str) -> set[TopicPartition]:
        """Where a row's parts may be."""
        if self.projection.keyed() and not self.projection.merges():
            return {
                TopicPartition(topic, partition_of(key, shape.partitions))
                for topic, shape in self._layout.items()
            }
        return {
            TopicPartition(topic, partition)
            for topic, shape in self._layout.items()
            for partition in range(shape.partitions)
        }

    async def _here(self, wanted: Callable[[], set[TopicPartition]], what: str) -> None:
        """Return when this process has these partitions.

        Raises:
            KeyElsewhereError: another one has some of them.
        """
        self._check_running()
        while missing := wanted() - self.folds.keys():
            for share in await self._others():
                others = sorted(missing & share.partitions)
                if others:
                    owner = process_of(share.member)
                    where = ", ".join(f"{tp.topic}/{tp.partition}" for tp in others[:3])
                    raise KeyElsewhereError(
                        f"{what} by the process {owner} ({where}), not by this one, for the projection "
                        f"{self.projection.name}.",
                        owner=owner,
                        hint="Ask there, or attach fewer processes.",
                    )
            await self._change(_ASK_S)
            self._check_running()

    async def _others(self) -> list[GroupShare]:
        mine = None if self._subscription is None else self._subscription.member
        return [share for share in await self._log.members(self.group) if share.member != mine]

    def _check_running(self) -> None:
        if self._failure is not None:
            raise ProjectionError(f"The projection {self.projection.name} has stopped.") from self._failure
        if self._main is None or self._main.done():
            raise ProjectionError(f"The projection {self.projection.name} is not attached.")

    async def _change(self, timeout_s: float) -> None:
        """Return when something was folded, or has come or gone; at the latest after this time."""
        moved = self._moved
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await moved.wait()

    def _changed(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _run(self) -> None:
        """Follow, and join anew after the log was away; in the end leave, whatever happened."""
        try:
            while not await self._follow():
                await self._rejoin()
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            await self._end()

    async def _end(self) -> None:
        try:
            await self._leave()
        except BaseException as error:
            self._failure = self._failure or error
        self._changed()

    async def _follow(self) -> bool:
        """Whether the log was closed; False: the group has to be joined anew."""
        subscription = self._subscription
        assert subscription is not None
        ended = asyncio.ensure_future(subscription.wait())
        try:
            looked_s = 0.0
            while not ended.done():
                waking = asyncio.ensure_future(self._wake.wait())
                pause_s = min(LOOK_S, self._discover_s)
                await asyncio.wait((ended, waking), timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                self._wake.clear()
                looked_s += pause_s
                if not ended.done():
                    looked_s = await self._tend(subscription, looked_s)
            ended.result()
        except EventStoreError as error:
            if not (error.retriable or isinstance(error, TopicNotFoundError) or self._made_anew(error)):
                raise
            self._say_away(error)
            return False
        finally:
            if not ended.cancel() and not ended.cancelled():
                ended.exception()  # asked for here: what was raised before it is told
        return True

    def _made_anew(self, error: EventStoreError) -> bool:
        """Whether it may be that a topic has fewer records than before; joining anew looks, once."""
        if not isinstance(error, LogCorruptError) or self._corrupt:
            return False
        self._corrupt = True
        return True

    async def _tend(self, subscription: Subscription, looked_s: float) -> float:
        """What has to be done now and then; how long ago topics were looked for."""
        if self._trouble is not None:
            raise self._trouble
        try:
            if self._share.broken:
                starts = await self._share.open_broken()
                subscription.seek(starts)
                # One that is only just being assigned begins where its old file was: it is opened again.
                self._share.put_back(tp for tp in starts if subscription.position(tp) is None)
                self._changed()
            self._share.answer_requests()
            if looked_s >= self._discover_s:
                await self._discover()
                looked_s = 0.0
        except EventStoreError as error:
            if not (error.retriable or isinstance(error, TopicNotFoundError)):
                raise
            self._say_away(error)
        return looked_s

    async def _discover(self) -> None:
        """Look for topics that came, went, or were made anew."""
        await self._find_topics()
        subscription = self._subscription
        if subscription is None or self._trouble is not None:
            return
        for tp, fold in list(self.folds.items()):
            shape, identity = self._layout.get(tp.topic), fold.manifest.identity
            if shape is not None and shape.topic_id != identity.topic_id:
                text = (
                    f"{fold.file.path}: the topic was deleted and made anew (its id was {identity.topic_id})."
                )
                self._share.start_over(tp, StateFileError(text))
                self._wake.set()
            else:
                fold.advance(subscription.position(tp) or 0)
        self._flush_soon()
        if self._layout != self._followed:
            subscription.change_topics(list(self._layout))
            self._followed = self._layout
        self._away = self._corrupt = False

    async def _find_topics(self) -> None:
        found = await self._log.layout()
        self._layout = {topic: found[topic] for topic in matching(found, self.projection, self._log.topology)}

    async def _subscribe(self) -> None:
        # A journal's records are numbered: all of them have to be seen.
        facts = all(pattern.startswith("events.") for pattern in self.projection.topics)
        self._followed = self._layout  # which may be another one when the group has been joined
        self._subscription = await self._log.subscribe(
            self.group,
            list(self._layout),
            self._take,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            types=self.projection.event_types if facts else None,
        )

    async def _rejoin(self) -> None:
        await self._leave()
        self._trouble = None
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                await self._find_topics()
                await self._subscribe()
            except EventStoreError as error:
                if not (error.retriable or isinstance(error, TopicNotFoundError)):
                    raise
                self._say_away(error)
            else:
                return

    def _say_away(self, error: EventStoreError) -> None:
        if not self._away:
            self._away = True
            self._report(f"{brief(error)} The projection goes on when it can.")

    async def _leave(self) -> None:
        if self._flusher is not None:
            self._flusher.cancel()
            self._flusher = None
        subscription, self._subscription = self._subscription, None
        try:
            if subscription is not None:
                await subscription.close()
                with suppress(EventStoreError):  # what had ended it is known
                    await subscription.wait()
        finally:
            with suppress(EventStoreError):  # what could not be written is folded again
                self._share.let_go_of_all()

    async def _assigned(self, tps: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        starts = await self._share.take_over(tps)
        self._changed()
        return starts

    async def _revoked(self, tps: frozenset[TopicPartition]) -> None:
        try:
            self._share.let_go(tps)
        finally:
            self._changed()

    async def _take(self, records: Sequence[Record]) -> None:
        if self._trouble is not None:
            raise self._trouble
        try:
            self._share.take(records)
        except BaseException as error:
            self._stop(error)
            raise
        if self._share.broken:
            self._wake.set()
        self._flush_soon()
        self._changed()

    def _flush_soon(self) -> None:
        if self._flusher is None:
            pause_s = max(FLUSH_S, min(FLUSH_MOST_S, 9 * self._flush_took_s))
            self._flusher = asyncio.get_running_loop().call_later(pause_s, self._flush_later)

    def _flush_later(self) -> None:
        self._flusher = None
        now = asyncio.get_running_loop().time
        began = now()
        with suppress(Exception):  # it has stopped the projection, and `wait` tells it
            self.flush()
        self._flush_took_s = now() - began
