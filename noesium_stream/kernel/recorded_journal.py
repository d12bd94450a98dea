"""A journal over what is recorded: a graph walks over it, up to where something new would begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from noesium_stream.clock import Clock
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import EventEnvelope, TraceContext
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.history import RunHistory
from noesium_stream.kernel.journal import Destination, Provider, RunIdentity
from noesium_stream.kernel.verify_waiting import EndOfRecording


class RecordedJournal:
    """A `RunJournal` that takes nothing new and waits for nothing.

    Args:
        history: what there is.
        identity: the run.
        clock: nobody waits for it.

    Attributes:
        ended: whether the walk has come to its end.
    """

    def __init__(self, history: RunHistory, identity: RunIdentity, clock: Clock) -> None:
        self.history = history
        self.identity = identity
        self.clock = clock
        self.activity = Activity()
        self.ended = False

    def stage(
        self,
        event: DomainEvent,
        *,
        trace: TraceContext,
        causation_id: str | None,
        idempotency_key: str | None = None,
        to: Destination | None = None,
    ) -> EventEnvelope:
        """A checkpoint between recorded steps is no work; anything else is new."""
        if event.event_type() != "kernel.checkpoint.created":
            self._end()
        return event.to_envelope(self.identity.agent, trace, causation_id, clock=self.clock)

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """Nothing is new."""

    def flush(self) -> None:
        """Nothing is written."""

    def savepoint(self) -> int:
        """Nothing is staged."""
        return 0

    def rollback(self, savepoint: int) -> None:
        """Nothing is staged."""

    async def commit(self) -> None:
        """Nothing is written."""

    async def resolve(self, capability_id: str, version_range: str | None) -> Provider:
        """Nobody is asked."""
        self._end()

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        """Nothing comes."""
        self._end()

    def _end(self) -> NoReturn:
        self.ended = True
        raise EndOfRecording
