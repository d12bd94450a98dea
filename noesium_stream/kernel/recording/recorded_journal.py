"""A read-only journal over recorded events: a graph walks over it until something new would begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from noesium_stream.clock import Clock
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope, TraceContext
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.journal import Destination, FactTopic, Provider, RunIdentity, TaskTopic, Wanted
from noesium_stream.kernel.recording.end_of_recording import EndOfRecording
from noesium_stream.kernel.recording.replaying import Replaying
from noesium_stream.kernel.run_history import RunHistory


class RecordedJournal(Replaying):
    """A `RunJournal` that accepts nothing new and waits for nothing.

    Args:
        history: the recorded events.
        identity: the run.
        clock: a clock that nobody waits for.

    Attributes:
        ended: whether the walk has reached its end.
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
        to: Destination | TaskTopic | FactTopic | None = None,
    ) -> EventEnvelope:
        """Ignore checkpoints between recorded steps; anything else is new and ends the walk."""
        if event.event_type() != "kernel.checkpoint.created":
            self._end()
        return event.to_envelope(self.identity.agent, trace, causation_id, clock=self.clock)

    def savepoint(self) -> int:
        """Return 0: nothing is staged."""
        return 0

    def rollback(self, savepoint: int) -> None:
        """Do nothing: nothing is staged."""

    async def commit(self) -> None:
        """Do nothing: there is nothing to write."""

    async def resolve(self, wanted: Wanted) -> Provider:
        """End the walk: a resolution would be new."""
        self._end()

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        """End the walk: nothing new arrives."""
        self._end()

    def has_passed(self, due_ms: int) -> bool:
        """Whether the clock has reached `due_ms`."""
        return self.clock.now_ms() >= due_ms

    def _end(self) -> NoReturn:
        self.ended = True
        raise EndOfRecording
