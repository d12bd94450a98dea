"""What an inbox holds: what of it is accepted at once, and what waits for its turn.

Order is the guarantee. Records of the inbox (`Intake.take`):
 1. each is decided on, in the order of the inbox: a command waits, what is sent to a run whose command waits
    goes behind it, a request to an open run and a dead letter are accepted, all else is passed over,
 2. what is accepted is committed, in one commit (`decisions`); what is passed over for something that its run
    says has happened, and that is still on its way to the log, is judged anew should the log refuse it,
 3. in one go, what waits is put into the state and the inbox counts as read so far: the state never says that
    a record was read which is neither decided on nor waiting in it.
What waits is taken up in its turns (`turns`), which never happens at the same time. Commands that are to
wait, with nothing before them but such, wait for nothing: they need no commit, and what is being taken up
does not concern them. Those that may begin at once are taken up in the same go.

What this worker cannot take and another one may is parked (`keeping`). Once the agent type has grown
(`forwarding`), commands are handed on instead; so is what comes in for runs that are not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from noesium_stream.errors import NoesiumError
from noesium_stream.event.calls import COMMANDS
from noesium_stream.event.standard import RunCancelRequested
from noesium_stream.log.headers import CE_TYPE
from noesium_stream.log.record import Record
from noesium_stream.worker.decisions import Accepted, DecidingRuns, Decisions
from noesium_stream.worker.fairness import fairness_key
from noesium_stream.worker.inbox import Unready, Verdict
from noesium_stream.worker.keeping import Keeping
from noesium_stream.worker.kept import KeptRequests
from noesium_stream.worker.parking import Parking
from noesium_stream.worker.slots import Holder, Slots
from noesium_stream.worker.state import PartitionState
from noesium_stream.worker.turns import Turns, TurnsOwner
from noesium_stream.worker.waiting import Waiting

AT_ONCE: Final = 256
"""Records that were left behind, and are decided on in one commit at most."""

_CANCEL: Final = RunCancelRequested.TYPE.encode()


class IntakeRuns(DecidingRuns, Protocol):
    """What it needs of the partition's open runs."""

    def answered(self, position: int) -> None:
        """All records of the inbox below `position` have been looked at."""


