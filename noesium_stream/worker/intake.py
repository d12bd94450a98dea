"""From the inbox to the journal: what is accepted at once, and what waits for its turn.

Order is the guarantee. Records of the inbox (`Intake.take`):
 1. each is decided on, in the order of the inbox: a command waits, what is sent to a run whose command waits
    goes behind it, a request to an open run and a dead letter are accepted, all else is passed over,
 2. what is accepted is committed, in one commit,
 3. in one go, what waits is put into the state and the inbox counts as read so far: the state never says that
    a record was read which is neither decided on nor waiting in it.
Commands whose turn it is (`Intake._admit`), when there are slots, and none before open runs that go on:
 1. picked, with what waits behind each,
 2. committed: copies and `run.started` of all, in one commit; folding it takes them out of what waits,
 3. begun.
The two never happen at the same time.

What this worker cannot take and another one may is parked (`kept`), what comes in for its run with it. An
owner begins with a look at what is parked.

A command that has waited for half of what an inbox keeps is accepted out of turn, so that the inbox need not
keep it any more; its run begins when there is a slot.

Once the agent type has grown (`forwarding`), commands are handed on instead, those that wait first in their
turns; so is what comes in for runs that are not known here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CorruptRecordError,
    EventValidationError,
    LogClosedError,
    NoesiumError,
    RecordTooLargeError,
)
from noesium_stream.event.calls import COMMANDS
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.standard import RunCancelRequested
from noesium_stream.event.standard.request import BEHIND
from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.log.headers import CE_TYPE, SOURCE
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.record import Record
from noesium_stream.worker.fairness import fairness_key
from noesium_stream.worker.forwarding import Forwarding
from noesium_stream.worker.inbox import Unready, Verdict, dead_letter, judge, unknown_here
from noesium_stream.worker.kept import (
    HEADER_BYTES,
    KeptRequests,
    is_keepable,
    may_be_command,
    parked,
    resumed,
)
from noesium_stream.worker.parking import Parking
from noesium_stream.worker.session import RunSession
from noesium_stream.worker.slots import Slots
from noesium_stream.worker.state import PartitionState
from noesium_stream.worker.submission import Submission
from noesium_stream.worker.waiting import Waiting

AT_ONCE: Final = 256
"""Commands that are taken up in one commit at most."""

RECOUNT_S: Final = 5.0

PARKED_AT_ONCE: Final = 16
"""Runs whose parked requests are looked at in one commit: these may be large."""

_CANCEL: Final = RunCancelRequested.TYPE.encode()

_Judgement = Verdict | NoesiumError | Unready


class IntakeOwner(Protocol):
    """What it needs of its partition's owner."""

    clock: Clock
    agent_ref: AgentRef
    inbox: str
    journal: str
    partition: int
    generation: int
    log: EventLog

    async def open_next(self, partitions: int) -> None:
        """Return when the inbox of the next generation is there."""

    def submit(self, records: list[Outgoing]) -> Submission:
        """Queue records for the next commit of the partition."""

    def tell(self, line: str) -> None:
        """Say what went wrong to those who watch the worker."""

    def lacks(self, command: EventEnvelope) -> str | None:
        """The version that a command asks for and that is not carried here; None: it can begin."""

    def begin(self, record: Record) -> tuple[RunSession, list[Outgoing]]:
        """Make the session of a command's run; return it and the first records of its journal.

        Raises:
            EventValidationError: no run can begin with it; nothing has been changed.
        """

    def start(self, session: RunSession) -> None:
        """Let its task begin, now or soon."""

    def deliver(self, session: RunSession) -> None:
        """Tell a run of what was accepted for it."""

    def answered(self, position: int) -> None:
        """All records of the inbox below `position` have been looked at."""

    def fell_out(self, error: Exception) -> None:
        """Something went wrong that ends the intake, or the state cannot be used any more."""


class _Accepted:
    """What one commit is to accept, and what follows from it."""

    def __init__(self) -> None:
        self.outgoing: list[Outgoing] = []
        self.begun: dict[str, RunSession] = {}
        self.touched: dict[str, RunSession] = {}
        self.told: list[str] = []


