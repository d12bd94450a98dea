"""The owner of one partition of an agent type: accepts its inbox, runs its runs, writes its journal.

Order is the guarantee. Acquiring:
 1. open the writer (fences the previous owner and ends what it left open),
 2. write `partition.acquired` (nobody of an older epoch can commit after it); that this succeeds proves that
    the group has the partition here and nowhere else,
 3. read the journal from where the local state ends (`state`) to its high watermark,
 4. resume the runs that are open; those that rest are not even loaded,
 5. accept from the inbox, from where the journal's copies end.
A commit that fails because the partition is lost (fenced, outcome unknown) ends all of that; as long as
the group leaves the partition here, it is acquired again from step 1, otherwise it is dropped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from noesium_stream.capability import CapabilityRegistry
from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CheckpointError,
    EventValidationError,
    LogClosedError,
    LogFullError,
    LogUnavailableError,
    MigrationError,
    ProjectionError,
    brief,
)
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import GraphRef, PartitionStatus, RunDeadlinePassed, RunStarted
from noesium_stream.kernel import NO_LONGER_OWNER, Provider
from noesium_stream.kernel.stray import failure_of_code
from noesium_stream.log.generations import Generation, next_specs
from noesium_stream.log.headers import DEADLINE
from noesium_stream.log.port import EventLog, LogWriter, Outgoing, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.log.topics import generation_of
from noesium_stream.observability import events_processed
from noesium_stream.worker.acquiring import (
    Assignment,
    acquired,
    answered_meanwhile,
    confirmed,
    low_water_mark,
    take,
)
from noesium_stream.worker.committer import Committer
from noesium_stream.worker.directory import Directory
from noesium_stream.worker.forwarding import outgrown
from noesium_stream.worker.grace import GRACE_S, let_calls_end
from noesium_stream.worker.intake import Intake
from noesium_stream.worker.leaving import go_on, leave
from noesium_stream.worker.parking import Parking
from noesium_stream.worker.releases import Releases, asked_of, named
from noesium_stream.worker.reports import Reports
from noesium_stream.worker.restore import read_runs
from noesium_stream.worker.runner import run_to_end
from noesium_stream.worker.session import RunSession
from noesium_stream.worker.slots import Slots
from noesium_stream.worker.starting import Starting
from noesium_stream.worker.state import Bounds, PartitionState
from noesium_stream.worker.state_keeper import StateKeeper
from noesium_stream.worker.submission import Submission
from noesium_stream.worker.timers import Timers

DRAIN_S: Final = 5.0
"""How long giving a partition up waits for what was sent to the log before."""

PROOF_S: Final = 2.5
"""For so long after it began, a commit that succeeded proves that nobody else has the partition.