class Intake:
    """The intake of one partition, from its acquisition until `close`.

    Args:
        owner: of the partition.
        runs: its open runs.
        state: of the partition.
        parking: of the partition.
        slots: of the worker's agent.
        holder: what the partition has of them.
    """

    def __init__(
        self,
        owner: TurnsOwner,
        runs: IntakeRuns,
        state: PartitionState,
        parking: Parking,
        slots: Slots,
        holder: Holder,
    ) -> None:
        self._runs = runs
        self._state = state
        self._parking = parking
        self._holder = holder
        self._waiting = Waiting(state, owner.inbox, owner.partition, owner.log.decoder)
        self._decisions = decisions = Decisions(owner, runs, state, parking, holder)
        self._keeping = keeping = Keeping(owner, state, parking, decisions)
        self._turns = Turns(owner, state, self._waiting, parking, decisions, keeping, slots, holder)
        self._slots = slots
        holder.wake.set()

    @property
    def kept(self) -> KeptRequests:
        """What is parked."""
        return self._keeping.requests

    def open(self) -> None:
        """Begin to take up what waits."""
        self._turns.open()

    def shut(self) -> None:
        """Nothing is decided on any more: runs that are read back may not come back now."""
        self._decisions.closed = True

    async def close(self) -> None:
        """Nothing is taken, or taken up, any more."""
        self.shut()
        await self._turns.close()
        self._slots.leave(self._holder)

    async def take(self, records: Sequence[Record]) -> None:
        """Deal with the next records of the inbox; those that were dealt with before are passed over.

        Raises what the commit raised, and `LogClosedError` where the intake was closed.
        """
        runs = {record.key for record in records}
        decisions = self._decisions
        with self._parking.staying(runs):
            while True:
                await self._parking.bring_back(runs)
                async with decisions.turn:
                    decisions.require_open()
                    records = records[self._take_new(records) :]
                    if not records:
                        return
                    await decisions.nothing_under_way()
                    decisions.require_open()
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
                    self._decisions.follow(accepted)

    def _take_new(self, records: Sequence[Record]) -> int:
        """Let the first ones wait that are commands of runs that nobody knows, and begin those that may.

        Return how many they are, with what was dealt with before.
        """
        if self._decisions.forwarding.grown:
            return 0
        waits, count = _Waits(self._state, self._waiting), 0
        for record in records:
            if self._is_new(record):
                if self._decisions.judged(record, waits) is not Verdict.START:
                    break
                waits.put(record, fairness_key(record.envelope))
                record.release()
            count += 1
        if count:
            self._read(records[count - 1], waits)
            self._runs.answered(self._state.manifest.position)
            if waits.new:
                self._turns.take_up()
        return count

    async def _take(self, records: Sequence[Record]) -> None:
        accepted, waits = await self._decide_all([record for record in records if self._is_new(record)])
        self._read(records[-1], waits)
        self._decisions.follow(accepted)
        self._runs.answered(self._state.manifest.position)
        if waits.new or (self._decisions.forwarding.grown and len(self._waiting)):
            self._holder.wake.set()

    def _is_new(self, record: Record) -> bool:
        state = self._state
        return record.offset >= state.manifest.position and not state.is_decided(record.offset)

    def _read(self, last: Record, waits: _Waits) -> None:
        """What is to wait does, and the inbox is read up to this one; in one go."""
        for record, fair in waits.new:
            self._waiting.put(record, fair)
        if last.offset >= self._state.manifest.position:
            self._state.read_to(last.offset + 1, last)

    async def _decide_all(self, records: Sequence[Record]) -> tuple[Accepted, _Waits]:
        decisions = self._decisions
        accepted, waits = Accepted(), _Waits(self._state, self._waiting)
        while True:
            await decisions.forwarding.prepare(records)
            await decisions.outcomes_known({record.key for record in records})
            decisions.require_open()
            for record in records:
                self._decide(record, accepted, waits)
            await decisions.commit(accepted)
            accepted.outgoing = []
            records = await decisions.doubted(accepted)
            if not records:
                return accepted, waits

    def _decide(self, record: Record, accepted: Accepted, waits: _Waits) -> None:
        decisions, keeping = self._decisions, self._keeping
        verdict = decisions.judged(record, waits)
        behind = keeping.is_behind(record, verdict, waits, record.key in waits.parked)
        if isinstance(verdict, NoesiumError):
            decisions.refuse(record, verdict, accepted)
        elif verdict is Verdict.OUTGROWN:
            decisions.outgrow(record, accepted)
        elif behind and record.envelope.event_type == RunCancelRequested.TYPE:
            keeping.withdraw(record, accepted)
        elif isinstance(verdict, Unready) and self._state.has_ended(record.key):
            self._state.pass_over(record.offset)  # whatever it is, it comes too late
        elif isinstance(verdict, Unready) or behind:
            waits.parked |= keeping.park(record, verdict, accepted)
        elif decisions.goes_on(record.key, verdict, waits):
            accepted.outgoing += decisions.forwarding.forwarded(record)
        elif verdict is Verdict.START:
            waits.put(record, fairness_key(record.envelope))
        elif verdict is Verdict.DELIVER:
            decisions.deliver(record, accepted)
        elif waits.command_of(record.key) and record.envelope.event_type not in COMMANDS:
            waits.put(record, None)
        else:
            decisions.pass_over(record, accepted)
        record.release()


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


def _until_cancelled(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cut where a run is cancelled of which something comes before: what that is has to be known by then."""
    first, runs = 0, set[str]()
    for at, record in enumerate(records):
        if record.key in runs and record.header(CE_TYPE) == _CANCEL:
            yield records[first:at]
            first, runs = at, set()
        runs.add(record.key)
    yield records[first:]
