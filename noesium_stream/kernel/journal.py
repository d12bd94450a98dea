"""The kernel's interface to the owner of a run's partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from noesium_stream.clock import Clock
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.rules.stream_pieces import Attempt
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.run_history import RunHistory


class Provider(NamedTuple):
    """The provider that was chosen for a call, and the registry offset that the choice is based on."""

    agent_id: str
    agent_type: str
    capability_id: str
    version: str
    registry_offset: int


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The constant properties of a run. `correlation_id` is the id of the run at the root of its tree."""

    run_id: str
    agent: AgentRef
    trace: TraceContext
    correlation_id: str
    started_event_id: str


class Destination(NamedTuple):
    """An event's second address besides the run's own journal: the inbox of an agent type, for a run."""

    agent_type: str
    run_id: str


class RunPieces(Protocol):
    """Takes the pieces of a run's answer; none of its methods fails because the log takes none."""

    def begin(self) -> Attempt:
        """A new execution of a node; later ones are greater."""

    async def write(self, event: EventEnvelope, size: int) -> None:
        """Hand over a piece of `size` bytes; waits a little if the log takes them too slowly."""

    def offer(self, event: EventEnvelope, size: int) -> None:
        """As `write`, without waiting."""

    async def flush(self) -> None:
        """Return when the pieces are on the log or lost, after a second at the latest."""


class RunJournal(Protocol):
    """The journal of one run, in the form in which its owner lets the kernel write it."""

    @property
    def pieces(self) -> RunPieces | None:
        """Takes the pieces of the run's answer; None: nobody is there who reads them (a replay)."""

    @property
    def identity(self) -> RunIdentity:
        """The identity of the run."""

    @property
    def history(self) -> RunHistory:
        """The run's records, on the log and staged."""

    @property
    def clock(self) -> Clock:
        """The owner's clock."""

    @property
    def activity(self) -> Activity:
        """The run's activity in this process; steps report their beginning and end to it."""

    def stage(
        self,
        event: DomainEvent,
        *,
        trace: TraceContext,
        causation_id: str | None,
        idempotency_key: str | None = None,
        to: Destination | None = None,
    ) -> EventEnvelope:
        """Stage an event for the run's next commit, and for another inbox in the same commit.

        Raises `EventValidationError`, `RecordTooLargeError`; nothing is staged then.
        """

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """Refuse an event that the log would refuse; stages nothing.

        Raises `EventValidationError`; `UnknownSchemaError` if the log does not know its type.
        """

    def flush(self) -> None:
        """Send staged events to the log without waiting for them; `commit` reports the result."""

    def savepoint(self) -> int:
        """A mark for the currently staged events; no commit may come between it and its `rollback`."""

    def rollback(self, savepoint: int) -> None:
        """Unstage later events; only domain events, which change nothing in `history`."""

    async def commit(self) -> None:
        """Return when all staged events are on the log.

        Raises `FencedError`, `CommitUnknownError`: the run continues with another owner, or after another
        acquisition; the caller has to stop. `EventValidationError`, `RecordTooLargeError`: an event was
        refused; from then on every commit of the run raises this, because events staged on top of it are not
        on the log either.
        """

    async def resolve(self, capability_id: str, version_range: str | None) -> Provider:
        """Choose a provider (RFC-0005).

        Raises `CapabilityNotFoundError`.
        """

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        """Commit, then wait for records from others until `ready()`, which looks at `history`.

        With a deadline (milliseconds since the epoch, by `clock`), `ready` is called again then.
        """

    def has_passed(self, due_ms: int) -> bool:
        """Whether a pause that ends at `due_ms` is over; if `clock` is set back, it does not last longer.

        A pause is a duration. A moment that others know, such as a question's deadline, is judged by
        `clock.now_ms` alone.
        """
