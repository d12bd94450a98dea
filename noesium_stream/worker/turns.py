"""Commands that wait are taken up in their turns, and open runs go on, as slots become free.

Order is the guarantee. Commands whose turn it is, when there are slots, and none before open runs that go on:
 1. picked, with what waits behind each,
 2. committed: copies and `run.started` of all, in one commit; folding it takes them out of what waits; where
    more waits behind them than one commit should hold, it follows in others before anything else is decided,
 3. begun.
This and the taking of records from the inbox (`intake`) never happen at the same time (`Decisions.turn`).

Those that simply begin, with nothing behind them, are submitted and not waited for (`take_up`): who comes
meanwhile is taken up in the next commit, and not in the one after it. Until they are folded they are under
way (`waiting`), and all that is decided otherwise waits for them. So a command waits for the commit that is
being made and for its own, whatever is being taken up before it.

Where there are no slots, keys that have no run at work begin one beside them (`slots`). The first run of such
a key does not wait for those that have slots and are still to begin (`starting`).

A command that has waited for half of what an inbox keeps is accepted out of turn, so that the inbox need not
keep it any more; its run begins when there is a slot. Once the agent type has grown (`forwarding`), commands
are handed on instead, in the turns in which they would have begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.log.record import Record
from noesium_stream.worker.decisions import Accepted, DecidingOwner, Decisions
from noesium_stream.worker.inbox import Unready, Verdict
from noesium_stream.worker.keeping import Keeping
from noesium_stream.worker.parking import Parking
from noesium_stream.worker.slots import Holder, Slots
from noesium_stream.worker.state import PartitionState
from noesium_stream.worker.waiting import PICKED_BYTES, Turn, Waiting

AT_ONCE: Final = 256
"""Commands that are taken up in one commit at most."""

BEHIND_AT_ONCE: Final = 500
"""Of what waits behind commands, so much is in memory and in one commit at most."""

RECOUNT_S: Final = 5.0
RECOUNT_SOON_S: Final = 0.05
RECOUNT_EACH: Final = 16
"""Runs that wait and have not said so are looked for each so many times that something wakes the turns, and
so soon after it has; or now and then."""


class TurnsOwner(DecidingOwner, Protocol):
    """What it needs of its partition's owner."""

    def fell_out(self, error: Exception) -> None:
        """Something went wrong that ends the intake, or the state cannot be used any more."""


