"""What one commit of the admission holds, and how decisions get into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noesium_stream.errors import EventValidationError, NoesiumError, RecordTooLargeError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import RunCancelRequested
from noesium_stream.kernel import RunHistory
from noesium_stream.log.headers import CE_TYPE, SOURCE, header_value
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.log.record import Record
from noesium_stream.worker.commit.committer import Submission
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.decide import Action, Decision, is_forwarded, judge
from noesium_stream.worker.inbox.deferred_requests import DeferredRequests
from noesium_stream.worker.inbox.faults import is_of_the_record, refusal_by
from noesium_stream.worker.inbox.journal_records import (
    HEADER_BYTES,
    REASON_LENGTH,
    dead_letter,
    deferred,
    forwarded,
    is_deferrable,
    may_be_command,
    place_of,
    resumed,
)
from noesium_stream.worker.inbox.successor import Successor
from noesium_stream.worker.runs.open_runs import OpenRuns
from noesium_stream.worker.runs.run_session import RunSession
from noesium_stream.worker.runs.slots import Holder, fairness_key
from noesium_stream.worker.state.command_queue import CommandQueue
from noesium_stream.worker.state.partition_state import PartitionState

_CANCEL = RunCancelRequested.TYPE.encode()


class Batch:
    """Decisions of one commit, and what follows from them.

    Attributes:
        outgoing: records of the commit.
        begun: runs that start.
        touched: runs that hear of something.
        told: lines for people.
        ahead: runs that start before others do.
        queued: records for the queue: commands with their fairness keys, None for what goes behind one.
        queued_runs: runs of these commands.
        deferred_runs: runs of which something is deferred.
        skipped: inbox offsets of queued records that leave no copy.
        doubtful: records that are skipped for something that may not be on the log yet, and its submission.
    """

    def __init__(self) -> None:
        self.outgoing: list[Outgoing] = []
        self.begun: dict[str, RunSession] = {}
        self.touched: dict[str, RunSession] = {}
        self.told: list[str] = []
        self.ahead: set[str] = set()
        self.queued: list[tuple[Record, str | None]] = []
        self.queued_runs: set[str] = set()
        self.deferred_runs: set[str] = set()
        self.skipped: list[int] = []
        self.doubtful: list[tuple[Record, Submission]] = []

    def queue(self, record: Record, fair: str | None) -> None:
        """Let a record wait for its turn: a command with its fairness key, or what goes behind one."""
        self.queued.append((record, fair))
        if fair is not None:
            self.queued_runs.add(record.key)

    def mark(self, journal: str, state: PartitionState, fair: str | None) -> None:
        """Let the last copy say how far the inbox is decided on."""
        for at in range(len(self.outgoing) - 1, -1, -1):
            copy = self.outgoing[at]
            if copy.topic == journal and any(name == SOURCE for name, _ in copy.headers):
                self.outgoing[at] = copy._replace(headers=(*copy.headers, state.mark(fair)))
                return

    async def judged_again(self, state: PartitionState) -> list[Record]:
        """Skip the doubtful records for good; return those to judge again.

        These were skipped for something that the log has refused. Raises what that was lost by.
        """
        doubtful, self.doubtful = self.doubtful, []
        again: list[Record] = []
        for record, sent in doubtful:
            await sent.settled()
            if sent.error is None:
                state.skip(record.offset)
            elif isinstance(sent.error, EventValidationError | RecordTooLargeError):
                again.append(record)
            else:
                raise sent.error
        return again

    @staticmethod
    def cancelled(records: Sequence[Record]) -> frozenset[str]:
        """The runs that these records cancel, as far as their headers say that."""
        return frozenset(
            record.key for record in records if header_value(record.raw_headers, CE_TYPE) == _CANCEL
        )

    @staticmethod
    def until_cancelled(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        """Cut where a run is cancelled of which something comes before: that has to be committed first."""
        first, runs = 0, set[str]()
        for at, record in enumerate(records):
            if record.key in runs and header_value(record.raw_headers, CE_TYPE) == _CANCEL:
                yield records[first:at]
                first, runs = at, set()
            runs.add(record.key)
        yield records[first:]


class AdmissionView:
    """The `AdmissionState` of a partition, with what a batch adds to it.

    Args:
        context: of the partition.
        state: of the partition.
        runs: its open runs.
        deferred: its deferred requests.
        successor: the next generation.
        queue: of its commands; None: the decision is on what waits there.
        batch: the commit that is being made.
    """

    def __init__(
        self,
        context: PartitionContext,
        state: PartitionState,
        runs: OpenRuns,
        deferred: DeferredRequests,
        successor: Successor,
        queue: CommandQueue | None,
        batch: Batch,
    ) -> None:
        self.agent_type = context.agent_type
        self.policy = context.policy
        self._state = state
        self._runs = runs
        self._deferred = deferred
        self._successor = successor
        self._queue = queue
        self._batch = batch

    @property
    def grown(self) -> bool:
        """See `AdmissionState.grown`."""
        return self._successor.partitions is not None

    def history(self, run_id: str) -> RunHistory | None:
        """See `AdmissionState.history`."""
        session = self._runs.loaded.get(run_id)
        return None if session is None or session.ended else session.history

    def is_known(self, run_id: str) -> bool:
        """See `AdmissionState.is_known`."""
        return run_id in self._runs.loaded or run_id in self._state or self.command_waits(run_id)

    def has_ended(self, run_id: str) -> bool:
        """See `AdmissionState.has_ended`."""
        return self._state.has_ended(run_id)

    def command_waits(self, run_id: str) -> bool:
        """See `AdmissionState.command_waits`."""
        queue = self._queue
        return queue is not None and (run_id in self._batch.queued_runs or run_id in queue)

    def is_deferred(self, run_id: str) -> bool:
        """See `AdmissionState.is_deferred`."""
        return run_id in self._batch.deferred_runs or run_id in self._deferred

    def deferred_now(self, run_id: str) -> bool:
        """See `AdmissionState.deferred_now`."""
        return run_id in self._batch.deferred_runs

    def may_have_deferred_command(self, run_id: str) -> bool:
        """See `AdmissionState.may_have_deferred_command`."""
        return self._deferred.may_have_command(run_id)

    def missing_version(self, command: EventEnvelope) -> str | None:
        """See `AdmissionState.missing_version`."""
        return self._runs.missing_version(command)


class DecisionApplier:
    """Carries decisions out: puts their records into a batch, and what follows from them.

    Args:
        context: of the partition.
        state: of the partition.
        runs: its open runs.
        deferred_requests: of the partition.
        successor: the next generation.
        queue: of its commands.
        holder: what the partition has of the slots.
    """

    def __init__(
        self,
        context: PartitionContext,
        state: PartitionState,
        runs: OpenRuns,
        deferred_requests: DeferredRequests,
        successor: Successor,
        queue: CommandQueue,
        holder: Holder,
    ) -> None:
        self._context = context
        self._state = state
        self._runs = runs
        self._deferred = deferred_requests
        self._successor = successor
        self._queue = queue
        self._holder = holder

    def view(self, batch: Batch, *, at_turn: bool = False) -> AdmissionView:
        """The state to decide by; `at_turn`: on what waits in the queue, when its turn comes."""
        queue = None if at_turn else self._queue
        return AdmissionView(
            self._context, self._state, self._runs, self._deferred, self._successor, queue, batch
        )

    def apply(
        self,
        record: Record,
        decision: Decision,
        batch: Batch,
        *,
        at_turn: bool = False,
    ) -> bool:
        """Carry a decision on a record out; return False if the record is skipped.

        `at_turn`: it waited in the queue, and its turn has come.
        """
        action = decision.action
        if action is Action.START and at_turn:
            self.start(record, batch)
        elif action is Action.START:
            batch.queue(record, fairness_key(record.envelope))
        elif action is Action.DELIVER:
            self._deliver(record, decision, batch)
        elif action is Action.SKIP:
            self._skip(record, batch)
            if decision.reason:
                batch.told.append(f"run {record.key}: {decision.reason}")
            return False
        elif decision.error is not None:
            self._refuse(record, decision.error, batch)
        else:
            return self._apply_rarely(record, decision, batch)
        return True

    def start(self, record: Record, batch: Batch, origin: Position | None = None) -> None:
        """Start the run of a command."""
        try:
            session, first = self._runs.begin(record)
        except Exception as error:
            if not is_of_the_record(error):
                raise
            self._refuse(record, refusal_by(error), batch, origin)
            return
        batch.outgoing += first
        batch.begun[session.run_id] = batch.touched[session.run_id] = session
        self._holder.works(session.command)

    def retry(self, run_id: str, batch: Batch) -> None:
        """Take up deferred requests of a run, as far as that can be done; the rest keeps its order."""
        view = self.view(batch, at_turn=True)
        at = len(batch.outgoing)
        offsets: list[int] = []
        stays = anew = False
        refused: str | None = None
        for request in self._deferred.of(run_id):
            found, reason = judge(view, request.record), request.reason
            if found.action is Action.DEFER and not self._state.has_ended(run_id):
                stays, reason = True, found.reason
            elif not (stays and found.action is Action.SKIP and run_id not in self._state):
                refused = brief(found.error, REASON_LENGTH) if found.error is not None else refused
                self._settle(request.record, found, batch, request.origin)
                offsets += request.offsets
                continue
            anew = anew or reason != request.reason  # and what follows it: they keep their order
            if anew:
                batch.outgoing += deferred(self._context, request.record, reason, request.origin)
                offsets += request.offsets
        if offsets:
            batch.outgoing.insert(at, resumed(self._context, run_id, offsets, refused))

    def _apply_rarely(self, record: Record, decision: Decision, batch: Batch) -> bool:
        if decision.action is Action.FORWARD:
            self._forward(record, batch)
        elif decision.action is Action.DEFER:
            self._defer(record, decision.reason, batch)
        elif decision.action is Action.WITHDRAW:
            self._withdraw(record, batch)
        elif decision.action is Action.QUEUE:
            batch.queue(record, None)
        else:
            return self._learn(record, batch)
        return True

    def _settle(self, record: Record, found: Decision, batch: Batch, origin: Position | None) -> None:
        """Carry out what was judged of a deferred request."""
        if is_forwarded(self.view(batch, at_turn=True), record.key, found.action):
            self._forward(record, batch)
        elif found.action is Action.START:
            self.start(record, batch, origin)
        elif found.action is Action.DELIVER:
            self._deliver(record, found, batch)
        elif found.error is not None:
            self._refuse(record, found.error, batch, origin)

    def _deliver(self, record: Record, decision: Decision, batch: Batch) -> None:
        session = self._runs.loaded[record.key]
        try:
            copy = session.accept(record.envelope, record, decision.headers)
        except Exception as error:
            if not is_of_the_record(error):
                raise
            self._refuse(record, refusal_by(error), batch)
            return
        batch.outgoing.append(copy)
        batch.touched[session.run_id] = session

    def _refuse(
        self, record: Record, error: NoesiumError, batch: Batch, origin: Position | None = None
    ) -> None:
        topic_id = self._state.manifest.inbox_id
        batch.outgoing += dead_letter(self._context, record, error, origin, topic_id)
        batch.told.append(f"{place_of(origin or record)} is a dead letter: {brief(error, 300)}")

    def _skip(self, record: Record, batch: Batch) -> None:
        """Skip a record; for good when what its run says has happened is on the log."""
        session = self._runs.loaded.get(record.key)
        sent = session.under_way() if session is not None else None
        if sent is None:
            self._state.skip(record.offset)
        else:
            batch.doubtful.append((record, sent))

    def _forward(self, record: Record, batch: Batch) -> None:
        partitions = self._successor.partitions
        assert partitions is not None, "only who has been outgrown forwards"
        batch.outgoing += forwarded(self._context, record, partitions)

    def _defer(self, record: Record, reason: str, batch: Batch) -> None:
        """Defer a record, and what follows for its run; what the journal cannot keep is a dead letter."""
        if not is_deferrable(record):
            self._refuse(
                record, RecordTooLargeError(f"its headers have more than {HEADER_BYTES} bytes"), batch
            )
            return
        try:
            batch.outgoing += deferred(self._context, record, reason)
        except ValueError as error:  # what no journal event can hold
            self._refuse(record, refusal_by(error), batch)
            return
        batch.told.append(f"{place_of(record)} is deferred: {reason}")
        if self._successor.partitions is None or may_be_command(record):
            batch.deferred_runs.add(record.key)

    def _withdraw(self, cancel: Record, batch: Batch) -> None:
        """Take up what is deferred for a run that is cancelled: it starts and is cancelled, or is refused."""
        at = len(batch.outgoing)
        offsets: list[int] = []
        refused: str | None = None
        view = self.view(batch, at_turn=True)
        for request in self._deferred.of(cancel.key):
            offsets += request.offsets
            found = judge(view, request.record, any_version=True)
            refused = brief(found.error, REASON_LENGTH) if found.error is not None else refused
            self._settle(request.record, found, batch, request.origin)
        batch.outgoing.insert(at, resumed(self._context, cancel.key, offsets, refused))
        found = judge(view, cancel)
        if found.action is Action.SKIP and not is_forwarded(view, cancel.key, found.action):
            self._skip(cancel, batch)
        else:
            self._settle(cancel, found, batch, None)

    def _learn(self, record: Record, batch: Batch) -> bool:
        """Learn of the next generation of the agent's topics."""
        copy = self._successor.learn(record)
        if copy is None:
            self._state.skip(record.offset)
            return False
        if isinstance(copy, NoesiumError):
            self._refuse(record, copy, batch)
        else:
            batch.outgoing.append(copy)
        return True
