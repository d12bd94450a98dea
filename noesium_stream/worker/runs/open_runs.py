"""Open runs of one tenure: starting, resuming, waking, cancelling and ending them.

A loaded run has a session, and a task once it has started. The other open runs are not in memory
(`eviction`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from pydantic import ValidationError

from noesium_stream.errors import (
    CheckpointError,
    EventValidationError,
    LogUnavailableError,
    MigrationError,
    brief,
)
from noesium_stream.event.envelope import EventEnvelope, TraceContext
from noesium_stream.event.standard import RunDeadlinePassed, RunStarted
from noesium_stream.event.trust.grants import given_to
from noesium_stream.kernel.failure_of_code import failure_of_code
from noesium_stream.kernel.journal import Wanted
from noesium_stream.log.headers import DEADLINE
from noesium_stream.log.port import Outgoing
from noesium_stream.log.record import Record
from noesium_stream.worker.agent_directory import Directory
from noesium_stream.worker.commit.partition_writer import PartitionWriter
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.graph_versions import Releases, asked_of
from noesium_stream.worker.ownership.grace import let_calls_end
from noesium_stream.worker.runs.eviction import Eviction
from noesium_stream.worker.runs.late_outcomes import OutcomeReports, RunOutcomeReports
from noesium_stream.worker.runs.pinned_graph import go_on, leave
from noesium_stream.worker.runs.refused_commands import command_refusal
from noesium_stream.worker.runs.run_session import RunSession
from noesium_stream.worker.runs.run_to_end import run_to_end
from noesium_stream.worker.runs.slots import Holder
from noesium_stream.worker.runs.start_queue import StartQueue
from noesium_stream.worker.runs.time_to_live import waited_ms
from noesium_stream.worker.runs.timers import Timers
from noesium_stream.worker.runs.unrecorded_outcomes import UnrecordedOutcomes
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.restore import read_runs
from noesium_stream.worker.state.state_keeper import StateKeeper


class OpenRuns:
    """The open runs of one tenure, until `give_up`.

    Args:
        context: context of the partition.
        releases: graph versions that the worker carries of the agent.
        writer: the tenure's writer.
        keeper: keeper of the tenure's state.
        directory: directory of other agents.
        reports: takes calls that outlast the tenure.
        unrecorded: outcomes of calls that earlier tenures may not have recorded.
        holder: the partition's share of the slots.
        on_failure: called with an error that ends the worker.

    Attributes:
        loaded: the runs in memory, by id.
        eviction: the runs that are not in memory.
    """

    def __init__(
        self,
        context: PartitionContext,
        releases: Releases,
        writer: PartitionWriter,
        keeper: StateKeeper,
        directory: Directory,
        reports: OutcomeReports,
        unrecorded: UnrecordedOutcomes,
        holder: Holder,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.loaded: dict[str, RunSession] = {}
        self.context = context
        self.clock = context.clock
        self.writer = writer
        self.directory = directory
        self._releases = releases
        self._keeper = keeper
        self._reports = reports
        self._on_failure = on_failure
        self._holder = holder
        self._unrecorded = unrecorded
        self._awaited: dict[str, int] = {}
        self._seeking: set[str] = set()
        """Runs that may wait for a provider."""
        self._starting = StartQueue(self.loaded, self._begin_task, holder.part_of)
        self._timers = Timers(self.clock, self.due)
        self.eviction = Eviction(self, self.loaded, on_failure)

    # -- taken and given up --------------------------------------------------------------------------

    def resume(self, state: PartitionState, awaited: dict[str, int]) -> None:
        """Let the open runs go on, a few at a time; runs that only wait stay out of memory.

        Args:
            state: state of the partition.
            awaited: inbox offsets of people's answers by run id; such a run does not go on before its answer
                is accepted.
        """
        self._awaited = awaited
        self.eviction.adopt(state.open)
        unrecorded = self._unrecorded.runs()
        self._holder.resume(run_id for run_id in state.open if run_id in unrecorded)
        for run_id, run in state.open.items():
            if run.deadline_ms is not None:
                self._timers.set(run_id, run.deadline_ms)
            if run_id in awaited or run_id in unrecorded:
                continue
            if not run.rests:
                self._holder.resume((run_id,))
            elif run.due_ms is not None:
                self._timers.set(run_id, run.due_ms)

    async def stop_waking(self) -> None:
        """Stop timers and eviction: no deadline wakes a run, and none is evicted or loaded."""
        await self._timers.close()
        for run_id in list(self._seeking):
            self._seeks_no_more(run_id)
        await self.eviction.close()

    async def stop_starting(self) -> None:
        """Stop starting runs."""
        await self._starting.close()

    async def give_up(self, grace_s: float) -> list[tuple[RunSession, RunOutcomeReports]]:
        """End all runs' tasks here; return the sessions, each with the heir that reports late outcomes.

        `grace_s` is how long to wait for calls of effects, in seconds.
        """
        sessions = self.loaded.values()
        await let_calls_end(
            [session.activity for session in sessions], grace_s, self.writer.lost, self.context.progress
        )
        tasks = [session.task for session in sessions if session.task is not None]
        heirs = [(session, self._reports.of(session, self.context.inbox)) for session in sessions]
        for session, heir in heirs:
            session.activity.heir = heir
            self._unrecorded.keep(session.history.outcomes)
            session.flush()
            session.close()  # before cancelling: a cancelled run would wait for a log that may be unavailable
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for session in sessions:
            self._unrecorded.keep(session.uncalled())
        self.loaded.clear()
        return heirs

    # -- at work -------------------------------------------------------------------------------------

    def missing_version(self, command: EventEnvelope) -> str | None:
        """Return the version that a command asks for if it is not carried here; None: its run can start."""
        return None if self._releases.beginning(command) is not None else asked_of(command)

    async def outcomes_known(self, run_ids: Iterable[str]) -> None:
        """Wait for the terminal events of these runs that are on their way to the log.

        No record of a run may follow its terminal event. If the event does not reach the log, the run is
        still open and takes the records that come in.
        """
        while ending := [s for run_id in run_ids if (s := self.loaded.get(run_id)) is not None and s.ending]:
            await ending[0].outcome_known()

    def begin(self, record: Record) -> tuple[RunSession, list[Outgoing]]:
        """Make the session of a command's run; return it and the first records of its journal.

        Raises:
            EventValidationError: no run can start with this command; nothing has changed.
        """
        command = record.envelope
        started = self._started(record, command)
        session = self.session(command)
        copy = session.accept(command, record)
        session.stage(started, trace=session.identity.trace, causation_id=command.event_id)
        self.loaded[session.run_id] = session
        if started.deadline_ms is not None:
            copy = copy._replace(headers=(*copy.headers, (DEADLINE, str(started.deadline_ms).encode())))
            self._timers.set(session.run_id, started.deadline_ms)
        return session, [copy, *session.take_staged()]

    def _started(self, record: Record, command: EventEnvelope) -> RunStarted:
        """Make the `run.started` of a command's run: it pins the graph that the run starts with."""
        newest = self._releases.newest
        release = self._releases.beginning(command) or newest
        payload = command.payload
        fork = payload.get("fork") or {}
        grant = given_to(self.context.policy, command)
        try:
            return RunStarted(
                run_id=record.key,
                agent_type=newest.agent.agent_type,
                agent_version=release.agent.version,
                graph=release.graph,
                capability_id=payload.get("capability_id") or fork.get("capability_id"),
                reply_to=payload.get("reply_to"),
                forked_from=fork or None,
                on_failure=release.on_failure,
                deadline_ms=payload.get("deadline_ms"),
                waited_ms=waited_ms(record, command, self.clock.now_ms()),
                refused=command_refusal(self.context.policy, record, grant, release.agent.capabilities),
                grant=grant,
                budget=payload.get("budget"),
            )
        except ValidationError as error:  # an integer in JSON may be too large for the field
            raise EventValidationError("payload", brief(error, 200)) from error

    def start(self, session: RunSession, *, ahead: bool = False) -> None:
        """Start a run's task, now or when it is its turn; `ahead` of the runs that wait to start."""
        if session.task is not None:
            return  # it is ending already: its deadline has passed
        self._holder.works(session.command)
        session.pace = self._holder.pace_of(session.run_id)
        self._starting.start(session, ahead=ahead)

    def _begin_task(self, session: RunSession) -> None:
        session.task = asyncio.create_task(self._execute(session), name=f"run {session.run_id}")

    async def _execute(self, session: RunSession) -> None:
        if session.pace is not None:
            await session.pace()
        session.begun = True
        self._end_if_overdue(session)
        release = self._releases.carrying(session.history.pinned) or self._releases.newest
        if session.history.stranded is not None:
            go_on(session, release.graph)
        try:
            ended = await run_to_end(release.agent, session, release.graph)
        except MigrationError as error:
            session.begun, session.task = False, None
            self._holder.rests(session.run_id)
            self._leave(session, f"cannot move it: {error.message}")
            if session.history.stop is not None:
                self._begin_task(session)  # a request to stop came meanwhile; ending it takes no graph
            return
        except BaseException as error:
            failure = failure_of_code(error, session.task)
            if failure is None:
                raise
            self._on_failure(failure)
            return
        if ended:
            session.close()
            self.loaded.pop(session.run_id, None)
            self._holder.rests(session.run_id)
            self._timers.forget(session.run_id)
            self._seeks_no_more(session.run_id)
            self.writer.forget(session.run_id)

    def _leave(self, session: RunSession, why: str) -> None:
        """Leave a run stranded until a worker carries its graph."""
        self.context.progress(leave(session, self._releases, why))

    # -- woken and ended from outside ----------------------------------------------------------------

    def deliver(self, session: RunSession) -> None:
        """Tell a run that records were accepted for it."""
        session.held = False
        self._wake(session)
        self._stop(session)

    def answered(self, position: int) -> None:
        """Start runs whose answers were in the inbox, below `position`, when the partition was taken."""
        for run_id in [run_id for run_id, offset in self._awaited.items() if offset < position]:
            del self._awaited[run_id]
            session = self.loaded.get(run_id)
            if session is not None and session.task is None:
                self.start(session)
            elif session is None:
                self._holder.resume((run_id,))  # the record was no answer and has not brought the run back

    def due(self, run_id: str) -> None:
        """Wake or load a run, because one of its deadlines has passed."""
        session = self.loaded.get(run_id)
        if session is not None:
            self._wake(session)
            if self._end_if_overdue(session):
                self._stop(session)
        elif run_id in self.eviction:
            self.eviction.load((run_id,))

    def _wake(self, session: RunSession) -> None:
        if session.task is not None:
            self._holder.works(session.command)
        session.wake()

    def _stop(self, session: RunSession) -> None:
        """End a run without a result, if that was asked for."""
        if session.history.stop is None or session.cancelling or session.run_id not in self.loaded:
            return
        if session.history.compensation is not None:
            return  # it is ending already, and its compensation must not be interrupted
        session.cancelling = True
        if session.task is None:
            self._begin_task(session)  # it waits for its turn or for its graph; ending it needs neither
        elif session.begun:
            # Cancel once: a second time would interrupt the code that ends the run. A task that has not begun
            # sees the request by itself; if it were cancelled now, it would never begin.
            session.task.cancel(session.history.stop.event_type)

    def _end_if_overdue(self, session: RunSession) -> bool:
        """Journal that a run's deadline has passed, if it has; every later owner then ends the run."""
        history = session.history
        due_ms = history.deadline_ms
        ending = history.stop or history.compensation or history.terminal
        if due_ms is None or ending is not None:
            return False
        if self.clock.now_ms() < due_ms:
            self._timers.set(session.run_id, due_ms)  # the wall clock was set back: it is a moment, no pause
            return False
        self.writer.submit([session.note(RunDeadlinePassed(run_id=session.run_id, deadline_ms=due_ms))])
        return True

    # -- out of memory and back ----------------------------------------------------------------------

    def evicted(self, run_id: str) -> None:
        """See `EvictionOwner.evicted`."""
        if run_id not in self._seeking:  # else the next owner has to look for its provider
            self._keeper.state.rests(run_id, self._timers.next_of(run_id))
        self._holder.rests(run_id)

    async def read_runs(self, run_ids: Collection[str]) -> dict[str, list[Record]]:
        """See `EvictionOwner.read_runs`."""
        known, context = self._keeper.state.open, self.context
        runs = {run_id: known[run_id] for run_id in run_ids}
        while True:
            try:
                return await read_runs(context.log, context.journal, context.partition, runs)
            except LogUnavailableError as error:
                await self.directory.wait_for_log(error)

    def bring_back(self, run_id: str, records: Sequence[Record]) -> RunSession:
        """See `EvictionOwner.bring_back`."""
        written, known = self.writer.written(run_id), self._keeper.state.open.get(run_id)
        if not records or known is None or written != known.count or known.needed != len(records):
            raise CheckpointError(
                f"{self.context.name}: run {run_id} has {len(records)} records there, and "
                f"{written} were written.",
                hint="The journal was changed from outside or lost data; restore it before you go on.",
            )
        self._keeper.state.stirs(run_id)
        session = self._restored(records)
        self._unrecorded.record(session)
        started = session.history.started
        pinned = session.history.pinned if started is not None else None
        if session.history.deadline_ms is not None:
            self._timers.set(run_id, session.history.deadline_ms)
        ending = session.history.stop or session.history.compensation  # ending takes no graph
        if ending is None and pinned is not None and self._releases.carrying(pinned) is None:
            self._leave(session, "no migration from it")
            self._awaited.pop(run_id, None)
        elif run_id not in self._awaited:
            self.start(session)
        return session

    def session(self, command: EventEnvelope, trace: TraceContext | None = None) -> RunSession:
        """Make the session of a command's run."""
        passed = self._timers.has_passed
        return RunSession(
            self.context, self.writer, self.directory, self.waits, passed, self.seeks, command, trace
        )

    def _restored(self, records: Sequence[Record]) -> RunSession:
        events = [record.envelope for record in records]
        session = self.session(events[0], _started_trace(events))
        for event in events:
            session.replay(event)
        self.loaded[session.run_id] = session
        return session

    def waits(self, session: RunSession, due_ms: int | None) -> None:
        """Note that a task of this run starts to wait; wake it at `due_ms` at the latest."""
        if due_ms is not None:
            self._timers.set(session.run_id, due_ms)
        self.eviction.waits()
        if session.activity.only_waits:
            self._holder.rests(session.run_id)

    def seeks(self, session: RunSession, wanted: Wanted) -> None:
        """Note that a task of this run waits for a provider; wake or load the run when there is one."""
        self._seeking.add(session.run_id)
        self.directory.watch.add(session.run_id, wanted, self._offered)

    def _offered(self, run_id: str) -> None:
        self._seeking.discard(run_id)
        session = self.loaded.get(run_id)
        if session is not None:
            self._wake(session)
        elif run_id in self.eviction:
            self._holder.resume((run_id,))  # many may have waited for the same provider

    def _seeks_no_more(self, run_id: str) -> None:
        self._seeking.discard(run_id)
        self.directory.watch.drop(run_id)


def _started_trace(events: Sequence[EventEnvelope]) -> TraceContext | None:
    return next((event.trace for event in events if event.event_type == "run.started"), None)
