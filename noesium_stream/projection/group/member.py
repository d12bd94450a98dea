"""A process's membership in a projection's consumer group: it follows the log while partitions come and go.

A partition's start position comes from its state file, not from the group's offset. Events are folded as they
arrive and written together: a moment later (`fold/flush_schedule.py`), and before a partition moves to
another process. Processes on one machine may share the folder: the owner of a partition locks its file.

An error in the fold stops the member (`wait` raises it). If the log is unavailable or a file has to be
rebuilt, the member reports it and continues.
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
from noesium_stream.projection.fold.flush_schedule import Flusher
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.group.owned_folds import Share
from noesium_stream.projection.source_line import with_line
from noesium_stream.projection.stored.folder import Report, matching
from noesium_stream.projection.stored.placement import require_merge

LOOK_S: Final = 0.5
"""Interval between searches for requests beside the state files (`fold/redrive.py`), in seconds."""
RETRY_S: Final = 1.0
"""Delay before rejoining the group after the log was unavailable, in seconds."""


def group_of(log: EventLog, projection: AnyProjection) -> str:
    """The consumer group of this version of a projection."""
    return f"{log.topology.namespace}.projection.{projection.name}.v{projection.version}"


def _said(error: BaseException) -> str:
    if isinstance(error, NoesiumError):
        return brief(error, 500)
    return f"{type(error).__name__}: {with_line(brief(error, 500), error)}."


class GroupMember:
    """Folds the partitions that the group assigns to this process; see `AttachedProjection`.

    Attributes:
        group: the consumer group.
        layout: the topics that the projection matched at the last discovery.
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
        """The folds of the partitions that this process owns now."""
        return self._share.folds

    async def start(self) -> None:
        """Join the group."""
        await self._find_topics()
        await self._subscribe()
        self._main = asyncio.create_task(self._run(), name=f"noesium projection {self._projection.name}")

    async def wait(self) -> None:
        """Return when the member or its log is closed; raise the error that stopped it."""
        if self._main is not None:
            await asyncio.wait((self._main,))
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Write what is folded and leave the group. Idempotent."""
        if self._main is not None:
            self._main.cancel()
            await asyncio.wait((self._main,))
            await self._end()  # a task cancelled before its first step has not left the group

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
        """Stop with an error, or rejoin the group.

        The folds may have gone back to the content of their files, so no later record may be folded.
        """
        self._trouble = self._trouble or error
        self._wake.set()

    def start_over(self, tp: TopicPartition, reason: StateFileError) -> None:
        """Rebuild a partition's file."""
        self._share.start_over(tp, reason)
        self._wake.set()

    def check_running(self) -> None:
        """Raise `ProjectionError` unless the member is started and running."""
        if self._failure is not None:
            why = self._failure
            raise ProjectionError(
                f"The projection {self._projection.name} has stopped: {_said(why)}",
                hint=why.hint if isinstance(why, NoesiumError) else None,
            ) from why
        if self._main is None or self._main.done():
            raise ProjectionError(f"The projection {self._projection.name} is not attached.")

    def has_passed(self, tp: TopicPartition, offset: int) -> bool:
        """Whether this process owns the partition and has read it beyond this offset."""
        fold = self.folds.get(tp)
        if fold is None or self._subscription is None or self._trouble is not None:
            return False  # after an error a fold may have gone back to the content of its file
        # Unwanted events move the subscription's position but never reach the fold.
        return max(fold.cursor, self._subscription.position(tp) or 0) > offset

    async def others(self) -> list[GroupShare]:
        """The partitions of the group's other members; raises `LogUnavailableError`."""
        mine = None if self._subscription is None else self._subscription.member
        return [share for share in await self._log.members(self.group) if share.member != mine]

    async def change(self, timeout_s: float) -> None:
        """Return when something was folded or the assignment has changed, or after this timeout."""
        moved = self._moved
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await moved.wait()

    async def discover(self) -> None:
        """Look for topics that were created, deleted or recreated; raises `LogUnavailableError`."""
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
        require_merge(self._projection, self.layout)

    def _changed(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _run(self) -> None:
        """Follow the log, rejoin after the log was unavailable, and always leave the group at the end."""
        try:
            while not await self._follow():
                await self._rejoin()
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._failure = self._trouble = error  # records that still arrive are not folded
        finally:
            await self._end()

    async def _end(self) -> None:
        try:
            await self._leave()
        except BaseException as error:
            self._failure = self._failure or error
        self._changed()

    async def _follow(self) -> bool:
        """Follow until the log is closed (True) or the group has to be rejoined (False)."""
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
                ended.exception()  # mark as retrieved: the earlier error is reported instead
        return True

    def _made_anew(self, error: EventStoreError) -> bool:
        """Whether a topic may have been recreated with fewer records; rejoining checks it, once."""
        if not isinstance(error, LogCorruptError) or self._corrupt:
            return False
        self._corrupt = True
        return True

    async def _tend(self, subscription: Subscription, looked_s: float) -> float:
        """Periodic work; returns the time since the last topic discovery, in seconds."""
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
                self.flush()  # separately: if it fails, the requests must not run
                self._share.answer_requests(asked)
        except EventStoreError as error:
            if not (error.retriable or isinstance(error, TopicNotFoundError)):
                raise
            self._say_away(error)
        return looked_s

    async def _begin_again(self, subscription: Subscription) -> None:
        """Recreate discarded files, and read their partitions from the beginning."""
        starts = await self._share.open_broken()
        # A partition whose assignment is not complete would begin at its old file's cursor: open it again.
        # Check this first: an assignment that completes in between would be neither sought nor reopened.
        early = {tp for tp in starts if subscription.position(tp) is None}
        self._share.put_back(early)
        subscription.seek({tp: start for tp, start in starts.items() if tp not in early})
        self._changed()

    async def _subscribe(self) -> None:
        # Journal records are numbered, so none may be filtered out.
        facts = all(pattern.startswith("events.") for pattern in self._projection.topics)
        self._followed = self.layout  # `layout` may change until the group is joined
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
                with suppress(EventStoreError):  # its cause is known already
                    await subscription.wait()
        finally:
            with suppress(EventStoreError):  # unwritten events are folded again later
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
