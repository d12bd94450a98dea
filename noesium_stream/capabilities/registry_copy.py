"""A copy of the registry of capabilities in this process: a `TopicCopy` with a snapshot and a policy."""

from __future__ import annotations

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
from noesium_stream.capabilities.topic_copy import TopicCopy
from noesium_stream.clock import Clock
from noesium_stream.errors import EventValidationError, StateFileError
from noesium_stream.event.trust.policy import Policy, Right, ruling
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record

SNAPSHOT_EVERY: Final = 1_000
"""Number of folded records after which the snapshot is written again."""


class RegistryCopy(TopicCopy[RegistryState]):
    """The registry as far as it was folded here.

    Args:
        log: the log.
        clock: of the pauses while the log does not answer.
        policy: decides whose registrations count; None: everybody's.
        folder: of the snapshot; None: there is none. Where signatures are verified there is none either,
            because which records count depends on the keys that are trusted when they are folded.

    Attributes:
        discarded: why the snapshot was not used; None: it was, or there was none.
    """

    def __init__(
        self, log: EventLog, *, clock: Clock, policy: Policy | None = None, folder: Path | None = None
    ) -> None:
        super().__init__(log, clock=clock, projection=CapabilityProjection())
        self.discarded: str | None = None
        self._policy = policy
        self._folder = folder if log.decoder.record_verifier is None else None
        self._snapshot: tuple[Path, SnapshotIdentity] | None = None
        self._saved_at = 0

    def save(self) -> None:
        """Write the snapshot, if there is something new; it may be lost, so a failure is not reported."""
        if self._snapshot is not None and self.position > self._saved_at:
            with suppress(OSError):
                write_snapshot(*self._snapshot, self.state, self.position)
            self._saved_at = self.position

    async def _restore(self, end: int) -> None:
        """Begin with the snapshot, if there is one that can be used."""
        if self._folder is None:
            return
        identity = identity_of(self._log.url, await self._log.topic_id(self._topic), self._policy)
        self._snapshot = snapshot_path(self._folder, identity), identity
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

    def _save_if_due(self) -> None:
        if self.position >= self._saved_at + SNAPSHOT_EVERY:
            self.save()