class Intake:
    """The intake of one partition, from its acquisition until `close`.

    Args:
        owner: of the partition.
        runs: its loaded runs by id.
        state: of the partition.
        parking: of the partition.
        slots: of the worker's agent.
    """

    def __init__(
        self,
        owner: IntakeOwner,
        runs: dict[str, RunSession],
        state: PartitionState,
        parking: Parking,
        slots: Slots,
    ) -> None:
        self._owner = owner
        self._runs = runs
        self._state = state
        self._parking = parking
        self._slots = slots
        self._holder = slots.join()
        self._waiting = Waiting(state, owner.inbox, owner.partition, owner.log.decoder)
        self._forwarding = Forwarding(owner, state.manifest.successor)
        self.kept = KeptRequests(owner, state)
        self._resuming: deque[str] = deque()
        self._turn = asyncio.Lock()
        kept_ms = owner.log.topology.spec(owner.inbox).retention_ms
        self._patience_ms = None if kept_ms is None else kept_ms // 2
        self._holder.wake.set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def open(self) -> None:
        """Begin to take up what waits."""
        self._task = asyncio.create_task(self._work(), name="take up commands")

    def shut(self) -> None:
        """Nothing is decided on any more: runs that are read back may not come back now."""
        self._closed = True

    async def close(self) -> None:
        """Nothing is taken, or taken up, any more."""
        self.shut()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait(
                (self._task,)
            )  # not the task itself: its cancellation is not that of who waits
        self._slots.leave(self._holder)

    def resume(self, run_ids: Iterable[str]) -> None:
        """Let parked runs go on when there are slots."""
        self._resuming.extend(run_ids)
        self._holder.wake.set()

    # -- slots ---------------------------------------------------------------------------------------

    def works(self, run_id: str) -> None:
        """A run works, whether there was a slot or not."""
        self._holder.working.add(run_id)

    def rests(self, run_id: str) -> None:
        """A run only waits, or has ended."""
        if run_id in self._holder.working:
            self._holder.working.discard(run_id)
            self._slots.freed()

    def _recount(self) -> None:
        """What waits since one of its tasks has ended did not say so."""
        for run_id in list(self._holder.working):
            session = self._runs.get(run_id)
            if session is None or (session.begun and session.only_waits()):
                self.rests(run_id)

    # -- what comes in -------------------------------------------------------------------------------

    async def take(self, records: Sequence[Record]) -> None:
        """Deal with the next records of the inbox; those that were dealt with before are passed over.

        Raises what the commit raised, and `LogClosedError` where the intake was closed.
        """
        runs = {record.key for record in records}
        with self._parking.staying(runs):
            while True:
                await self._parking.bring_back(runs)
                async with self._turn:
                    if self._closed:
                        raise LogClosedError("the partition was given up meanwhile")
                    if not any(run_id in self._parking for run_id in runs):
                        for part in _until_cancelled(records):
                            await self._take(part)
                        return

    async def take_left_behind(self) -> None:
        """Deal with what waits behind commands that are not here any more; before anything else is taken.

        This state is older than the journal: somebody else has taken up the commands meanwhile, and may not
        have read what came behind them.
        """
        while left := self._waiting.left_behind(AT_ONCE):
            runs = {record.key for record in left}
            with self._parking.staying(runs):
                await self._parking.bring_back(runs)
                for part in _until_cancelled(left):
                    accepted, waits = await self._decide_all(part)
                    for record in part:
                        self._waiting.drop(record.offset)
                    for record, fair in waits.new:
                        self._waiting.put(record, fair)
                    self._follow(accepted)

    async def _take(self, records: Sequence[Record]) -> None:
        position = self._state.manifest.position
        new = [
            record
            for record in records
            if record.offset >= position and not self._state.is_decided(record.offset)
        ]
        accepted, waits = await self._decide_all(new)
        for record, fair in waits.new:
            self._waiting.put(record, fair)
        self._state.read_to(max(position, records[-1].offset + 1))
        self._follow(accepted)
        self._owner.answered(self._state.manifest.position)
        if waits.new or (self._forwarding.grown and len(self._waiting)):
            self._holder.wake.set()

    async def _decide_all(self, records: Sequence[Record]) -> tuple[_Accepted, _Waits]:
        await self._forwarding.prepare(records)
        await self._outcomes_known({record.key for record in records})
        if self._closed:  # its runs are forgotten: what is for them would be passed over
            raise LogClosedError("the partition was given up meanwhile")
        accepted, waits = _Accepted(), _Waits(self._state, self._waiting)
        for record in records:
            self._decide(record, accepted, waits)
        await self._commit(accepted)
        return accepted, waits

    async def _outcomes_known(self, run_ids: Iterable[str]) -> None:
        """Wait for outcomes that are on their way to the log.

        Nothing may lie behind one; and a run whose outcome does not get there takes what comes in.
        """
        while ending := [s for run_id in run_ids if (s := self._runs.get(run_id)) is not None and s.ending]:
            await ending[0].outcome_known()

    def _decide(self, record: Record, accepted: _Accepted, waits: _Waits) -> None:
        verdict = self._judged(record, waits)
        behind = self._is_behind_parked(record, verdict, waits)
        if isinstance(verdict, NoesiumError):
            self._refuse(record, verdict, accepted)
        elif verdict is Verdict.OUTGROWN:
            self._outgrow(record, accepted)
        elif behind and record.envelope.event_type == RunCancelRequested.TYPE:
            self._withdraw(record, accepted)
        elif isinstance(verdict, Unready) and self._state.has_ended(record.key):
            self._state.pass_over(record.offset)  # whatever it is, it comes too late
        elif isinstance(verdict, Unready) or behind:
            waits.parked |= self._park(record, verdict, accepted)
        elif self._goes_on(record.key, verdict, waits):
            accepted.outgoing += self._forwarding.forwarded(record)
        elif verdict is Verdict.START:
            waits.put(record, fairness_key(record.envelope))
        elif verdict is Verdict.DELIVER:
            self._accept(record, self._runs[record.key], accepted)
        elif waits.command_of(record.key) and record.envelope.event_type not in COMMANDS:
            waits.put(record, None)
        else:
            self._state.pass_over(record.offset)
        record.release()

    def _outgrow(self, record: Record, accepted: _Accepted) -> None:
        copies = self._forwarding.outgrown(record)
        if isinstance(copies, NoesiumError):
            self._refuse(record, copies, accepted)
        elif copies:
            accepted.outgoing += copies
        else:
            self._state.pass_over(record.offset)

    def _goes_on(self, run_id: str, verdict: _Judgement, known: _Waits | PartitionState) -> bool:
        """Whether it is for the next generation: a new command, or for a run that is not known here."""
        if not self._forwarding.grown or verdict is Verdict.DELIVER:
            return False
        return verdict is Verdict.START or not (run_id in self._runs or run_id in known)

    def _judged(self, record: Record, known: _Waits | PartitionState) -> _Judgement:
        try:
            verdict = judge(record, self._owner.agent_ref.agent_type, self._runs, known)
        except CorruptRecordError as error:
            return unknown_here(record, error) or error
        if verdict is not Verdict.START or self._forwarding.grown:
            return verdict  # who is handed a command asks anew
        lacking = self._owner.lacks(record.envelope)
        return verdict if lacking is None else Unready(f"it waits for a worker that carries {lacking}")

    def _is_behind_parked(self, record: Record, verdict: _Judgement, waits: _Waits) -> bool:
        """Whether it was sent to a run whose command is parked."""
        run_id = record.key
        if verdict is not Verdict.PASS or not (run_id in waits.parked or run_id in self.kept):
            return False
        known = run_id in self._runs or run_id in waits
        if known or record.envelope.event_type in COMMANDS:
            return False
        # Once there is a next generation, the run may be at work there, whatever else of it is parked here.
        return not self._forwarding.grown or run_id in waits.parked or self.kept.may_have_command(run_id)

    def _park(self, record: Record, verdict: _Judgement, accepted: _Accepted) -> set[str]:
        """Keep a record; the run that what follows it waits with, if it has to.

        What cannot be kept is a dead letter.
        """
        if not is_keepable(record):
            self._refuse(
                record, RecordTooLargeError(f"its headers have more than {HEADER_BYTES} bytes"), accepted
            )
            return set()
        reason = verdict.reason if isinstance(verdict, Unready) else BEHIND
        accepted.outgoing += parked(self._owner, record, reason)
        accepted.told.append(f"{_place(record)} is parked: {reason}")
        return set() if self._forwarding.grown and not may_be_command(record) else {record.key}

    def _withdraw(self, cancel: Record, accepted: _Accepted) -> None:
        """Nobody wants what is parked for a run: it begins and is cancelled, or is a dead letter."""
        at = len(accepted.outgoing)
        offsets: list[int] = []
        refused: str | None = None
        for kept in self.kept.of(cancel.key):
            offsets += kept.offsets
            verdict: _Judgement
            try:  # whatever version it asks for
                verdict = judge(kept.record, self._owner.agent_ref.agent_type, self._runs, self._state)
            except CorruptRecordError as error:
                verdict = EventValidationError("value", f"the run was cancelled, and {error.cause.message}")
            if isinstance(verdict, NoesiumError):
                refused = verdict.message
            self._settle(kept.record, verdict, accepted, kept.origin)
        accepted.outgoing.insert(at, resumed(self._owner, cancel.key, offsets, refused))
        if not self._settle(cancel, self._judged(cancel, self._state), accepted):
            self._state.pass_over(cancel.offset)

    def _accept(self, record: Record, session: RunSession, accepted: _Accepted) -> None:
        accepted.outgoing.append(session.accept(record.envelope, record))
        accepted.touched[session.run_id] = session

    def _refuse(
        self, record: Record, error: NoesiumError, accepted: _Accepted, origin: Position | None = None
    ) -> None:
        topic_id = self._state.manifest.inbox_id
        accepted.outgoing += dead_letter(self._owner, record, error, origin, topic_id)
        accepted.told.append(f"{_place(origin or record)} is a dead letter: {error.message}")

    async def _commit(self, accepted: _Accepted, fair: str | None = None) -> None:
        """All in one commit; its last copy says how far the inbox is decided on."""
        if not accepted.outgoing:
            return
        copies = [n for n, record in enumerate(accepted.outgoing) if _is_copy(record, self._owner.journal)]
        if copies:
            copy = accepted.outgoing[copies[-1]]
            marked = copy._replace(headers=(*copy.headers, self._state.mark(fair)))
            accepted.outgoing[copies[-1]] = marked
        await self._owner.submit(accepted.outgoing).wait()

    def _follow(self, accepted: _Accepted) -> None:
        for line in accepted.told:
            self._owner.tell(line)
        for run_id, session in accepted.begun.items():
            if self._runs.get(run_id) is session:  # else the partition was lost again by now
                self._owner.start(session)
        for session in accepted.touched.values():
            self._owner.deliver(session)

    # -- what waits ----------------------------------------------------------------------------------

    async def _work(self) -> None:
        wake = self._holder.wake
        try:
            await self._take_parked()
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(RECOUNT_S):
                        await wake.wait()
                wake.clear()
                self._recount()
                while await self._admit():
                    pass
        except NO_LONGER_OWNER:
            return
        except Exception as error:
            self._owner.fell_out(error)

    async def _admit(self) -> bool:
        """Let some begin; whether there may be more."""
        await self._admit_aged()
        if self._forwarding.grown and len(self._waiting):
            return await self._hand_on()
        self._holder.hungry = bool(self._resuming or len(self._waiting))
        room = min(AT_ONCE, self._slots.room(self._holder)) if self._holder.hungry else 0
        if not room:
            return False
        if self._resuming:
            some = [self._resuming.popleft() for _ in range(min(room, len(self._resuming)))]
            await asyncio.wait((self._parking.load(some),))
            return True
        async with self._turn:
            commands, last = self._waiting.next_ones(room)
            begun = await self._take_up(commands, last)
        self._follow(begun)
        return bool(commands)

    async def _hand_on(self) -> bool:
        """What waits goes on to the next generation, in the turns in which it would have begun."""
        async with self._turn:
            commands, last = self._waiting.next_ones(AT_ONCE)
            self._follow(await self._take_up(commands, last))
        return bool(commands)

    async def _admit_aged(self) -> None:
        if self._patience_ms is None:
            return
        before_ms = self._owner.clock.now_ms() - self._patience_ms
        while self._waiting.older_than(before_ms, 1):
            async with self._turn:
                aged = await self._take_up(self._waiting.older_than(before_ms, AT_ONCE), None)
            self._begin_later(aged)

    def _begin_later(self, accepted: _Accepted) -> None:
        """What was taken up out of turn begins when there are slots; whose deadline has passed is ending."""
        if self._closed:
            return  # they go on with the next owner
        begun = {run_id: session for run_id, session in accepted.begun.items() if session.task is None}
        accepted.begun = {}
        for run_id, session in begun.items():
            session.close()
            self._runs.pop(run_id, None)
            self._holder.working.discard(run_id)
            accepted.touched.pop(run_id, None)
        self._parking.adopt(begun)
        self.resume(begun)
        self._follow(accepted)

    async def _take_up(self, commands: Sequence[Record], fair: str | None) -> _Accepted:
        accepted = _Accepted()
        await self._forwarding.prepare()
        for record in commands:
            verdict = self._judged(record, self._state)
            lacking = isinstance(verdict, Unready)
            if lacking:  # the owner before could begin it
                self._park(record, verdict, accepted)
            elif not self._settle(record, verdict, accepted):
                self._pass_over(record)
            elif record.key in self.kept:
                self._retry(record.key, accepted)
            for follower in self._waiting.behind(record.key):
                verdict = Verdict.PASS if lacking else self._judged(follower, self._state)
                if lacking or isinstance(verdict, Unready):
                    self._park(follower, verdict, accepted)
                elif not self._settle(follower, verdict, accepted):
                    self._pass_over(follower)
        await self._commit(accepted, fair)
        return accepted

    def _settle(
        self, record: Record, verdict: _Judgement, accepted: _Accepted, origin: Position | None = None
    ) -> bool:
        """Do what was decided on a record; False: it is passed over."""
        if isinstance(verdict, NoesiumError):
            self._refuse(record, verdict, accepted, origin)
        elif self._goes_on(record.key, verdict, self._state):
            accepted.outgoing += self._forwarding.forwarded(record)
        elif verdict is Verdict.START:
            self._begin(record, accepted, origin)
        elif verdict is Verdict.DELIVER:
            self._accept(record, self._runs[record.key], accepted)
        else:
            return False
        return True

    def _begin(self, record: Record, accepted: _Accepted, origin: Position | None) -> None:
        try:
            session, first = self._owner.begin(record)
        except EventValidationError as error:
            self._refuse(record, error, accepted, origin)
            return
        accepted.outgoing += first
        accepted.begun[session.run_id] = accepted.touched[session.run_id] = session
        self.works(session.run_id)

    # -- what is parked ------------------------------------------------------------------------------

    async def _take_parked(self) -> None:
        """Take what the owners before could not take, and this one can."""
        run_ids = self.kept.runs()
        for first in range(0, len(run_ids), PARKED_AT_ONCE):
            some = run_ids[first : first + PARKED_AT_ONCE]
            with self._parking.staying(some):
                self._begin_later(await self._retry_all(some))
            await asyncio.sleep(0)  # where nothing can be taken, nothing else gives way

    async def _retry_all(self, run_ids: Collection[str]) -> _Accepted:
        await self._forwarding.prepare()
        while True:
            await self._parking.bring_back(run_ids)
            async with self._turn:
                if self._closed:
                    raise LogClosedError("the partition was given up meanwhile")
                if any(run_id in self._parking for run_id in run_ids):
                    continue
                await self._outcomes_known(run_ids)
                accepted = _Accepted()
                for run_id in run_ids:
                    self._retry(run_id, accepted)
                await self._commit(accepted)
                return accepted

    def _retry(self, run_id: str, accepted: _Accepted) -> None:
        at = len(accepted.outgoing)
        offsets: list[int] = []
        stays = anew = False
        refused: str | None = None
        for kept in self.kept.of(run_id):
            verdict = self._judged(kept.record, self._state)
            reason = kept.reason
            if isinstance(verdict, Unready) and not self._state.has_ended(run_id):
                stays, reason = True, verdict.reason
            elif not (stays and verdict is Verdict.PASS and run_id not in self._state):
                if isinstance(verdict, NoesiumError):
                    refused = verdict.message
                self._settle(kept.record, verdict, accepted, kept.origin)
                offsets += kept.offsets
                continue
            anew = anew or reason != kept.reason  # and what follows it: they keep their order
            if anew:
                accepted.outgoing += parked(self._owner, kept.record, reason, kept.origin)
                offsets += kept.offsets
        if offsets:
            accepted.outgoing.insert(at, resumed(self._owner, run_id, offsets, refused))

    def _pass_over(self, record: Record) -> None:
        self._waiting.drop(record.offset)
        self._state.pass_over(record.offset)


class _Waits:
    """Which commands wait, those of the batch that is looked at among them; and which runs are known."""

    def __init__(self, state: PartitionState, waiting: Waiting) -> None:
        self._state = state
        self._waiting = waiting
        self._commands: set[str] = set()
        self.parked: set[str] = set()
        self.new: list[tuple[Record, str | None]] = []

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._state or self.command_of(run_id)

    def command_of(self, run_id: object) -> bool:
        return run_id in self._commands or run_id in self._waiting

    def put(self, record: Record, fair: str | None) -> None:
        self.new.append((record, fair))
        if fair is not None:
            self._commands.add(record.key)


def _is_copy(record: Outgoing, journal: str) -> bool:
    return record.topic == journal and any(name == SOURCE for name, _ in record.headers)


def _place(record: Record | Position) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"


def _until_cancelled(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cut where a run is cancelled of which something comes before: what that is has to be known by then."""
    first, runs = 0, set[str]()
    for at, record in enumerate(records):
        if record.key in runs and record.header(CE_TYPE) == _CANCEL:
            yield records[first:at]
            first, runs = at, set()
        runs.add(record.key)
    yield records[first:]