A member of a group gives signs of life every second, and its partitions are free 4 s (SQLite) or 6 s (Kafka)
after the last one."""

SHOWN: Final = 3
"""So much of what parked runs wait for is in a sign of life."""

_PAUSE_S: Final = 0.25


class PartitionOwner:
    """Owns partition `partition` of an agent type from `acquire` to `release`."""

    def __init__(
        self,
        log: EventLog,
        releases: Releases,
        place: TopicPartition,
        registry: CapabilityRegistry,
        assignment: Assignment,
        *,
        on_failure: Callable[[BaseException], None],
        on_recovered: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = lambda line: None,
        grace_s: float = GRACE_S,
        bounds: Bounds | None = None,
        slots: Slots | None = None,
        keeps_state: bool = True,
        successor: Generation | None = None,
        reports: Reports | None = None,
    ) -> None:
        self.log = log
        self._releases = releases
        agent = self._agent = releases.newest.agent
        self._grace_s = grace_s
        self.tell = tell
        self._on_failure = on_failure
        self._on_recovered = on_recovered
        self.agent_ref: AgentRef = agent.context.agent_ref
        self.clock: Clock = agent.context.clock
        self.partition = place.partition
        self.generation = generation_of(place.topic)
        self.inbox = place.topic
        self.journal = log.topology.journal(agent.agent_type, self.generation)
        self._successor = successor
        self._directory = Directory(log, registry, self.clock, agent.context.progress)
        self._writer: LogWriter | None = None
        self._committer: Committer | None = None
        self._timers: Timers | None = None
        self._parking: Parking | None = None
        self._runs: dict[str, RunSession] = {}
        self._starting = Starting(self._runs, self._begin_task)
        self._keeper = StateKeeper(self, releases, bounds or Bounds(), self._lost, in_file=keeps_state)
        self._slots = slots or Slots()
        self._reports = reports or Reports(log, self.clock, agent.context.progress)
        self._intake: Intake | None = None
        self._outcomes: dict[str, EventEnvelope] = {}
        self._awaited: dict[str, int] = {}
        self._taken = False
        self._recovering: asyncio.Task[None] | None = None
        self._assignment = assignment
        self._places = 0
        self._released = False
        self._writer_lost = asyncio.Event()

    @property
    def open_runs(self) -> int:
        """How many runs of this partition are open."""
        return len(self._runs) + self.parked_runs

    @property
    def parked_runs(self) -> int:
        """How many of them only wait, and are not loaded."""
        return len(self._parking) if self._parking is not None else 0

    def status(self, handled: int | None) -> PartitionStatus | None:
        """How the partition stands; None: it is being taken, or given up.

        Args:
            handled: where the group's reader stands in the inbox, if it reads it.
        """
        if self._writer is None or not self._taken:
            return None
        left, kept = self._left_alone(), self._intake.kept if self._intake is not None else None
        reasons = [why.removeprefix("it waits for ") for why in kept.reasons(SHOWN)] if kept else []
        at_work = [s.last_ms for s in self._runs.values() if s.begun and not s.activity.only_waits]
        return PartitionStatus(
            partition=self.partition,
            epoch=self._writer.epoch,
            next_offset=self._keeper.state.dealt_with(handled or 0),
            open_runs=self.open_runs,
            oldest_step_ms=min(at_work, default=None),
            topic=None if self.generation == 1 else self.inbox,
            parked=sum(left.values()) + (len(kept) if kept is not None else 0),
            waits_for=[*left, *reasons][:SHOWN],
        )

    def _left_alone(self) -> Counter[str]:
        """The versions of runs that nobody here can go on with."""
        return Counter(
            named(GraphRef.model_validate(session.history.pinned))
            for session in self._runs.values()
            if session.history.parked is not None and session.task is None
        )

    # -- ownership -----------------------------------------------------------------------------------

    async def acquire(self) -> int:
        """Take the partition; return the next inbox offset to accept.

        Raises:
            CheckpointError, CorruptRecordError: the journal cannot be read back.
            LogUnavailableError: nobody answers.
        """
        # 1. Fence. 2. Say so: the first record of this epoch.
        writer_id = f"{self.journal}/{self.partition}"
        self._writer = writer = await take(self.log, writer_id, self._assignment, partial(acquired, self))
        self._writer_lost.clear()
        # 3. Read the journal; nobody else can write it now.
        state = await self._keeper.open()
        position = await low_water_mark(self, state.manifest.position, self._agent.context.progress)
        state.read_to(position)
        committer = Committer(
            writer, self.journal, self.clock, self._agent.context.progress, self._lost, self._keeper.committed
        )
        committer.sequences.update((run_id, run.count) for run_id, run in state.open.items())
        self._committer = committer
        if self._successor is not None and state.manifest.successor is None:
            # Nobody has told it so far: retention may have removed the news from the inbox.
            await committer.submit([outgrown(self, self._successor.partitions)]).wait()
        self._timers = Timers(self.clock, self._due)
        self._parking = Parking(self, self._runs, self._on_failure)
        # 4. Resume; not yet what people have answered meanwhile: a deadline that has passed since must not
        # get ahead of the answer that lies in the inbox.
        self._awaited = {}
        if state.open:
            self._awaited = await answered_meanwhile(self, position, self._directory)
        self._intake = Intake(self, self._runs, state, self._parking, self._slots)
        self._resume(state, self._parking, self._timers, self._intake)
        await self._intake.take_left_behind()
        # 5. The inbox follows from here.
        if self._recovering is not None:
            # What was handed over before is read again: the state may have been lost that had it. Up to the
            # seek the group may hand over what lies behind it, and from there on nothing gives way.
            await self._assignment.start_at(position)
            self._places += 1
        self._intake.open()
        self._taken = True
        return position

    async def acquire_or_recover(self) -> int | None:
        """As `acquire`; None: it is taken again by and by, or given up.

        Somebody else takes it too, who was given it before and does not know better; or it was given on while
        this process stood still. The group says whose it is, and who waits for that here would not hear it.
        """
        try:
            return await self.acquire()
        except (*NO_LONGER_OWNER, LogUnavailableError, LogFullError) as error:
            self.recover(error)
            return None

    async def release(self) -> None:
        """Give the partition up: what is under way outside ends and is recorded (`grace`), the open commit
        ends, runs stop where they are, the writer closes.
        """
        self._released = True
        if self._recovering is not None:
            self._recovering.cancel()
            await asyncio.gather(self._recovering, return_exceptions=True)
        await self._let_go(self._grace_s)

    async def _take_nothing(self) -> None:
        """Nothing comes in any more, and nothing begins or comes back."""
        self._taken = False
        if self._intake is not None:
            self._intake.shut()  # before parked runs are forgotten: what comes in is not for nobody
        if self._timers is not None:
            await self._timers.close()
            self._timers = None
        if self._parking is not None:
            await self._parking.close()
            self._parking = None
        if self._intake is not None:
            await self._intake.close()
            self._intake = None
        await self._starting.close()

    async def _let_go(self, grace_s: float = 0.0) -> None:
        await self._take_nothing()
        activities = [session.activity for session in self._runs.values()]
        await let_calls_end(activities, grace_s, self._writer_lost, self._agent.context.progress)
        tasks = [session.task for session in self._runs.values() if session.task is not None]
        sessions = list(self._runs.values())
        heirs = {session.run_id: self._reports.of(session, self.inbox) for session in sessions}
        for session in sessions:
            session.activity.heir = heirs[session.run_id]
            # Should the records be lost with the writer, what was done outside is not forgotten.
            self._outcomes.update(session.history.outcomes)
            session.flush()
            session.close()  # first: a run that is being cancelled would wait for a log that may be away
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._runs.clear()
        if self._committer is not None:
            await self._committer.drain(DRAIN_S)
            await self._committer.close()
            self._committer = None
        for session in sessions:
            for outcome in session.unrecorded:
                heirs[session.run_id].recover(outcome)
        self._keeper.close()
        if self._writer is not None:
            await self._writer.close()
            self._writer = None

    def _lost(self, error: Exception) -> None:
        self._writer_lost.set()
        if isinstance(error, NO_LONGER_OWNER):
            self.recover(error)
        else:
            self._on_failure(error)

    def recover(self, error: Exception) -> None:
        """Take the partition again, by and by, unless it is released or the group gives it to others."""
        if not self._released and self._recovering is None:
            self._taken = False
            self._recovering = asyncio.create_task(self._recover(error), name=f"recover {self.partition}")

    async def _recover(self, error: Exception) -> None:
        try:
            while True:
                await self._let_go()
                await self.clock.sleep(_PAUSE_S)
                try:
                    if not await self._assignment.still_here():
                        return self._given_away()
                    self._agent.context.progress(
                        f"{self.journal}/{self.partition}: taking it again after: {error}"
                    )
                    await self.acquire()
                    return self._on_recovered()
                except (*NO_LONGER_OWNER, LogUnavailableError, LogFullError) as again:
                    error = again
        except Exception as failure:
            self._on_failure(failure)
        finally:
            self._recovering = None

    def _given_away(self) -> None:
        self._agent.context.progress(
            f"{self.journal}/{self.partition}: the group has given it to another worker"
        )
        self._released = True

    async def open_next(self, partitions: int) -> None:
        """See `ForwardingOwner.open_next`; whoever reads for this agent type hears of it."""
        inbox, _ = next_specs(self.log.topology, self._agent.agent_type, self.generation + 1, partitions)
        while True:
            if self._committer is None or self._writer_lost.is_set():
                raise LogClosedError(f"{self.journal}/{self.partition} was given up")
            try:
                await self.log.ensure_topics([inbox])
                break
            except LogUnavailableError as error:
                await self._directory.wait_for_log(error)
        self._on_recovered()

    # -- runs ----------------------------------------------------------------------------------------

    def _resume(self, state: PartitionState, parking: Parking, timers: Timers, intake: Intake) -> None:
        """Let the open runs go on, a few at a time; those that rest wait on as they did."""
        parking.adopt(state.open)
        unrecorded = {outcome.partition_key for outcome in self._outcomes.values()}
        intake.resume(run_id for run_id in state.open if run_id in unrecorded)
        for run_id, run in state.open.items():
            if run.deadline_ms is not None:
                timers.set(run_id, run.deadline_ms)
            if run_id in self._awaited or run_id in unrecorded:
                continue
            if not run.rests:
                intake.resume((run_id,))
            elif run.due_ms is not None:
                timers.set(run_id, run.due_ms)

    def _leave(self, session: RunSession, why: str) -> None:
        """A run that this worker cannot go on with waits for one that can."""
        self._agent.context.progress(leave(session, self._releases, why))

    def _restored(self, records: Sequence[Record]) -> RunSession:
        events = [record.envelope for record in records]
        session = RunSession(self, events[0], _started_trace(events))
        for event in events:
            session.replay(event)
        self._runs[session.run_id] = session
        return session

    def _remember(self, session: RunSession) -> None:
        """Record now what this process did and could not record before it lost the partition."""
        history = session.history
        for effect_id, requested in history.requested.items():
            outcome = self._outcomes.pop(effect_id, None)
            if outcome is None or effect_id in history.outcomes:
                continue
            if outcome.causation_id == requested.event_id:  # not of a call that was made again elsewhere
                session.restage(outcome)
        session.flush()

    def _begin_task(self, session: RunSession) -> None:
        session.task = asyncio.create_task(self._execute(session), name=f"run {session.run_id}")

    async def _execute(self, session: RunSession) -> None:
        session.begun = True
        self._end_if_overdue(session)
        release = self._releases.carrying(session.history.pinned) or self._releases.newest
        go_on(session, release.graph)
        try:
            ended = await run_to_end(release.agent, session, release.graph)
        except MigrationError as error:
            session.begun, session.task = False, None
            if self._intake is not None:
                self._intake.rests(session.run_id)
            self._leave(session, f"cannot move it: {error.message}")
            if session.history.stop is not None:
                self._begin_task(session)  # who asked for it came meanwhile; ending it takes no graph
            return
        except BaseException as error:
            failure = failure_of_code(error, session.task)
            if failure is None:
                raise
            self._on_failure(failure)
            return
        if ended:
            session.close()
            self._runs.pop(session.run_id, None)
            if self._intake is not None:
                self._intake.rests(session.run_id)
            if self._timers is not None:
                self._timers.forget(session.run_id)
            if self._committer is not None:
                self._committer.sequences.pop(session.run_id, None)

    # -- runs that only wait -------------------------------------------------------------------------

    def park_idle(self) -> None:
        """See `Parking.park_idle`."""
        if self._parking is not None:
            self._parking.park_idle()

    def parked(self, run_id: str) -> None:
        """See `ParkingOwner.parked`."""
        due_ms = self._timers.next_of(run_id) if self._timers is not None else None
        self._keeper.state.rests(run_id, due_ms)
        if self._intake is not None:
            self._intake.rests(run_id)

    async def read_runs(self, run_ids: Collection[str]) -> dict[str, list[Record]]:
        """See `ParkingOwner.read_runs`."""
        known = self._keeper.state.open
        runs = {run_id: known[run_id] for run_id in run_ids}
        while True:
            try:
                return await read_runs(self.log, self.journal, self.partition, runs)
            except LogUnavailableError as error:
                await self._directory.wait_for_log(error)

    def bring_back(self, run_id: str, records: Sequence[Record]) -> RunSession:
        """See `ParkingOwner.bring_back`."""
        written = self._committer.sequences.get(run_id) if self._committer is not None else None
        if not records or written != len(records):
            raise CheckpointError(
                f"{self.journal}/{self.partition}: run {run_id} has {len(records)} records there, and "
                f"{written} were written.",
                hint="The journal was changed from outside or lost data; restore it before you go on.",
            )
        self._keeper.state.stirs(run_id)
        session = self._restored(records)
        self._remember(session)
        started = session.history.started
        pinned = session.history.pinned if started is not None else None
        if session.history.deadline_ms is not None and self._timers is not None:
            self._timers.set(run_id, session.history.deadline_ms)
        ending = session.history.stop or session.history.compensation  # that takes no graph
        if ending is None and pinned is not None and self._releases.carrying(pinned) is None:
            self._leave(session, "no migration from it")
            self._awaited.pop(run_id, None)
        elif run_id not in self._awaited:
            self.start(session)
        return session

    # -- the inbox -----------------------------------------------------------------------------------

    def accept(self, records: Sequence[Record]) -> Coroutine[Any, Any, None]:
        """Deal with the next records of the inbox; returns when all are dealt with on the log.

        A record that was accepted before is passed over. So is all that comes while the partition is not
        owned here, or that was handed over before it was taken again: it is read again once it is, and the
        member's other partitions do not wait for that.
        """
        return self._accept_in(self._places, records)

    async def _accept_in(self, places: int, records: Sequence[Record]) -> None:
        intake = self._intake
        if not self._taken or intake is None or places != self._places:
            return
        try:
            await intake.take(records)
        except NO_LONGER_OWNER as error:
            if self._intake is intake:
                self.recover(error)  # nothing, where `_lost` has begun that already
        except ProjectionError as error:
            self._keeper.broke(error)
        else:
            attributes = {"noesium.reader": "worker", "noesium.name": self._agent.agent_type}
            events_processed.add(len(records), attributes)

    def answered(self, position: int) -> None:
        """See `IntakeOwner.answered`: starts the runs whose answers lay there when it was acquired."""
        for run_id in [run_id for run_id, offset in self._awaited.items() if offset < position]:
            del self._awaited[run_id]
            session = self._runs.get(run_id)
            if session is not None and session.task is None:
                self.start(session)
            elif session is None and self._intake is not None:
                self._intake.resume((run_id,))  # what was no answer has not brought it back

    def fell_out(self, error: Exception) -> None:
        """See `IntakeOwner.fell_out`."""
        if isinstance(error, ProjectionError):
            self._keeper.broke(error)
        else:
            self._on_failure(error)

    def start(self, session: RunSession) -> None:
        """See `IntakeOwner.start`."""
        if session.task is not None:
            return  # it is ending already: its deadline has passed
        if self._intake is not None:
            self._intake.works(session.run_id)
        self._starting.start(session)

    def lacks(self, command: EventEnvelope) -> str | None:
        """See `IntakeOwner.lacks`."""
        return None if self._releases.beginning(command) is not None else asked_of(command)

    def begin(self, record: Record) -> tuple[RunSession, list[Outgoing]]:
        """See `IntakeOwner.begin`."""
        command: EventEnvelope = record.envelope
        payload = command.payload
        fork = payload.get("fork") or {}
        release = self._releases.beginning(command) or self._releases.newest
        deadline_ms = payload.get("deadline_ms")
        try:
            started = RunStarted(
                run_id=record.key,
                agent_type=self._agent.agent_type,
                agent_version=release.agent.version,
                graph=release.graph,
                capability_id=payload.get("capability_id") or fork.get("capability_id"),
                reply_to=payload.get("reply_to"),
                forked_from=fork or None,
                on_failure=release.on_failure,
                deadline_ms=deadline_ms,
            )
        except ValidationError as error:  # what JSON has as an integer may be too large for one
            raise EventValidationError("payload", brief(error, 200)) from error
        session = RunSession(self, command)
        self._runs[session.run_id] = session
        copy = session.accept(command, record)
        if deadline_ms is not None:
            deadline_ms = int(deadline_ms)  # 5.0 is an integer in JSON
            copy = copy._replace(headers=(*copy.headers, (DEADLINE, str(deadline_ms).encode())))
            if self._timers is not None:
                self._timers.set(session.run_id, deadline_ms)
        session.stage(started, trace=session.identity.trace, causation_id=command.event_id)
        return session, [copy, *session.take_staged()]

    def deliver(self, session: RunSession) -> None:
        """See `IntakeOwner.deliver`."""
        session.held = False
        self._wake(session)
        self._stop(session)

    def _stop(self, session: RunSession) -> None:
        """Let a run end without a result, if it is to."""
        if session.history.stop is None or session.cancelling or session.run_id not in self._runs:
            return
        if session.history.compensation is not None:
            return  # it is ending already, and what undoes it must not be broken off
        session.cancelling = True
        if session.task is None:
            self._begin_task(session)  # it waits for its turn, or for its graph, which nobody needs to end it
        elif session.begun:
            # Once: a second time would break off what ends the run. A task that has not begun sees the
            # request by itself; cancelled now it would never begin.
            session.task.cancel(session.history.stop.event_type)

    def _wake(self, session: RunSession) -> None:
        if self._intake is not None and session.task is not None:
            self._intake.works(session.run_id)
        session.wake()

    def _due(self, run_id: str) -> None:
        """A deadline of this run has passed: whoever waits for it looks again."""
        session = self._runs.get(run_id)
        if session is not None:
            self._wake(session)
            if self._end_if_overdue(session):
                self._stop(session)
        elif self._parking is not None and run_id in self._parking:
            self._parking.load((run_id,))

    def _end_if_overdue(self, session: RunSession) -> bool:
        """Say that the deadline of a run has passed, if it has: from there on that is so for everybody."""
        history = session.history
        due_ms = history.deadline_ms
        ending = history.stop or history.compensation or history.terminal
        if due_ms is None or ending is not None or self.clock.now_ms() < due_ms:
            return False
        self.submit([session.note(RunDeadlinePassed(run_id=session.run_id, deadline_ms=due_ms))])
        return True

    # -- SessionOwner --------------------------------------------------------------------------------

    async def assure(self) -> None:
        """See `SessionOwner.assure`; a commit proves it for `PROOF_S`."""
        while True:
            committer, writer = self._committer, self._writer
            if committer is None or writer is None:
                raise LogClosedError(f"{self.journal}/{self.partition} was given up")
            if self.clock.monotonic() - committer.proved_s <= PROOF_S:
                return
            self.tell(f"{self.journal}/{self.partition}: asking the log whether it is still owned here")
            await committer.submit([confirmed(self, writer.epoch)]).wait()

    def waits(self, session: RunSession, due_ms: int | None) -> None:
        """See `SessionOwner.waits`."""
        if due_ms is not None and self._timers is not None:
            self._timers.set(session.run_id, due_ms)
        if self._parking is not None:
            self._parking.waits(session, due_ms)
        if self._intake is not None and session.activity.only_waits:
            self._intake.rests(session.run_id)

    def submit(self, records: list[Outgoing]) -> Submission:
        """See `SessionOwner.submit`."""
        if self._committer is None:
            given_up = Submission(records)
            given_up.end(LogClosedError(f"{self.journal}/{self.partition} was given up"))
            return given_up
        return self._committer.submit(records)

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """See `SessionOwner.check`."""
        self.log.catalogue.check(event.event_type(), event.event_version(), payload)

    def inbox_of(self, agent_type: str) -> tuple[str, int]:
        """See `SessionOwner.inbox_of`."""
        return self._directory.inbox_of(agent_type)

    async def learn_inbox(self, agent_type: str) -> None:
        """See `SessionOwner.learn_inbox`."""
        await self._directory.learn_inbox(agent_type)

    async def resolve(self, capability_id: str, version_range: str | None) -> Provider:
        """See `RunJournal.resolve`."""
        return await self._directory.resolve(capability_id, version_range)


def _started_trace(events: Sequence[EventEnvelope]) -> TraceContext | None:
    return next((event.trace for event in events if event.event_type == "run.started"), None)
