"""One open run in its owner's process: the kernel's `RunJournal`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from noesium_stream.clock import Clock
from noesium_stream.errors import EventValidationError, LogClosedError, RecordTooLargeError
from noesium_stream.event.calls import CALLS, FAIRNESS_KEY
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import NodeCompleted, NodeFailed
from noesium_stream.kernel import Destination, Provider, RunHistory, RunIdentity
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.step import enclosing_step
from noesium_stream.log.headers import ORIGIN, SOURCE
from noesium_stream.log.port import Outgoing
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of
from noesium_stream.observability import kernel_node_duration
from noesium_stream.worker.committer import UNNUMBERED
from noesium_stream.worker.submission import Submission
from noesium_stream.worker.telling import line_of

BRIEF_S: Final = 5.0
"""A wait that was shorter is a short one: the next one will probably be short too."""

_OUTCOMES: Final = ("effect.completed", "effect.failed")
_NODE_ENDS: Final = {NodeCompleted.TYPE: "completed", NodeFailed.TYPE: "failed"}


class SessionOwner(Protocol):
    """What a session needs of its partition's owner."""

    clock: Clock
    agent_ref: AgentRef
    journal: str
    partition: int

    def submit(self, records: list[Outgoing]) -> Submission:
        """Queue records for the next commit of the partition; see `Committer.submit`."""

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """See `RunJournal.check`."""

    def inbox_of(self, agent_type: str) -> tuple[str, int]:
        """Inbox topic of an agent type and its number of partitions; `learn_inbox` comes first."""

    async def learn_inbox(self, agent_type: str) -> None:
        """Make `inbox_of` know an agent type."""

    async def resolve(self, capability_id: str, version_range: str | None) -> Provider:
        """See `RunJournal.resolve`."""

    def tell(self, line: str) -> None:
        """Say what went wrong to those who watch the worker."""

    async def assure(self) -> None:
        """Return when this process is known to own the partition at this moment.

        Raises what says that it does not.
        """

    def owned(self) -> bool:
        """Whether that is known, as things stand; from any thread."""

    def waits(self, session: RunSession, due_ms: int | None) -> None:
        """A task of this run begins to wait; wake it when the owner's clock shows `due_ms`, if not before."""


