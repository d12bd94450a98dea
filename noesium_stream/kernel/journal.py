"""What the kernel needs of whoever owns a run's partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from noesium_stream.clock import Clock
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.history import RunHistory


class Provider(NamedTuple):
    """Who was chosen for a call, and on how much of the registry the choice rests."""

    agent_id: str
    agent_type: str
    capability_id: str
    version: str
    registry_offset: int


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What does not change in a run. `correlation_id` is the id of the run at the root of its tree."""

    run_id: str
    agent: AgentRef
    trace: TraceContext
    correlation_id: str
    started_event_id: str


class Destination(NamedTuple):
    """An event's second address besides the run's own journal: the inbox of an agent type, for a run."""

    agent_type: str
    run_id: str


class RunJournal(Protocol):
    """The journal of one run, as its owner lets the kernel write it."""

    @property
    def identity(self) -> RunIdentity:
        """Who the run is."""

    @property
    def history(self) -> RunHistory:
        """What is on the log (and staged) of this run."""

    @property
    def clock(self) -> Clock:
        """The owner's clock."""

    @property
    def activity(self) -> Activity:
        """What the run does in this process; steps tell it when they begin and end."""

    def stage(
        self,
        event: DomainEvent,
        *,
        trace: TraceContext,
        causation_id: str | None,
        idempotency_key: str | None = None,
        to: Destination | None = None,
    ) -> EventEnvelope:
        """Put an event into the run's next commit, and into another's inbox with it.

        Raises `EventValidationError`, `RecordTooLargeError`; nothing is staged then.
        """

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """Refuse an event that the log would refuse; nothing is staged.

        Raises `EventValidationError`; `UnknownSchemaError` where the log does not know its type.
        """

    def flush(self) -> None:
        """Send what is staged to the log without waiting for it; what becomes of it shows in `commit`."""

    def savepoint(self) -> int:
        """What is staged now; no commit may come between it and its `rollback`."""

    def rollback(self, savepoint: int) -> None:
        """Unstage what came after; only domain events, which change nothing in `history`."""

    async def commit(self) -> None:
        """Return when all that was staged is on the log.

        Raises `FencedError`, `CommitUnknownError`: the run goes on with another owner, or after another
        acquisition; the caller has to stop. `EventValidationError`, `RecordTooLargeError`: something was
        refused; from then on every commit of the run raises this, because what was staged on top of it is
        not on the log either.
        """

    async def resolve(self, capability_id: str, version_range: str | None) -> Provider:
        """Choose a provider (RFC-0005).

        Raises `CapabilityNotFoundError`.
        """

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        """Commit, then wait for what others send to this run, until `ready()`; it looks at `history`.

        With a deadline (milliseconds since the epoch, by `clock`) it is asked again then.
        """