class Turns:
    """Takes up what waits in one partition, from `open` to `close`.

    Args:
        owner: of the partition.
        state: of the partition.
        waiting: its commands.
        parking: of the partition.
        decisions: of the partition.
        keeping: of the partition.
        slots: of the worker's agent.
        holder: what the partition has of them.
    """

    def __init__(
        self,
        owner: TurnsOwner,
        state: PartitionState,
        waiting: Waiting,
        parking: Parking,
        decisions: Decisions,
        keeping: Keeping,
        slots: Slots,
        holder: Holder,
    ) -> None:
        self._owner = owner
        self._state = state
        self._waiting = waiting
        self._parking = parking
        self._decisions = decisions
        self._keeping = keeping
        self._slots = slots
        self._holder = holder
        kept_ms = owner.log.topology.spec(owner.inbox).retention_ms
        self._patience_ms = None if kept_ms is None else kept_ms // 2
        self._task: asyncio.Task[None] | None = None
        self._ready = False
        self._other = False
        """Whose turn it is takes more than to begin."""
        self._none_beside: tuple[int, int] | None = None

    def open(self) -> None:
        """Begin to take up what waits."""
        self._task = asyncio.create_task(self._work(), name="take up commands")

    async def close(self) -> None:
        """Nothing is taken up any more."""
        self._ready = False
        if self._task is not None:
            self._task.cancel()
            # Not the task itself: its cancellation is not that of who waits.
            await asyncio.wait((self._task,))

    async def _work(self) -> None:
        wake, looks = self._holder.wake, 0
        try:
            await self._keeping.take_all()
            self._ready = True
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(RECOUNT_S if looks == 0 else RECOUNT_SOON_S):
                        await wake.wait()
                looks = (looks + 1) % RECOUNT_EACH if wake.is_set() else 0
                wake.clear()
                if looks == 0:
                    self._recount()
                while await self._admit():
                    pass
        except NO_LONGER_OWNER:
            return
        except Exception as error:
            self._decisions.closed = True  # what comes for a run that could not begin is not accepted
            self._owner.fell_out(error)

    def _recount(self) -> None:
        """What waits since one of its tasks has ended did not say so."""
        for run_id in list(self._holder.working):
            session = self._decisions.loaded.get(run_id)
            if session is None or (session.begun and session.only_waits()):
                self._holder.rests(run_id)

    async def _admit(self) -> bool:
        """Let some begin; whether there may be more."""
        await self._admit_aged()
        if self._decisions.forwarding.grown and len(self._waiting):
            return await self._hand_on()
        resuming = self._holder.resuming
        if resuming:
            self._holder.hungry = True
            room = min(AT_ONCE, self._slots.room(self._holder))
            some = [resuming.popleft() for _ in range(min(room, len(resuming)))]
            if some:
                await asyncio.wait((self._parking.load(some),))
            return bool(some)
        if not self._other:
            async with self._decisions.turn:
                self.take_up()
        return self._other and await self._admit_others()

    # -- what simply begins --------------------------------------------------------------------------

    def take_up(self) -> None:
        """Let commands begin that need nothing else, without waiting; who asks holds `Decisions.turn`."""
        holder = self._holder
        while self._ready and not (self._other or holder.resuming or self._decisions.forwarding.grown):
            self._decisions.require_open()
            holder.hungry = not self._waiting.idle
            turns, last = self._next()
            if not turns or not self._begin(turns, last):
                return

    def _next(self) -> tuple[list[Turn], str | None]:
        """Whose turn it is, and the key of the last one, if it is their turn and not beside others."""
        if not self._holder.hungry:
            return [], None
        room = min(AT_ONCE, self._slots.room(self._holder))
        if room:
            return self._waiting.next_ones(room)
        most = self._slots.beside()
        if not most:
            return [], None
        # Nobody stands beside those at work as long as nothing has come and none of their keys has gone.
        seen = self._waiting.changes, self._holder.gone
        if seen == self._none_beside:
            return [], None
        turns = self._waiting.next_beside(self._holder.busy, most)
        self._none_beside = None if turns else seen
        return turns, None

    def _begin(self, turns: Sequence[Turn], last: str | None) -> bool:
        """Submit those of them that simply begin, up to the first that does not; whether there was none."""
        accepted, begun = Accepted(), list[Turn]()
        for turn in turns:
            record = turn.record
            if self._waiting.behind(record.key, 1) or record.key in self._keeping.requests:
                break
            verdict = self._decisions.judged(record, self._state)
            if verdict is not Verdict.START:
                break
            first = turn.fair not in self._holder.busy
            self._decisions.settle(record, verdict, accepted)
            if first and record.key in accepted.begun:
                accepted.ahead.add(record.key)
            begun.append(turn)
        self._other = len(begun) < len(turns)
        if begun:
            fair = None if last is None else begun[-1].fair
            self._waiting.take(begun, fair)
            self._decisions.send(accepted, fair, partial(self._sent, accepted, begun))
        if self._other:
            self._holder.wake.set()
        return not self._other

    def _sent(self, accepted: Accepted, begun: Sequence[Turn], error: Exception | None) -> None:
        try:
            if error is not None:
                raise error
            self._waiting.taken(begun)
            if not self._decisions.closed:
                self._decisions.follow(accepted)
        except NO_LONGER_OWNER:
            return  # what has lost the partition tells its owner
        except Exception as failure:
            self._decisions.closed = True
            self._owner.fell_out(failure)

    # -- what takes more -----------------------------------------------------------------------------

    async def _admit_others(self) -> bool:
        """Take up those whose turn it is, whatever that takes; whether there may be more."""
        async with self._decisions.alone():
            self._other = False
            turns, last = self._next()
            if last is None:
                self._waiting.began_beside(turns)
            first: dict[str, str] = {}
            for fair, record in turns:
                if fair not in self._holder.busy:
                    first.setdefault(fair, record.key)
            begun = await self._take_up([turn.record for turn in turns], last)
        begun.ahead = set(first.values()) & begun.begun.keys()
        self._decisions.follow(begun)
        return bool(turns)

    async def _hand_on(self) -> bool:
        """What waits goes on to the next generation, in the turns in which it would have begun."""
        async with self._decisions.alone():
            turns, last = self._waiting.next_ones(AT_ONCE)
            self._decisions.follow(await self._take_up([turn.record for turn in turns], last))
        return bool(turns)

    async def _admit_aged(self) -> None:
        if self._patience_ms is None:
            return
        before_ms = self._owner.clock.now_ms() - self._patience_ms
        while self._waiting.older_than(before_ms, 1):
            async with self._decisions.alone():
                aged = await self._take_up(self._waiting.older_than(before_ms, AT_ONCE), None)
            self._decisions.begin_later(aged)

    async def _take_up(self, commands: Sequence[Record], fair: str | None) -> Accepted:
        accepted, lacking = Accepted(), set[str]()
        await self._decisions.forwarding.prepare()
        self._decisions.require_open()
        passed: list[int] = []
        room, size = BEHIND_AT_ONCE, 0
        for record in commands:
            self._take_command(record, accepted, lacking, passed)
            if room > 0:
                behind = self._waiting.behind(record.key, room)
                self._take_behind(behind, accepted, lacking, passed)
                size += sum(len(one.value) for one in behind)
                room = 0 if size > PICKED_BYTES else room - len(behind)
        await self._commit(accepted, fair, passed)
        for record in commands:  # what is left behind them comes before anything that comes in now
            while behind := self._waiting.behind(record.key, BEHIND_AT_ONCE):
                await self._decisions.outcomes_known((record.key,))
                self._decisions.require_open()
                self._take_behind(behind, accepted, lacking, passed)
                await self._commit(accepted, None, passed)
        return accepted

    def _take_command(self, record: Record, accepted: Accepted, lacking: set[str], passed: list[int]) -> None:
        verdict = self._decisions.judged(record, self._state)
        if isinstance(verdict, Unready):  # the owner before could begin it
            lacking.add(record.key)
            self._keeping.park(record, verdict, accepted)
        elif not self._decisions.settle(record, verdict, accepted):
            self._pass_over(record, accepted, passed)
        elif record.key in self._keeping.requests:
            self._keeping.retry(record.key, accepted)

    def _take_behind(
        self, records: Sequence[Record], accepted: Accepted, lacking: set[str], passed: list[int]
    ) -> None:
        for record in records:
            lacks = record.key in lacking
            verdict = Verdict.PASS if lacks else self._decisions.judged(record, self._state)
            if lacks or isinstance(verdict, Unready):
                self._keeping.park(record, verdict, accepted)
            elif not self._decisions.settle(record, verdict, accepted):
                self._pass_over(record, accepted, passed)

    def _pass_over(self, record: Record, accepted: Accepted, passed: list[int]) -> None:
        self._decisions.pass_over(record, accepted)
        passed.append(record.offset)

    async def _commit(self, accepted: Accepted, fair: str | None, passed: list[int]) -> None:
        await self._decisions.commit(accepted, fair)
        accepted.outgoing = []
        again = {record.offset for record in await self._decisions.doubted(accepted)}
        for offset in passed:
            if offset not in again:
                self._waiting.drop(offset)
        passed.clear()
