"""The kernel's interface to the owner of a run's partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from noesium_stream.clock import Clock
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.rules.call_limits import CallLimits
from noesium_stream.event.rules.contract import Contract
from noesium_stream.event.rules.stream_pieces import Attempt, Piece
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.run_history import RunHistory


class Wanted(NamedTuple):
    """A call that needs a provider.

    Attributes:
        run_id: the run that calls.
        call_id: id of the call that would be made.
        capability_id: what is called.
        version_range: which versions; None: any.
        tried: agent ids that are not chosen again.
        roles, scopes: those that the called run would act with; None: nothing limits it.
    """

    run_id: str
    call_id: str
    capability_id: str
    version_range: str | None
    tried: tuple[str, ...] = ()
    roles: tuple[str, ...] | None = None
    scopes: tuple[str, ...] | None = None


class Provider(NamedTuple):
    """The provider that was chosen for a call, and the registry offset that the choice is based on."""

    agent_id: str
    agent_type: str
    capability_id: str
    version: str
    registry_offset: int
    contract: Contract = Contract()


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The constant properties of a run.

    `correlation_id` is the id of the run at the root of its tree; `path` are the agent types from there to
    this run, as far as they are known.
    """

    run_id: str
    agent: AgentRef
    trace: TraceContext
    correlation_id: str
    started_event_id: str
    path: tuple[str, ...] = ()


class Destination(NamedTuple):
    """An event's second address besides the run's own journal: the inbox of an agent type, for a run."""

    agent_type: str
    run_id: str


class TaskTopic(NamedTuple):
    """The same: the topic of the tasks for any subscriber of a capability, for the run that does a task."""

    capability_id: str
    run_id: str


class FactTopic(NamedTuple):
    """The same: the topic of the facts of a domain, `events.DOMAIN`, under a key."""

    domain: str
    key: str


class IncomingPieces(Protocol):
    """The pieces of a run that this one has called; none of its methods fails because the log gives none."""

    async def open(self) -> None:
        """Return when no piece that is written from now on is missed."""

    def expect(self, run_id: str, agent_type: str, agent_id: str) -> None:
        """Take the pieces of this run, which this agent has; those of an earlier one are void."""

    async def next(self) -> Piece:
        """The next piece, once there is one."""

    async def rest(self) -> Sequence[Piece]:
        """All pieces that the log has now and that were not given out."""

    def close(self) -> None:
        """Take no more."""


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

    def incoming(self) -> IncomingPieces:
        """Takes the pieces of a run that is about to be called; it has to be opened."""


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
        to: Destination | TaskTopic | FactTopic | None = None,
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

    def recorded(self, call_id: str) -> EventEnvelope | None:
        """The request of a call or a question that the calling step made in the recording that is replayed.

        A `tool.invoked` is found by its idempotency key. None: it has made none, or this is no replay.
        """

    @property
    def limits(self) -> CallLimits | None:
        """Limits of the run's calls; None: a replay, in which the recording says what was refused."""

    async def resolve(self, wanted: Wanted) -> Provider:
        """Choose a provider by what the registry has now (RFC-0005).

        Raises `CapabilityNotFoundError`.
        """

    async def until_offered(self, wanted: Wanted, deadline_ms: int | None = None) -> None:
        """Commit, then wait until `resolve` may find a provider, or for the deadline, as `until` does."""

    async def contract(self, invoked: Mapping[str, Any]) -> Contract:
        """The contract by which the call with this payload was made; not asked for in a replay."""

    async def learn_inbox(self, agent_type: str) -> None:
        """Make the inbox of an agent type a possible destination of `stage`; `resolve` has done so."""

    async def learn_tasks(self, capability_id: str) -> None:
        """Make the task topic of a capability a possible destination of `stage`.

        Raises `ConfigError`: the capability's id makes no topic name.
        """

    async def learn_facts(self, domain: str) -> None:
        """Make the topic of a domain's facts a possible destination of `stage`."""

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        """Commit, then wait for records from others until `ready()`, which looks at `history`.

        With a deadline (milliseconds since the epoch, by `clock`), `ready` is called again then.
        """

    def has_passed(self, due_ms: int) -> bool:
        """Whether a pause that ends at `due_ms` is over; if `clock` is set back, it does not last longer.

        A pause is a duration. A moment that others know, such as a question's deadline, is judged by
        `clock.now_ms` alone.
        """