class RunSession:
    """A run's identity, its history, and what it has ready for the next commit.

    Attributes:
        pace: what it waits for before it goes on after a commit, beside runs of others.
        held: something was accepted for it, and the run has not been told yet.
        quiet: how much had changed when it was last looked at, and since when that is so (see `parking`).
        brief: what it waited for last came soon (see `parking`).
        fresh: it was read back, and nothing has woken it since: how long it waits for that says nothing.
        cancelling: its task was told to end it without a result, or sees that by itself.
        stopping: what ends it without a result has begun.
        last_ms: when it wrote last, by its events' clock.
        unrecorded: outcomes of effects that were on their way to the log when the partition was lost.
    """

    def __init__(
        self, owner: SessionOwner, command: EventEnvelope, trace: TraceContext | None = None
    ) -> None:
        self._owner = owner
        self._staged: list[Outgoing] = []
        self._sent: list[Submission] = []
        self._refused: Exception | None = None
        self._failed: Exception | None = None
        self._closed = False
        self._lost: set[str] = set()
        self.unrecorded: list[EventEnvelope] = []
        self._received = asyncio.Event()
        self.history = RunHistory()
        self.activity = Activity()
        self.activity.assured = self._assure
        self.activity.owned = lambda: not self._closed and owner.owned()
        self.command = command
        run_id = command.partition_key
        if run_id is None:
            raise ValueError("a command has the run's id as its partition key")
        self.run_id = run_id
        deeper = command.event_type in CALLS
        self.identity = RunIdentity(
            run_id=run_id,
            agent=owner.agent_ref,
            trace=trace or command.trace.child(owner.clock.token(8), deeper=deeper),
            correlation_id=command.correlation_id or run_id,
            started_event_id=command.event_id,
        )
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.pace: Callable[[], Awaitable[None]] | None = None
        self.held = False
        self.quiet = (-1, 0.0)
        self.brief = False
        self.fresh = False
        self.cancelling = False
        self.stopping = False
        self.last_ms = command.timestamp_ms

    @property
    def clock(self) -> Clock:
        """The owner's clock."""
        return self._owner.clock

    # -- what happened -------------------------------------------------------------------------------

    def replay(self, event: EventEnvelope) -> None:
        """Take a record that is on the log already."""
        self.history.apply(event)
        self.last_ms = event.timestamp_ms

    def accept(self, event: EventEnvelope, source: Record) -> Outgoing:
        """Take a received event; return the journal's copy: same `event_id`, its source in a header.

        It is not staged: what the run itself has staged may be refused, and what the inbox brings to all
        runs of the partition is not its hostage.
        """
        headers = [UNNUMBERED, (SOURCE, f"{source.topic}/{source.partition}/{source.offset}".encode())]
        self.held = True
        origin = source.header(ORIGIN)
        if origin is not None:
            headers.append((ORIGIN, origin))
        self.history.apply(event)
        return Outgoing(event, self._owner.journal, self._owner.partition, self.run_id, tuple(headers))

    def note(self, event: DomainEvent) -> Outgoing:
        """Take what the owner itself says of the run; return its record, which is not staged either."""
        envelope = event.to_envelope(
            self.identity.agent,
            self.identity.trace.child(self.clock.token(8)),
            self.identity.started_event_id,
            self.identity.correlation_id,
            partition_key=self.run_id,
            idempotency_key=f"{self.run_id}/{event.event_type()}",
            clock=self.clock,
        )
        self.history.apply(envelope)
        return Outgoing(envelope, self._owner.journal, self._owner.partition, self.run_id, (UNNUMBERED,))

    def only_waits(self) -> bool:
        """Whether the run can be forgotten here: all of it waits for others, and all of it is on the log."""
        history = self.history
        if history.stop is not None and history.compensation is None:
            return False  # it is ending
        if self.held or self._staged or self._sent or self._refused is not None:
            return False
        return self.activity.only_waits and not history.calls_under_way()

    @property
    def ending(self) -> bool:
        """Whether its outcome is on its way to the log: what comes in waits until that is known."""
        return self.history.terminal is not None and bool(self._sent) and self._refused is None

    @property
    def ended(self) -> bool:
        """Whether its outcome is on the log: nothing may follow it."""
        if self.history.terminal is None or self._sent or self._staged:
            return False
        return self._refused is None and self._failed is None

    async def outcome_known(self) -> None:
        """Return when its outcome is no longer on its way, whatever became of it."""
        while self.ending:
            await self._sent[-1].settled()

    def under_way(self) -> Submission | None:
        """What its history rests on and the log may not have; None: the log has all of it."""
        self.flush()
        return self._sent[-1] if self._sent else None

    @property
    def committing(self) -> bool:
        """Whether something of it is on its way to the log."""
        return bool(self._sent)

    def waits_for_agents(self) -> bool:
        """Whether another agent has still to answer it."""
        history = self.history
        return any(call_id not in history.answered for call_id in history.invoked)

    def close(self) -> None:
        """The run is not this process's any more, or has ended: nothing that is left of it may write."""
        self._closed = True
        self.activity.given_up()
        self._received.set()  # threads of sync nodes wait too, and no cancellation reaches them

    def wake(self) -> None:
        """Tell those who wait for something from others to look again."""
        self.activity.changes += 1
        self.fresh = False
        received, self._received = self._received, asyncio.Event()
        received.set()

    # -- RunJournal ----------------------------------------------------------------------------------

    def stage(
        self,
        event: DomainEvent,
        *,
        trace: TraceContext,
        causation_id: str | None,
        idempotency_key: str | None = None,
        to: Destination | None = None,
    ) -> EventEnvelope:
        """See `RunJournal.stage`."""
        self._check_open(ended=self.history.terminal is not None)  # nothing follows the terminal event
        envelope = event.to_envelope(
            self.identity.agent,
            trace,
            causation_id,
            self.identity.correlation_id,
            partition_key=to.run_id if to else self.run_id,
            idempotency_key=idempotency_key,
            metadata=self._metadata(to) if to else None,
            clock=self._owner.clock,
        )
        if to is not None:
            owner = self._owner
            inbox, partitions = owner.inbox_of(to.agent_type)
            origin = (ORIGIN, f"{owner.journal}/{owner.partition}".encode())
            partition = partition_of(to.run_id, partitions)
            self._staged.append(Outgoing(envelope, inbox, partition, to.run_id, (origin,)))
        self._put(envelope, ())
        return envelope

    def _metadata(self, to: Destination) -> dict[str, Any]:
        given = self.command.metadata.get(FAIRNESS_KEY)
        return {"to": to.agent_type} if given is None else {"to": to.agent_type, FAIRNESS_KEY: given}

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """See `RunJournal.check`."""
        self._owner.check(event, payload)

    async def commit(self) -> None:
        """See `RunJournal.commit`."""
        self._check_open()
        self._check_sent()
        self.flush()
        if self._sent:
            await self._sent[-1].settled()
            if self.pace is not None:
                await self.pace()
        self._check_sent()  # also of an earlier part of it, which nobody waited for

    def flush(self) -> None:
        """See `RunJournal.flush`.

        When it is refused, what was sent after it is withdrawn: nothing of a run lies on the log behind a
        gap.
        """
        if self._staged and self._refused is None:
            sent = self._owner.submit(self.take_staged())
            self._sent.append(sent)
            sent.on_end = self._settled
            if sent.ended:
                self._settled(sent)

    def _settled(self, sent: Submission) -> None:
        if sent not in self._sent:
            return  # withdrawn
        if sent.error is None:
            self._tell(sent.records)
        if isinstance(sent.error, EventValidationError | RecordTooLargeError):
            self._refused = sent.error
            withdrawn, self._sent = self._sent, []
            for lost in withdrawn:
                self._lost.update(record.envelope.event_id for record in lost.records)
                lost.end(sent.error)
        else:
            self._failed = self._failed or sent.error
            self._sent.remove(sent)
            if sent.error is not None:
                staged = (record.envelope for record in sent.records)
                self.unrecorded += [event for event in staged if event.event_type in _OUTCOMES]

    def _tell(self, records: Sequence[Outgoing]) -> None:
        for record in records:
            if record.topic != self._owner.journal:
                continue
            event = record.envelope
            outcome = _NODE_ENDS.get(event.event_type)
            if outcome is not None:
                self._measure(event, outcome)
            line = line_of(event, self.history)
            if line is not None:
                self._owner.tell(line)

    def _measure(self, event: EventEnvelope, outcome: str) -> None:
        attributes = {
            "noesium.agent_type": self.identity.agent.agent_type,
            "noesium.node": event.payload["node"],
            "noesium.outcome": outcome,
        }
        kernel_node_duration.record(event.payload["duration_ms"] / 1000, attributes)

    def _check_sent(self) -> None:
        error = self._refused or self._failed
        if error is not None:
            raise error

    def restage(self, event: EventEnvelope) -> None:
        """Stage an event of this run that was lost on its way to the log, as it was."""
        self._put(event, ())

    def take_staged(self) -> list[Outgoing]:
        """Hand over what is staged."""
        records, self._staged = self._staged, []
        return records

    async def resolve(self, capability_id: str, version_range: str | None) -> Provider:
        """See `RunJournal.resolve`."""
        return await self._owner.resolve(capability_id, version_range)

    async def learn_inbox(self, agent_type: str) -> None:
        """Make the inbox of an agent type a possible destination of `stage`."""
        await self._owner.learn_inbox(agent_type)

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        """See `RunJournal.until`."""
        while not ready():
            await self.commit()
            if not ready():
                await self._wait(deadline_ms)

    def waits_in(self, future: object) -> bool:
        """Whether a task awaits this in `until`: only `wake` and `close` end it."""
        return future in self._received._waiters

    async def _wait(self, deadline_ms: int | None) -> None:
        clock, received, fresh = self._owner.clock, self._received, self.fresh
        with self.activity.waiting(enclosing_step()):
            began = clock.monotonic()
            self._owner.waits(self, deadline_ms)
            await received.wait()
            if not fresh:
                self.brief = clock.monotonic() - began < BRIEF_S

    # -- help ----------------------------------------------------------------------------------------

    def drop_staged(self) -> None:
        """The run ends otherwise: after a refused commit, what was staged on top of it is forgotten.

        Else it stays: results of effects are facts, however the run ends.
        """
        if self._refused is not None:
            self._lost.update(record.envelope.event_id for record in self._staged)
            self._staged.clear()
            self.history.forget(self._lost)
        self._refused = None

    def savepoint(self) -> int:
        """See `RunJournal.savepoint`."""
        return len(self._staged)

    def rollback(self, savepoint: int) -> None:
        """See `RunJournal.rollback`."""
        del self._staged[savepoint:]

    async def _assure(self) -> None:
        self._check_open()
        await self._owner.assure()
        self._check_open()

    def _check_open(self, *, ended: bool = False) -> None:
        # A task that a node has started and not awaited may outlive the node, the run and the ownership.
        if self._closed or ended:
            raise LogClosedError(f"run {self.run_id} is not carried on here any more")

    def _put(self, envelope: EventEnvelope, headers: tuple[tuple[str, bytes], ...]) -> None:
        owner = self._owner
        self.last_ms = envelope.timestamp_ms
        self._staged.append(
            Outgoing(envelope, owner.journal, owner.partition, self.run_id, (UNNUMBERED, *headers))
        )
        decides = envelope.event_type in _OUTCOMES and envelope.payload["effect_id"] in self.history.outcomes
        self.history.apply(envelope)
        if decides:
            self.wake()  # its outcome was unknown, and others wait for what is said of that
