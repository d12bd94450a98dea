"""A process as a member of a projection's consumer group: it follows the log, and partitions come and go.

Where a partition goes on is said by its state file, not by the group's offset. Events are folded as they come
and written together, a moment later (`flushing.py`) and before a partition goes to another process.
Processes of one machine may share the folder: a file is locked by the one that has the partition.

What goes wrong in the fold ends it (`wait` tells). Where the log is away, or a file is made anew, it is said
and gone on with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import (
    EventStoreError,
    LogCorruptError,
    NoesiumError,
    ProjectionError,
    StateFileError,
    TopicNotFoundError,
    brief,
)
from noesium_stream.log.port import EventLog, GroupShare, Subscription, TopicPartition, TopicShape
from noesium_stream.log.record import Record
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.flushing import Flusher
from noesium_stream.projection.fold import PartitionFold
from noesium_stream.projection.folder import Report, matching
from noesium_stream.projection.places import with_line
from noesium_stream.projection.share import Share

LOOK_S: Final = 0.5
"""How often requests beside the state files are looked for (`redrive.py`)."""
RETRY_S: Final = 1.0
"""How long to wait before joining the group anew, where the log was away."""


def group_of(log: EventLog, projection: AnyProjection) -> str:
    """The consumer group of this version of a projection."""
    return f"{log.topology.namespace}.projection.{projection.name}.v{projection.version}"


def _said(error: BaseException) -> str:
    if isinstance(error, NoesiumError):
        return brief(error, 500)
    return f"{type(error).__name__}: {with_line(brief(error, 500), error)}."


class GroupMember:
    """Folds what the group gives to this process; see `AttachedProjection` for the arguments and errors.

    Attributes:
        group: the consumer group.
        layout: the topics that the projection matches, as they were found last.
    """

    def __init__(
        self,
        log: EventLog,
        projection: AnyProjection,
        folder: Path,
        report: Report,
        call: Callable[..., Any] | None,
        discover_s: float,
    ) -> None:
        self.group = group_of(log, projection)
        self.layout: Mapping[str, TopicShape] = {}
        self._log = log
        self._projection = projection
        self._report = report
        self._discover_s = discover_s
        self._share = Share(log, projection, folder, report, call)
        self._flusher = Flusher(self.flush)
        self._followed: Mapping[str, TopicShape] = {}
        self._subscription: Subscription | None = None
        self._moved = asyncio.Event()
        self._wake = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._trouble: BaseException | None = None
        self._failure: BaseException | None = None
        self._away = False
        self._corrupt = False

    @property
    def folds(self) -> Mapping[TopicPartition, PartitionFold[Any]]:
        """The folds of the partitions that this process has now."""
        return self._share.folds

    async def start(self) -> None:
        """Join the group."""
        await self._find_topics()
        await self._subscribe()
        self._main = asyncio.create_task(self._run(), name=f"noesium projection {self._projection.name}")

    async def wait(self) -> None:
        """Return when it is closed, or its log is; raises what stopped it."""
        if self._main is not None:
            await asyncio.wait((self._main,))
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Write what is folded and leave the group; harmless when repeated."""
        if self._main is not None:
            self._main.cancel()
            await asyncio.wait((self._main,))
            await self._end()  # a task that is cancelled before it began has left nothing

    def flush(self) -> None:
        """Write what is folded."""
        self._flusher.cancel()
        try:
            self._share.flush()
        except BaseException as error:
            self.stop(error)
            raise
        if self._share.broken:
            self._wake.set()

    def stop(self, error: BaseException) -> None:
        """End, or join anew: a fold may be back at what is in its file, and nothing may follow on that."""
        self._trouble = self._trouble or error
        self._wake.set()

    def start_over(self, tp: TopicPartition, reason: StateFileError) -> None:
        """Make a partition's file anew."""
        self._share.start_over(tp, reason)
        self._wake.set()

    def check_running(self) -> None:
        """Raise `ProjectionError` where it is not started, or has stopped."""
        if self._failure is not None:
            why = self._failure
            raise ProjectionError(
                f"The projection {self._projection.name} has stopped: {_said(why)}",
                hint=why.hint if isinstance(why, NoesiumError) else None,
            ) from why
        if self._main is None or self._main.done():
            raise ProjectionError(f"The projection {self._projection.name} is not attached.")

    def has_passed(self, tp: TopicPartition, offset: int) -> bool:
        """Whether this process has the partition, and has read it beyond this offset."""
        fold = self.folds.get(tp)
        if fold is None or self._subscription is None or self._trouble is not None:
            return False  # with trouble a fold may be back at what is in its file
        # Events that are not wanted are read and not handed over.
        return max(fold.cursor, self._subscription.position(tp) or 0) > offset

    async def others(self) -> list[GroupShare]:
        """What the other members of the group have; raises `LogUnavailableError`."""
        mine = None if self._subscription is None else self._subscription.member
        return [share for share in await self._log.members(self.group) if share.member != mine]

    async def change(self, timeout_s: float) -> None:
        """Return when something was folded, or has come or gone; at the latest after this time."""
        moved = self._moved
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await moved.wait()

    async def discover(self) -> None:
        """Look for topics that came, went, or were made anew; raises `LogUnavailableError`."""
        await self._find_topics()
        subscription = self._subscription
        if subscription is None or self._trouble is not None:
            return
        for tp, fold in list(self.folds.items()):
            shape, identity = self.layout.get(tp.topic), fold.manifest.identity
            if shape is not None and shape.topic_id != identity.topic_id:
                text = (
                    f"{fold.file.path}: the topic was deleted and made anew (its id was {identity.topic_id})."
                )
                self.start_over(tp, StateFileError(text))
            else:
                fold.advance(subscription.position(tp) or 0)
        self._flusher.soon()
        if self.layout != self._followed:
            subscription.change_topics(list(self.layout))
            self._followed = self.layout
        self._away = self._corrupt = False

    async def _find_topics(self) -> None:
        found = await self._log.layout()
        self.layout = {topic: found[topic] for topic in matching(found, self._projection, self._log.topology)}

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
            self._failure = self._trouble = error  # what is still handed over is not folded
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
                try:
                    await asyncio.wait((ended, waking), timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                finally:
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
            await self._share.verify()
            if self._share.broken:
                await self._begin_again(subscription)
            if looked_s >= self._discover_s:
                await self.discover()
                looked_s = 0.0
            if asked := self._share.asked():
                self.flush()  # by itself: where it fails, nothing may follow
                self._share.answer_requests(asked)
        except EventStoreError as error:
            if not (error.retriable or isinstance(error, TopicNotFoundError)):
                raise
            self._say_away(error)
        return looked_s

    async def _begin_again(self, subscription: Subscription) -> None:
        """Make the files anew that were discarded, and read their partitions from where they begin."""
        starts = await self._share.open_broken()
        # One that is only just being assigned begins where its old file was: it is opened again. First this
        # question: what is assigned between the two would be neither sought nor known to be too early.
        early = {tp for tp in starts if subscription.position(tp) is None}
        self._share.put_back(early)
        subscription.seek({tp: start for tp, start in starts.items() if tp not in early})
        self._changed()

    async def _subscribe(self) -> None:
        # A journal's records are numbered: all of them have to be seen.
        facts = all(pattern.startswith("events.") for pattern in self._projection.topics)
        self._followed = self.layout  # which may be another one when the group has been joined
        self._subscription = await self._log.subscribe(
            self.group,
            list(self.layout),
            self._take,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            types=self._projection.event_types if facts else None,
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
        self._flusher.cancel()
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
            self.stop(error)
            raise
        if self._share.broken:
            self._wake.set()
        self._flusher.soon()
        self._changed()
