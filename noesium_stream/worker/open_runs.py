"""The open runs of a partition: they begin, go on, come to wait, are ended from outside, and end.

One that is loaded has a session, and a task once it is at work; the others are parked (`parking`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from noesium_stream.clock import Clock
from noesium_stream.errors import CheckpointError, LogUnavailableError, MigrationError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import RunDeadlinePassed
from noesium_stream.kernel import Provider
from noesium_stream.kernel.stray import failure_of_code
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.log.record import Record
from noesium_stream.worker.beginning import first_records
from noesium_stream.worker.directory import Directory
from noesium_stream.worker.grace import let_calls_end
from noesium_stream.worker.leaving import go_on, leave
from noesium_stream.worker.parking import Parking
from noesium_stream.worker.releases import Releases, asked_of
from noesium_stream.worker.reports import Reports, RunReports
from noesium_stream.worker.restore import read_runs
from noesium_stream.worker.runner import run_to_end
from noesium_stream.worker.session import RunSession
from noesium_stream.worker.slots import Holder
from noesium_stream.worker.starting import Starting
from noesium_stream.worker.state import PartitionState
from noesium_stream.worker.state_keeper import StateKeeper
from noesium_stream.worker.submission import Submission
from noesium_stream.worker.timers import Timers
from noesium_stream.worker.unrecorded import Unrecorded
from noesium_stream.worker.writing import Writing


class RunsOwner(Protocol):
    """Whose partition it is."""

    log: EventLog
    clock: Clock
    agent_ref: AgentRef
    partition: int
    inbox: str
    journal: str
    tell: Callable[[str], None]


class OpenRuns:
    """The open runs of one partition, from `open` to `give_up`, and again.

    Args:
        owner: of the partition.
        releases: what the worker carries of the agent.
        writing: what writes for the partition.
        keeper: of its state.
        directory: of other agents.
        reports: for calls that outlast the ownership.
        on_failure: told what ends the worker.

    Attributes:
        loaded: those in memory by id.
    """

    def __init__(
        self,
        owner: RunsOwner,
        releases: Releases,
        writing: Writing,
        keeper: StateKeeper,
        directory: Directory,
        reports: Reports,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.loaded: dict[str, RunSession] = {}
        self.clock: Clock = owner.clock
        self.agent_ref: AgentRef = owner.agent_ref
        self.partition = owner.partition
        self.journal = owner.journal
        self.tell = owner.tell
        self._log = owner.log
        self._inbox = owner.inbox
        self._releases = releases
        self._progress = releases.newest.agent.context.progress
        self._writing = writing
        self._keeper = keeper
        self._directory = directory
        self._reports = reports
        self._on_failure = on_failure
        self._starting = Starting(self.loaded, self._begin_task, self._part_of)
        self._timers: Timers | None = None
        self._parking: Parking | None = None
        self._holder: Holder | None = None
        self._unrecorded = Unrecorded()
        self._awaited: dict[str, int] = {}

    # -- taken and given up --------------------------------------------------------------------------

    def open(self, parking: Parking, timers: Timers, holder: Holder) -> None:
        """The partition is owned: these are its parts."""
        self._parking, self._timers, self._holder = parking, timers, holder

    def resume(self, state: PartitionState, awaited: dict[str, int]) -> None:
        """Let the open runs go on, a few at a time; those that rest wait on as they did.

        Args:
            state: of the partition.
            awaited: runs that people have answered in the inbox, and where: not before that is accepted.
        """
        parking, timers, holder = self._parking, self._timers, self._holder
        if parking is None or timers is None or holder is None:
            raise ValueError("runs are resumed once they are opened")
        self._awaited = awaited
        parking.adopt(state.open)
        unrecorded = self._unrecorded.runs()
        holder.resume(run_id for run_id in state.open if run_id in unrecorded)
        for run_id, run in state.open.items():
            if run.deadline_ms is not None:
                timers.set(run_id, run.deadline_ms)
            if run_id in awaited or run_id in unrecorded:
                continue
            if not run.rests:
                holder.resume((run_id,))
            elif run.due_ms is not None:
                timers.set(run_id, run.due_ms)

    async def wake_none(self) -> None:
        """No deadline wakes a run any more, and none is parked or read back."""
        if self._timers is not None:
            await self._timers.close()
            self._timers = None
        if self._parking is not None:
            await self._parking.close()
            self._parking = None

    async def begin_none(self) -> None:
        """None begins any more."""
        self._holder = None
        await self._starting.close()

    async def give_up(self, grace_s: float) -> list[tuple[RunSession, RunReports]]:
        """End what is under way here; return the sessions, and who reports what they could not record.

        `grace_s` is how long calls outside are waited for, in seconds.
        """
        sessions = self.loaded.values()
        await let_calls_end(
            [session.activity for session in sessions], grace_s, self._writing.lost, self._progress
        )
        tasks = [session.task for session in sessions if session.task is not None]
        heirs = [(session, self._reports.of(session, self._inbox)) for session in sessions]
        for session, heir in heirs:
            session.activity.heir = heir
            self._unrecorded.keep(session.history)
            session.flush()
            session.close()  # first: a run that is being cancelled would wait for a log that may be away
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.loaded.clear()
        return heirs

    # -- at work -------------------------------------------------------------------------------------

    def lacks(self, command: EventEnvelope) -> str | None:
        """See `DecidingRuns.lacks`."""
        return None if self._releases.beginning(command) is not None else asked_of(command)

    def begin(self, record: Record) -> tuple[RunSession, list[Outgoing]]:
        """See `DecidingRuns.begin`."""
        newest = self._releases.newest
        release = self._releases.beginning(record.envelope) or newest
        session, first, deadline_ms = first_records(self, release, newest.agent.agent_type, record)
        self.loaded[session.run_id] = session
        if deadline_ms is not None and self._timers is not None:
            self._timers.set(session.run_id, deadline_ms)
        return session, first

    def start(self, session: RunSession, *, ahead: bool = False) -> None:
        """See `DecidingRuns.start`."""
        if session.task is not None:
            return  # it is ending already: its deadline has passed
        if self._holder is not None:
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
        go_on(session, release.graph)
        try:
            ended = await run_to_end(release.agent, session, release.graph)
        except MigrationError as error:
            session.begun, session.task = False, None
            self._rests(session.run_id)
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
            self.loaded.pop(session.run_id, None)
            self._rests(session.run_id)
            if self._timers is not None:
                self._timers.forget(session.run_id)
            self._writing.forget(session.run_id)

    def _part_of(self, number: int) -> int:
        return self._holder.part_of(number) if self._holder is not None else number

    def _leave(self, session: RunSession, why: str) -> None:
        """A run that this worker cannot go on with waits for one that can."""
        self._progress(leave(session, self._releases, why))

    def _rests(self, run_id: str) -> None:
        if self._holder is not None:
            self._holder.rests(run_id)

    # -- woken and ended from outside ----------------------------------------------------------------

    def deliver(self, session: RunSession) -> None:
        """See `DecidingRuns.deliver`."""
        session.held = False
        self._wake(session)
        self._stop(session)

    def answered(self, position: int) -> None:
        """See `IntakeRuns.answered`: starts the runs whose answers lay there when it was acquired."""
        for run_id in [run_id for run_id, offset in self._awaited.items() if offset < position]:
            del self._awaited[run_id]
            session = self.loaded.get(run_id)
            if session is not None and session.task is None:
                self.start(session)
            elif session is None and self._holder is not None:
                self._holder.resume((run_id,))  # what was no answer has not brought it back

    def due(self, run_id: str) -> None:
        """A deadline of this run has passed: whoever waits for it looks again."""
        session = self.loaded.get(run_id)
        if session is not None:
            self._wake(session)
            if self._end_if_overdue(session):
                self._stop(session)
        elif self._parking is not None and run_id in self._parking:
            self._parking.load((run_id,))

    def _wake(self, session: RunSession) -> None:
        if self._holder is not None and session.task is not None:
            self._holder.works(session.command)
        session.wake()

    def _stop(self, session: RunSession) -> None:
        """Let a run end without a result, if it is to."""
        if session.history.stop is None or session.cancelling or session.run_id not in self.loaded:
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

    def _end_if_overdue(self, session: RunSession) -> bool:
        """Say that the deadline of a run has passed, if it has: from there on that is so for everybody."""
        history = session.history
        due_ms = history.deadline_ms
        ending = history.stop or history.compensation or history.terminal
        if due_ms is None or ending is not None or self.clock.now_ms() < due_ms:
            return False
        self.submit([session.note(RunDeadlinePassed(run_id=session.run_id, deadline_ms=due_ms))])
        return True

    # -- out of memory and back ----------------------------------------------------------------------

    def parked(self, run_id: str) -> None:
        """See `ParkingOwner.parked`."""
        due_ms = self._timers.next_of(run_id) if self._timers is not None else None
        self._keeper.state.rests(run_id, due_ms)
        self._rests(run_id)

    async def read_runs(self, run_ids: Collection[str]) -> dict[str, list[Record]]:
        """See `ParkingOwner.read_runs`."""
        known = self._keeper.state.open
        runs = {run_id: known[run_id] for run_id in run_ids}
        while True:
            try:
                return await read_runs(self._log, self.journal, self.partition, runs)
            except LogUnavailableError as error:
                await self._directory.wait_for_log(error)

    def bring_back(self, run_id: str, records: Sequence[Record]) -> RunSession:
        """See `ParkingOwner.bring_back`."""
        written = self._writing.written(run_id)
        if not records or written != len(records):
            raise CheckpointError(
                f"{self.journal}/{self.partition}: run {run_id} has {len(records)} records there, and "
                f"{written} were written.",
                hint="The journal was changed from outside or lost data; restore it before you go on.",
            )
        self._keeper.state.stirs(run_id)
        session = self._restored(records)
        self._unrecorded.record(session)
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

    def _restored(self, records: Sequence[Record]) -> RunSession:
        events = [record.envelope for record in records]
        session = RunSession(self, events[0], _started_trace(events))
        for event in events:
            session.replay(event)
        self.loaded[session.run_id] = session
        return session

    # -- SessionOwner --------------------------------------------------------------------------------

    async def assure(self) -> None:
        """See `SessionOwner.assure`."""
        await self._writing.assure()

    def owned(self) -> bool:
        """See `SessionOwner.owned`."""
        return self._writing.owned()

    def waits(self, session: RunSession, due_ms: int | None) -> None:
        """See `SessionOwner.waits`."""
        if due_ms is not None and self._timers is not None:
            self._timers.set(session.run_id, due_ms)
        if self._parking is not None:
            self._parking.waits(session, due_ms)
        if session.activity.only_waits:
            self._rests(session.run_id)

    def submit(self, records: list[Outgoing]) -> Submission:
        """See `SessionOwner.submit`."""
        return self._writing.submit(records)

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """See `SessionOwner.check`."""
        self._log.catalogue.check(event.event_type(), event.event_version(), payload)

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
