"""What becomes of a request, and the one commit that says so for several of them.

A request begins a run, is delivered to an open one, is handed on to the next generation (`forwarding`), is a
dead letter, or is passed over. What is accepted is copied into the journal; the last copy of a commit says
how far the inbox is decided on.

Who decides holds `Decisions.turn`, and until what he decided is on the log: the next one is to judge by what
is there. Commands of runs that nobody knows are another matter (`turns`): they begin whatever becomes of what
was decided before, which lies in front of them on the log or, where it does not get there, neither do they.
So they are submitted one after the other, while others are under way (`send`); all else waits for those
(`alone`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CorruptRecordError,
    EventValidationError,
    LogClosedError,
    NoesiumError,
    RecordTooLargeError,
)
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.log.headers import SOURCE
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.record import Record
from noesium_stream.worker.forwarding import Forwarding
from noesium_stream.worker.inbox import Unready, Verdict, dead_letter, judge, unknown_here
from noesium_stream.worker.parking import Parking
from noesium_stream.worker.session import RunSession
from noesium_stream.worker.slots import Holder
from noesium_stream.worker.state import PartitionState
from noesium_stream.worker.submission import Submission

Judgement = Verdict | NoesiumError | Unready


class DecidingOwner(Protocol):
    """What it needs of its partition's owner."""

    clock: Clock
    agent_ref: AgentRef
    inbox: str
    journal: str
    partition: int
    generation: int
    log: EventLog

    async def open_next(self, partitions: int, *, told: bool) -> bool:
        """See `ForwardingOwner.open_next`."""

    def submit(self, records: list[Outgoing]) -> Submission:
        """Queue records for the next commit of the partition."""

    def tell(self, line: str) -> None:
        """Say what went wrong to those who watch the worker."""

    @property
    def writes(self) -> bool:
        """Whether what is submitted gets to the log, as far as is known."""


class DecidingRuns(Protocol):
    """What it needs of the partition's open runs; `loaded`: those that are in memory, by id."""

    loaded: dict[str, RunSession]

    def lacks(self, command: EventEnvelope) -> str | None:
        """The version that a command asks for and that is not carried here; None: it can begin."""

    def begin(self, record: Record) -> tuple[RunSession, list[Outgoing]]:
        """Make the session of a command's run; return it and the first records of its journal.

        Raises:
            EventValidationError: no run can begin with it; nothing has been changed.
        """

    def start(self, session: RunSession, *, ahead: bool = False) -> None:
        """Let its task begin, now or soon; `ahead` of those that wait for that."""

    def deliver(self, session: RunSession) -> None:
        """Tell a run of what was accepted for it."""


class Known(Protocol):
    """Which runs are known; or have a command that waits."""

    def __contains__(self, run_id: object) -> bool:
        """Whether this one is."""


class Accepted:
    """What one commit is to accept, and what follows from it.

    Attributes:
        outgoing: its records.
        begun, touched: the runs that begin, and those that hear of something.
        told: lines for people.
        ahead: runs that begin before others do.
        doubtful: what is passed over for something that may not be on the log yet, and when that is known.
    """

    def __init__(self) -> None:
        self.outgoing: list[Outgoing] = []
        self.begun: dict[str, RunSession] = {}
        self.touched: dict[str, RunSession] = {}
        self.told: list[str] = []
        self.ahead: set[str] = set()
        self.doubtful: list[tuple[Record, Submission]] = []


