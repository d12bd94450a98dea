"""Session of one open run in its owner's process; implements the kernel's `RunJournal`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from noesium_stream.clock import Clock
from noesium_stream.errors import EventValidationError, KernelError, LogClosedError, RecordTooLargeError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope, TraceContext
from noesium_stream.event.rules.agent_calls import ANSWERS, CALLS, FAIRNESS_KEY
from noesium_stream.event.rules.call_limits import CallLimits, path_of
from noesium_stream.event.rules.contract import Contract
from noesium_stream.event.sealing.seal import SUBJECT, is_erased, subject_entry
from noesium_stream.event.standard import (
    ApprovalRequested,
    CapabilityExpired,
    EffectRequested,
    NodeCompleted,
    NodeFailed,
)
from noesium_stream.event.trust.speaking import decider_of
from noesium_stream.kernel import Destination, Provider, RunHistory, RunIdentity
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.journal import FactTopic, TaskTopic, Wanted
from noesium_stream.kernel.step.position import enclosing_step
from noesium_stream.log.headers import ORIGIN, SOURCE
from noesium_stream.log.port import Header, Outgoing
from noesium_stream.log.record import Record
from noesium_stream.log.sender_proof import copied
from noesium_stream.log.topics import partition_of
from noesium_stream.observability import kernel_node_duration
from noesium_stream.worker.agent_directory import Directory
from noesium_stream.worker.commit.committer import UNNUMBERED, Submission
from noesium_stream.worker.commit.partition_writer import PartitionWriter
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.failure_lines import LINES
from noesium_stream.worker.pieces.run_pieces import OwnPieces

_OUTCOMES: Final = ("effect.completed", "effect.failed")
_NODE_ENDS: Final = {NodeCompleted.TYPE: "completed", NodeFailed.TYPE: "failed"}


class RunSession:
    """A run's identity, its history, and its records for the next commit.

    Attributes:
        pace: awaited after each commit, so that runs of other tenants get their turn.
        held: whether a record was accepted for the run and the run was not told of it yet.
        active_s: when the run last journaled, was woken or began to wait; monotonic time.
        returned_soon: whether it was needed again soon after its last eviction (see `eviction`).
        cancelling: whether its task was told to end the run without a result, or will see that by itself.
        stopping: whether the code that ends it without a result has begun.
        last_ms: time of its last event, milliseconds since the epoch.
        limits: see `RunJournal.limits`; whoever executes the run sets those of its agent.
        pieces: see `RunJournal.pieces`.
        unrecorded: outcomes of effects that were on their way to the log when the partition was lost.
    """

    def __init__(
        self,
        context: PartitionContext,
        writer: PartitionWriter,
        directory: Directory,
        on_wait: Callable[[RunSession, int | None], None],
        has_passed: Callable[[str, int], bool],
        on_seek: Callable[[RunSession, Wanted], None],
        command: EventEnvelope,
        trace: TraceContext | None = None,
    ) -> None:
        self._context = context
        self._writer = writer
        self._directory = directory
        self._on_wait = on_wait
        self._has_passed = has_passed
        self._on_seek = on_seek
        self.clock: Clock = context.clock
        self._staged: list[Outgoing] = []
        self._sent: list[Submission] = []
        self._refused: Exception | None = None
        self._failed: Exception | None = None
        self._closed = False
        self._lost: set[str] = set()
        self.unrecorded: list[EventEnvelope] = []
        self._received = asyncio.Event()
        self.history = RunHistory(requested_by=decider_of(command))
        self.activity = Activity()
        self.activity.assured = self._assure
        self.activity.owned = lambda: not self._closed and writer.owned()
        self.command = command
        self._about = subject_entry(command.metadata)
        run_id = command.partition_key
        if run_id is None:
            raise ValueError("a command has the run's id as its partition key")
        self.run_id = run_id
        deeper = command.event_type in CALLS
        self.pieces: OwnPieces | None = None
        if context.pieces is not None:
            self.pieces = OwnPieces(context.pieces, writer.epoch, self._writes_pieces)
        self.identity = RunIdentity(
            run_id=run_id,
            agent=context.agent_ref,
            trace=trace or command.trace.child(context.clock.token(8), deeper=deeper),
            correlation_id=command.correlation_id or run_id,
            started_event_id=command.event_id,
            path=path_of(command, context.agent_type),
        )
        self.limits = CallLimits()
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.pace: Callable[[], Awaitable[None]] | None = None
        self.held = False
        self.active_s = context.clock.monotonic()
        self.returned_soon = False
        self.cancelling = False
        self.stopping = False
        self.last_ms = command.timestamp_ms

    # -- what happened -------------------------------------------------------------------------------

    def replay(self, event: EventEnvelope) -> None:
        """Apply an event that is on the log already."""
        self.history.apply(event)
        self.last_ms = event.timestamp_ms

    def accept(self, event: EventEnvelope, source: Record, headers: Sequence[Header] = ()) -> Outgoing:
        """Apply a received event; return its journal copy: same `event_id`, its source in a header.

        `headers` are further headers of the copy.

        Where signatures are verified the copy has its sender's proof, too.

        The copy is not staged: the log may refuse records that the run has staged, and this must not fail
        the inbox records of all runs of the partition.
        """
        place = f"{source.topic}/{source.partition}/{source.offset}".encode()
        headers = [UNNUMBERED, (SOURCE, place), *headers]
        origin = source.header(ORIGIN)
        if origin is not None:
            headers.append((ORIGIN, origin))
        if self._about and not (SUBJECT in event.metadata or is_erased(event)):
            event = event.replace(metadata={**event.metadata, **self._about})
        copy, proof = copied(event, source)
        if event.event_type in ANSWERS and (invoked := self.history.invoked.get(event.payload["call_id"])):
            self._directory.circuits.answered(invoked.payload, event.payload)
        self.history.apply(event)
        self.held = True
        return self._record(copy, (*headers, *proof))

    def note(self, event: DomainEvent) -> Outgoing:
        """Apply an event that the owner writes about the run; return its record, which is not staged."""
        envelope = event.to_envelope(
            self.identity.agent,
            self.identity.trace.child(self.clock.token(8)),
            self.identity.started_event_id,
            self.identity.correlation_id,
            partition_key=self.run_id,
            idempotency_key=f"{self.run_id}/{event.event_type()}",
            metadata=self._about,
            clock=self.clock,
        )
        self.history.apply(envelope)
        return self._record(envelope, (UNNUMBERED,))

    def uncalled(self) -> dict[str, EventEnvelope]:
        """The outcomes of effects whose call will never begin here, by effect id; they are not recorded.

        Only of the first intent of each: a later one follows a person's decision, and may have been called.
        """
        found = {}
        for effect_id, event in self.activity.uncalled.items():
            intent = self.history.requested.get(effect_id)
            if intent is None or intent.idempotency_key != effect_id or effect_id in self.history.outcomes:
                continue
            found[effect_id] = event.to_envelope(
                self.identity.agent,
                self.identity.trace.child(self.clock.token(8)),
                intent.event_id,
                self.identity.correlation_id,
                partition_key=self.run_id,
                metadata=self._about,
                clock=self.clock,
            )
        return found

    def only_waits(self) -> bool:
        """Whether the run may be evicted.

        Each open step waits on the log, no effect is in a call, and all that the run did is on the log.
        """
        history = self.history
        if history.stop is not None and history.compensation is None:
            return False  # it is ending
        if self.held or self._staged or self._sent or self._refused is not None:
            return False
        return self.activity.only_waits and not self.activity.calls and not history.calls_under_way()

    @property
    def ending(self) -> bool:
        """Whether the terminal event is on its way to the log; records that come in wait for its outcome."""
        return self.history.terminal is not None and bool(self._sent) and self._refused is None

    @property
    def ended(self) -> bool:
        """Whether the terminal event is on the log: no record may follow it."""
        if self.history.terminal is None or self._sent or self._staged:
            return False
        return self._refused is None and self._failed is None

    async def outcome_known(self) -> None:
        """Return when the terminal event is committed or has failed."""
        while self.ending:
            await self._sent[-1].settled()

    def under_way(self) -> Submission | None:
        """Flush; return the last submission if it is not committed yet, else None."""
        self.flush()
        return self._sent[-1] if self._sent else None

    @property
    def committing(self) -> bool:
        """Whether records of the run are on their way to the log."""
        return bool(self._sent)

    def waits_for_agents(self) -> bool:
        """Whether the run waits for the answer of another agent."""
        return bool(self.history.unanswered)

    def close(self) -> None:
        """Close the session of a run that has ended or is given up: its remaining tasks cannot write."""
        self._closed = True
        self.activity.given_up()
        self._received.set()  # threads of sync nodes wait too, and no cancellation reaches them

    def wake(self) -> None:
        """Let tasks that wait for records check them again."""
        self.activity.wake()
        self.active_s = self.clock.monotonic()
        received, self._received = self._received, asyncio.Event()
        received.set()

    def recorded(self, call_id: str) -> EventEnvelope | None:
        """None: this is no replay."""
        return None

    # -- RunJournal ----------------------------------------------------------------------------------

    def stage(
        self,
        event: DomainEvent,
        *,
        trace: TraceContext,
        causation_id: str | None,
        idempotency_key: str | None = None,
        to: Destination | TaskTopic | FactTopic | None = None,
    ) -> EventEnvelope:
        """See `RunJournal.stage`."""
        self._check_open(ended=self.history.terminal is not None)  # nothing follows the terminal event
        if self.cancelling and self.history.compensation is None and event.event_type() in CALLS:
            raise KernelError(
                f"Run {self.run_id} is ending and calls nobody any more.",
                hint="Leave what remains to be done to a compensation, which may call other agents.",
            )
        key = self.run_id if to is None else to.key if isinstance(to, FactTopic) else to.run_id
        envelope = event.to_envelope(
            self.identity.agent,
            trace,
            causation_id,
            self.identity.correlation_id,
            partition_key=key,
            idempotency_key=idempotency_key,
            metadata=self._metadata(to) if to else self._about,
            clock=self.clock,
        )
        if to is not None:
            inbox, partitions = self._address_of(to)
            origin = (ORIGIN, self._context.name.encode())
            self._staged.append(Outgoing(envelope, inbox, partition_of(key, partitions), key, (origin,)))
        if isinstance(event, CapabilityExpired) and (invoked := self.history.invoked.get(event.call_id)):
            self._directory.circuits.failed(invoked.payload, "no answer by the deadline of the call")
        self._put(envelope, ())
        return envelope

    def _address_of(self, to: Destination | TaskTopic | FactTopic) -> tuple[str, int]:
        if isinstance(to, FactTopic):
            return self._directory.facts_of(to.domain)
        if isinstance(to, TaskTopic):
            return self._directory.tasks_of(to.capability_id)
        return self._directory.inbox_of(to.agent_type)

    def _metadata(self, to: Destination | TaskTopic | FactTopic) -> dict[str, Any]:
        if isinstance(to, FactTopic):
            return {}
        named = {} if isinstance(to, TaskTopic) else {"to": to.agent_type}
        given = self.command.metadata.get(FAIRNESS_KEY)
        return {**named, **self._about, **({} if given is None else {FAIRNESS_KEY: given})}

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """See `RunJournal.check`."""
        self._context.log.catalogue.check(event.event_type(), event.event_version(), payload)

    async def commit(self) -> None:
        """See `RunJournal.commit`."""
        self._check_open()
        self._check_sent()
        self.flush()
        if self._sent:
            await self._sent[-1].settled()
            if self.pace is not None:
                await self.pace()
        self._check_sent()  # also for earlier submissions, which nobody waited for

    def flush(self) -> None:
        """See `RunJournal.flush`.

        If it is refused, later submissions are withdrawn: the log has no record of a run behind a gap.
        """
        if self._staged and self._refused is None:
            sent = self._writer.submit(self.take_staged())
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
                self.unrecorded += _outcomes_of_calls([record.envelope for record in sent.records])

    def _tell(self, records: Sequence[Outgoing]) -> None:
        for record in records:
            if record.topic != self._context.journal:
                continue
            event = record.envelope
            outcome = _NODE_ENDS.get(event.event_type)
            if outcome is not None:
                self._measure(event, outcome)
            failure = LINES.get(event.event_type)
            if failure is not None:
                self._context.tell(failure(event, self.history))
            if event.event_type == ApprovalRequested.TYPE:
                self._context.asked(event)

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
        """Stage an unchanged event of this run that was lost on its way to the log."""
        self._put(event, ())

    def take_staged(self) -> list[Outgoing]:
        """Return the staged records and unstage them."""
        records, self._staged = self._staged, []
        return records

    async def resolve(self, wanted: Wanted) -> Provider:
        """See `RunJournal.resolve`."""
        return await self._directory.resolve(wanted)

    async def until_offered(self, wanted: Wanted, deadline_ms: int | None = None) -> None:
        """See `RunJournal.until_offered`."""

        def ready() -> bool:
            due = deadline_ms is not None and self.clock.now_ms() >= deadline_ms
            return due or self._directory.watch.offers(wanted)

        while not ready():
            await self.commit()
            if not ready():
                self._on_seek(self, wanted)
                await self._wait(deadline_ms)

    async def contract(self, invoked: Mapping[str, Any]) -> Contract:
        """See `RunJournal.contract`."""
        return await self._directory.contract(invoked)

    async def learn_inbox(self, agent_type: str) -> None:
        """See `RunJournal.learn_inbox`."""
        await self._directory.learn_inbox(agent_type)

    async def learn_tasks(self, capability_id: str) -> None:
        """See `RunJournal.learn_tasks`."""
        await self._directory.learn_tasks(capability_id)

    async def learn_facts(self, domain: str) -> None:
        """See `RunJournal.learn_facts`."""
        await self._directory.learn_facts(domain)

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        """See `RunJournal.until`."""
        while not ready():
            await self.commit()
            if not ready():
                await self._wait(deadline_ms)

    def has_passed(self, due_ms: int) -> bool:
        """See `RunJournal.has_passed`."""
        return self._has_passed(self.run_id, due_ms)

    async def _wait(self, deadline_ms: int | None) -> None:
        received = self._received
        with self.activity.waiting(enclosing_step()):
            self.active_s = self.clock.monotonic()
            self._on_wait(self, deadline_ms)
            await received.wait()

    # -- help ----------------------------------------------------------------------------------------

    def drop_staged(self) -> None:
        """Drop staged records that build on a refused commit, so that the run can end in another way.

        Without a refused commit nothing is dropped: results of effects are facts, however the run ends.
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

    def _writes_pieces(self) -> bool:
        self.active_s = self.clock.monotonic()  # a run that is watched stays in memory
        return not self._closed

    async def _assure(self) -> None:
        self._check_open()
        await self._writer.assure()
        self._check_open()

    def _check_open(self, *, ended: bool = False) -> None:
        # A task that a node has started and not awaited may outlive the node, the run and the ownership.
        if self._closed or ended:
            raise LogClosedError(f"run {self.run_id} is not carried on here any more")

    def _put(self, envelope: EventEnvelope, headers: tuple[tuple[str, bytes], ...]) -> None:
        self.last_ms = envelope.timestamp_ms
        self.active_s = self.clock.monotonic()
        self._staged.append(self._record(envelope, (UNNUMBERED, *headers)))
        decides = envelope.event_type in _OUTCOMES and envelope.payload["effect_id"] in self.history.outcomes
        self.history.apply(envelope)
        if decides:
            self.wake()  # the outcome was unknown, and tasks wait for the decision on it

    def _record(self, envelope: EventEnvelope, headers: tuple[tuple[str, bytes], ...]) -> Outgoing:
        context = self._context
        return Outgoing(envelope, context.journal, context.journal_partition, self.run_id, headers)


def _outcomes_of_calls(staged: Sequence[EventEnvelope]) -> list[EventEnvelope]:
    """The outcomes among events of one commit whose call was made: its intent was on the log before.

    A tool call that is refused has its intent in the same commit, and was never made.
    """
    intents = {event.payload["effect_id"] for event in staged if event.event_type == EffectRequested.TYPE}
    return [
        event
        for event in staged
        if event.event_type in _OUTCOMES and event.payload["effect_id"] not in intents
    ]
