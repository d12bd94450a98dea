"""A copy of the registry topic's fold in this process: state, position, and the wait for changes.

The position is the next offset of the topic's single partition. State and position change together, record
by record; two readers of the log (`refresh` and the follower) share one lock, and a record that the other has
folded is passed over.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CorruptRecordError,
    EventError,
    EventValidationError,
    LogUnavailableError,
    TopicNotFoundError,
    brief,
)
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold_guard import FOLDING

S = TypeVar("S")

_REFUSED: Final = 100
_REASON_LENGTH: Final = 300
_PAUSE_S: Final = 0.25


class TopicCopy(ABC, Generic[S]):
    """A fold over the registry topic, as far as it was folded here.

    Args:
        log: the log.
        clock: of the pauses while the log does not answer.
        projection: the fold; it changes its state in place.

    Attributes:
        state: the present state; later events change it in place.
        position: the next offset.
        refused: why records were passed over, by offset; the last ones.
    """

    def __init__(self, log: EventLog, *, clock: Clock, projection: BaseProjection[S]) -> None:
        self.position = 0
        self.refused: dict[int, str] = {}
        self._log = log
        self._clock = clock
        self._topic: Final = log.topology.registry
        self._projection = projection
        self.state: S = projection.initial_state()
        self._folding = asyncio.Lock()
        self._next: asyncio.Task[S] | None = None
        self._moved = asyncio.Event()
        self._ready = False
        self._holders = 0
        self._follower: asyncio.Task[None] | None = None

    @abstractmethod
    def _check(self, record: Record) -> None:
        """Refuse a record that does not count.

        Raises:
            EventValidationError: says why.
        """

    async def _restore(self, end: int) -> None:
        """Begin with a snapshot, if one is kept; `end` is that of the topic."""
        return

    def save(self) -> None:
        """Write the snapshot, if one is kept and there is something new."""
        return

    def _save_if_due(self) -> None:
        return

    async def refresh(self, until: int | None = None) -> S:
        """Fold what the topic holds now, or its records below the offset `until`; return the state.

        Raises:
            LogUnavailableError: the log does not answer.
            LogTruncatedError: the registry's records are gone.
        """
        if until is None:
            # Who asks while another one's records are being read shares the next reading with all others who
            # ask: it begins after they have asked.
            if self._next is None:
                self._next = asyncio.create_task(self._refresh_now(None), name="read the registry")
                self._next.add_done_callback(_known)  # whoever waits for it raises it
            return await asyncio.shield(self._next)
        return await self._refresh_now(until)

    async def _refresh_now(self, until: int | None) -> S:
        async with self._folding:
            if until is None:
                self._next = None
            try:
                end = (await self._log.end(self._topic)).get(0, 0)
            except TopicNotFoundError:
                return self.state  # nobody has registered anything yet
            if not self._ready and until is None:
                await self._restore(end)
            self._ready = True
            await self._fold_to(end if until is None else min(until, end))
        self._save_if_due()
        return self.state

    async def changed(self, after: int) -> int:
        """Wait until the position is beyond `after`; return it.

        Raises:
            LogTruncatedError: the registry's records are gone.
        """
        self._hold()
        try:
            while self.position <= after:
                follower = self._follower
                if follower is not None and follower.done():
                    follower.result()
                await self._moved.wait()
            return self.position
        finally:
            self._release()

    def follow(self) -> None:
        """Keep the copy up to date from now on, until `close`. Call it once."""
        self._hold()

    async def close(self) -> None:
        """End what `follow` has begun, and write the snapshot."""
        if self._holders:
            self._holders = 1
            self._release()
        self.save()

    async def _fold_to(self, end: int) -> None:
        if self.position >= end:
            return
        source = self._log.read_batches(
            self._topic, {0: self.position}, until={0: end}, types=self._projection.event_types
        )
        async for batch in source:
            self._fold(batch)
        self.position = end
        self._tell()

    def _fold(self, records: Sequence[Record]) -> None:
        with FOLDING:
            for record in records:
                if record.offset < self.position:
                    continue
                try:
                    self._check(record)
                    self._projection.apply(self.state, record.envelope)
                except (CorruptRecordError, EventValidationError) as error:
                    self._refuse(record, error)
                self.position = record.offset + 1

    def _refuse(self, record: Record, error: EventError) -> None:
        self.refused[record.offset] = brief(error, _REASON_LENGTH)
        if len(self.refused) > _REFUSED:
            del self.refused[min(self.refused)]

    def _tell(self) -> None:
        """Wake those who wait for a change."""
        self._moved.set()
        self._moved = asyncio.Event()

    def _hold(self) -> None:
        self._holders += 1
        if self._follower is None:
            self._follower = asyncio.create_task(self._keep_following())
            self._follower.add_done_callback(self._followed)

    def _followed(self, follower: asyncio.Task[None]) -> None:
        """Wake those who wait, so that they see why the follower has ended."""
        if not follower.cancelled():
            follower.exception()  # it is raised where somebody waits
        self._tell()

    def _release(self) -> None:
        self._holders -= 1
        if self._holders == 0 and self._follower is not None:
            self._follower.cancel()
            self._follower = None

    async def _keep_following(self) -> None:
        """Fold what comes, until cancelled; a log that does not answer is asked again."""
        while True:
            with suppress(LogUnavailableError, TopicNotFoundError):
                await self.refresh()
                source = self._log.read_batches(
                    self._topic, {0: self.position}, types=self._projection.event_types
                )
                async for batch in source:
                    async with self._folding:
                        self._fold(batch)
                    self._tell()
                    self._save_if_due()
            await self._clock.sleep(_PAUSE_S)


def _known(reading: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody may wait for any more."""
    if not reading.cancelled():
        reading.exception()
