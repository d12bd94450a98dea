"""A copy of the registry in this process: the fold, its position, and the wait for changes.

The position is the next offset of the topic's single partition. State and position change together, record
by record; two readers of the log (`refresh` and the follower) share one lock, and a record that the other has
folded is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from noesium_stream.capabilities.fold import CapabilityProjection
from noesium_stream.capabilities.snapshot import (
    SnapshotIdentity,
    identity_of,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)
from noesium_stream.capabilities.state import RegistryState
from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CorruptRecordError,
    EventError,
    EventValidationError,
    LogUnavailableError,
    StateFileError,
    TopicNotFoundError,
    brief,
)
from noesium_stream.event.trust.policy import Policy, Right, ruling
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.projection.fold_guard import FOLDING

SNAPSHOT_EVERY: Final = 1_000
"""Number of folded records after which the snapshot is written again."""

_REFUSED: Final = 100
_REASON_LENGTH: Final = 300
_PAUSE_S: Final = 0.25


class RegistryCopy:
    """The registry as far as it was folded here.

    Args:
        log: the log.
        clock: of the pauses while the log does not answer.
        policy: decides whose registrations count; None: everybody's.
        folder: of the snapshot; None: there is none. Where signatures are verified there is none either,
            because which records count depends on the keys that are trusted when they are folded.

    Attributes:
        state: the present state; later events change it in place.
        position: the next offset.
        refused: why records were passed over, by offset; the last ones.
        discarded: why the snapshot was not used; None: it was, or there was none.
    """

    def __init__(
        self, log: EventLog, *, clock: Clock, policy: Policy | None = None, folder: Path | None = None
    ) -> None:
        self.position = 0
        self.refused: dict[int, str] = {}
        self.discarded: str | None = None
        self._log = log
        self._clock = clock
        self._policy = policy
        self._folder = folder if log.decoder.record_verifier is None else None
        self._topic: Final = log.topology.registry
        self._projection = CapabilityProjection()
        self.state: RegistryState = self._projection.initial_state()
        self._folding = asyncio.Lock()
        self._next: asyncio.Task[RegistryState] | None = None
        self._moved = asyncio.Event()
        self._ready = False
        self._snapshot: tuple[Path, SnapshotIdentity] | None = None
        self._saved_at = 0
        self._holders = 0
        self._follower: asyncio.Task[None] | None = None

    async def refresh(self, until: int | None = None) -> RegistryState:
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

    async def _refresh_now(self, until: int | None) -> RegistryState:
        async with self._folding:
            if until is None:
                self._next = None
            try:
                end = (await self._log.end(self._topic)).get(0, 0)
            except TopicNotFoundError:
                return self.state  # nobody has registered anything yet
            if not self._ready and self._folder is not None and until is None:
                await self._restore(self._folder, end)
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

    def save(self) -> None:
        """Write the snapshot, if there is something new; it may be lost, so a failure is not reported."""
        if self._snapshot is not None and self.position > self._saved_at:
            with suppress(OSError):
                write_snapshot(*self._snapshot, self.state, self.position)
            self._saved_at = self.position

    async def _restore(self, folder: Path, end: int) -> None:
        """Begin with the snapshot, if there is one that can be used."""
        identity = identity_of(self._log.url, await self._log.topic_id(self._topic), self._policy)
        self._snapshot = snapshot_path(folder, identity), identity
        try:
            found = read_snapshot(*self._snapshot)
            if found is not None and found[1] > end:
                raise StateFileError(f"it is at {found[1]}, behind the end of {self._topic}, {end}")
        except StateFileError as error:
            self.discarded = str(error)
            with suppress(OSError):
                self._snapshot[0].unlink()
            return
        if found is not None:
            self.state, self.position = found
            self._saved_at = self.position

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

    def _check(self, record: Record) -> None:
        event = record.envelope
        agent_type = event.producer.agent_type
        if event.event_type.startswith("agent."):
            agent_type = event.payload["agent_type"]
        right: Right = "register"
        if event.event_type.startswith("capability.circuit."):
            # Who may call an agent may say how that went.
            right, agent_type = "start", event.payload["agent_type"]
        refused = ruling(self._policy, event, record.signed_by, right, agent_type).refused
        if refused is not None:
            raise EventValidationError("producer", refused)

    def _refuse(self, record: Record, error: EventError) -> None:
        self.refused[record.offset] = brief(error, _REASON_LENGTH)
        if len(self.refused) > _REFUSED:
            del self.refused[min(self.refused)]

    def _save_if_due(self) -> None:
        if self.position >= self._saved_at + SNAPSHOT_EVERY:
            self.save()

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


def _known(reading: asyncio.Task[RegistryState]) -> None:
    """Take note of an error that nobody may wait for any more."""
    if not reading.cancelled():
        reading.exception()