class Decisions:
    """What is decided on the requests of one partition, from its acquisition until it is shut.

    Args:
        owner: of the partition.
        runs: its open runs.
        state: of the partition.
        parking: of the partition.
        holder: of its slots.

    Attributes:
        turn: who decides holds it: one at a time. See `alone`.
        closed: nothing is decided on any more.
        forwarding: the way to the next generation.
    """

    def __init__(
        self,
        owner: DecidingOwner,
        runs: DecidingRuns,
        state: PartitionState,
        parking: Parking,
        holder: Holder,
    ) -> None:
        self.turn = asyncio.Lock()
        self.closed = False
        self.forwarding = Forwarding(owner, state.manifest.successor)
        self._owner = owner
        self._runs = runs
        self._state = state
        self._parking = parking
        self._holder = holder
        self._under_way: dict[Submission, None] = {}

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Decide while nothing else does, and nothing that was decided is under way."""
        async with self.turn:
            await self.nothing_under_way()
            yield

    async def nothing_under_way(self) -> None:
        """Return when what was decided is on the log, or will never be; who asks holds `turn`."""
        while self._under_way:
            await next(iter(self._under_way)).settled()

    @property
    def loaded(self) -> Mapping[str, RunSession]:
        """The runs that are in memory, by id."""
        return self._runs.loaded

    def require_open(self) -> None:
        """Raise `LogClosedError` where nothing is decided on any more: the runs are forgotten, and what is
        for them would be passed over; or what they say has happened is not on the log.
        """
        if self.closed or not self._owner.writes:
            raise LogClosedError("the partition was given up meanwhile")

    async def outcomes_known(self, run_ids: Iterable[str]) -> None:
        """Wait for outcomes that are on their way to the log.

        Nothing may lie behind one; and a run whose outcome does not get there takes what comes in.
        """
        while ending := [s for run_id in run_ids if (s := self.loaded.get(run_id)) is not None and s.ending]:
            await ending[0].outcome_known()

    # -- one request ---------------------------------------------------------------------------------

    def judged(self, record: Record, known: Known) -> Judgement:
        """What is to become of a record; `known`: runs that are open, have ended, or have a command."""
        try:
            verdict = judge(record, self._owner.agent_ref.agent_type, self.loaded, known)
        except CorruptRecordError as error:
            return unknown_here(record, error) or error
        if verdict is not Verdict.START or self.forwarding.grown:
            return verdict  # who is handed a command asks anew
        lacking = self._runs.lacks(record.envelope)
        return verdict if lacking is None else Unready(f"it waits for a worker that carries {lacking}")

    def judged_whatever_version(self, record: Record) -> Judgement:
        """The same of a command whose run nobody wants: it begins here to be cancelled."""
        try:
            return judge(record, self._owner.agent_ref.agent_type, self.loaded, self._state)
        except CorruptRecordError as error:
            return EventValidationError("value", f"the run was cancelled, and {error.cause.message}")

    def goes_on(self, run_id: str, verdict: Judgement, known: Known) -> bool:
        """Whether it is for the next generation: a new command, or for a run that is not known here."""
        if not self.forwarding.grown or verdict is Verdict.DELIVER:
            return False
        return verdict is Verdict.START or not (run_id in self.loaded or run_id in known)

    def settle(
        self, record: Record, verdict: Judgement, accepted: Accepted, origin: Position | None = None
    ) -> bool:
        """Do what was decided on a record; False: it is passed over.

        `origin` is where it came in, if that is not its own position.
        """
        if isinstance(verdict, NoesiumError):
            self.refuse(record, verdict, accepted, origin)
        elif self.goes_on(record.key, verdict, self._state):
            accepted.outgoing += self.forwarding.forwarded(record)
        elif verdict is Verdict.START:
            self._begin(record, accepted, origin)
        elif verdict is Verdict.DELIVER:
            self.deliver(record, accepted)
        else:
            return False
        return True

    def deliver(self, record: Record, accepted: Accepted) -> None:
        """Accept what is for an open run."""
        session = self.loaded[record.key]
        accepted.outgoing.append(session.accept(record.envelope, record))
        accepted.touched[session.run_id] = session

    def refuse(
        self, record: Record, error: NoesiumError, accepted: Accepted, origin: Position | None = None
    ) -> None:
        """Make a dead letter of it."""
        topic_id = self._state.manifest.inbox_id
        accepted.outgoing += dead_letter(self._owner, record, error, origin, topic_id)
        accepted.told.append(f"{place_of(origin or record)} is a dead letter: {error.message}")

    def pass_over(self, record: Record, accepted: Accepted) -> None:
        """It changes nothing, for what its run says has happened: not before that is on the log."""
        session = self.loaded.get(record.key)
        sent = session.under_way() if session is not None else None
        if sent is None:
            self._state.pass_over(record.offset)
        else:
            accepted.doubtful.append((record, sent))

    def outgrow(self, record: Record, accepted: Accepted) -> None:
        """Learn that the agent type has grown."""
        copies = self.forwarding.outgrown(record)
        if isinstance(copies, NoesiumError):
            self.refuse(record, copies, accepted)
        elif copies:
            accepted.outgoing += copies
        else:
            self._state.pass_over(record.offset)

    def _begin(self, record: Record, accepted: Accepted, origin: Position | None) -> None:
        try:
            session, first = self._runs.begin(record)
        except EventValidationError as error:
            self.refuse(record, error, accepted, origin)
            return
        accepted.outgoing += first
        accepted.begun[session.run_id] = accepted.touched[session.run_id] = session
        self._holder.works(session.command)

    # -- one commit ----------------------------------------------------------------------------------

    async def commit(self, accepted: Accepted, fair: str | None = None) -> None:
        """All in one commit; its last copy says how far the inbox is decided on.

        Args:
            accepted: what it has.
            fair: the fairness key of the command that was taken up last, if that was its turn.
        """
        if accepted.outgoing:
            await self._submit(accepted, fair).wait()

    def send(self, accepted: Accepted, fair: str | None, then: Callable[[Exception | None], None]) -> None:
        """The same, not waited for: `then` is told what became of it, or at once.

        Only of commands that begin, see above: nothing that was passed over may rest on it.
        """

        def ended(sent: Submission) -> None:
            self._under_way.pop(sent, None)
            then(sent.error)

        sent = self._submit(accepted, fair)
        self._under_way[sent] = None
        sent.on_end = ended
        if sent.ended:
            ended(sent)

    def _submit(self, accepted: Accepted, fair: str | None) -> Submission:
        copies = [n for n, record in enumerate(accepted.outgoing) if _is_copy(record, self._owner.journal)]
        if copies:
            copy = accepted.outgoing[copies[-1]]
            marked = copy._replace(headers=(*copy.headers, self._state.mark(fair)))
            accepted.outgoing[copies[-1]] = marked
        return self._owner.submit(accepted.outgoing)

    async def doubted(self, accepted: Accepted) -> list[Record]:
        """Pass over what is passed over for something that is on the log by now.

        Return what has to be judged anew: the log has refused what it was passed over for.

        Raises what that was lost by.
        """
        doubtful, accepted.doubtful = accepted.doubtful, []
        again: list[Record] = []
        for record, sent in doubtful:
            await sent.settled()
            if sent.error is None:
                self._state.pass_over(record.offset)
            elif isinstance(sent.error, EventValidationError | RecordTooLargeError):
                again.append(record)
            else:
                raise sent.error
        return again

    def follow(self, accepted: Accepted) -> None:
        """What follows from it, once it is on the log."""
        for line in accepted.told:
            self._owner.tell(line)
        for run_id, session in accepted.begun.items():
            if self.loaded.get(run_id) is session:  # else the partition was lost again by now
                self._runs.start(session, ahead=run_id in accepted.ahead)
        for session in accepted.touched.values():
            self._runs.deliver(session)

    def begin_later(self, accepted: Accepted) -> None:
        """The same; but what was taken up out of turn begins when there are slots, unless its deadline has
        passed, and it is ending.
        """
        if self.closed:
            return  # they go on with the next owner
        begun = {run_id: session for run_id, session in accepted.begun.items() if session.task is None}
        accepted.begun = {}
        for run_id, session in begun.items():
            session.close()
            self._runs.loaded.pop(run_id, None)
            self._holder.gives_way(run_id)
            accepted.touched.pop(run_id, None)
        self._parking.adopt(begun)
        self._holder.resume(begun)
        self.follow(accepted)


def place_of(record: Record | Position) -> str:
    """Where it lies, for people."""
    return f"{record.topic}/{record.partition}/{record.offset}"


def _is_copy(record: Outgoing, journal: str) -> bool:
    return record.topic == journal and any(name == SOURCE for name, _ in record.headers)
