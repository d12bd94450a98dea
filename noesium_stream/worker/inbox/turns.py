"""Turns of the queued commands of one tenure: which of them start next, and what waits behind them.

A look at the queue (`Turns.step`) takes one piece of work, in this order:
 1. commands that have waited for half of what the inbox keeps: they are accepted out of turn, so that the
    inbox need not keep them any more,
 2. once there is a next generation of the agent's topics, commands that are forwarded to it,
 3. open runs that are to go on, before any command starts,
 4. commands whose turn it is, as far as there are slots (`command_queue`).
Commands that only start are submitted without waiting for their commits. When the turn of one comes that
takes more (something waits behind it, or it is refused), nothing else is under way while it is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.log.record import Record
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.batch import AdmissionView, Batch, DecisionApplier
from noesium_stream.worker.inbox.commits import Commits
from noesium_stream.worker.inbox.decide import Action, Decision, decide
from noesium_stream.worker.inbox.deferred_requests import DeferredRequests
from noesium_stream.worker.inbox.successor import Successor
from noesium_stream.worker.runs.open_runs import OpenRuns
from noesium_stream.worker.runs.slots import Holder, Slots
from noesium_stream.worker.state.command_queue import PICKED_BYTES, CommandQueue, Turn
from noesium_stream.worker.state.partition_state import PartitionState

AT_ONCE: Final = 256
"""Upper bound of commands in one commit."""

BEHIND_AT_ONCE: Final = 500
"""Upper bound of the records behind commands that are in memory and in one commit."""


class Turns:
    """The turns of the queued commands, for one tenure.

    Args:
        context: of the partition.
        state: of the partition.
        runs: the open runs of the tenure.
        queue: of the partition's commands.
        deferred: the deferred requests.
        decider: carries decisions out.
        commits: of the admission.
        successor: the next generation.
        slots: of the worker's agent.
        holder: what the partition has of the slots.
        on_failure: called with an error that ends the tenure.
    """

    def __init__(
        self,
        context: PartitionContext,
        state: PartitionState,
        runs: OpenRuns,
        queue: CommandQueue,
        deferred: DeferredRequests,
        decider: DecisionApplier,
        commits: Commits,
        successor: Successor,
        slots: Slots,
        holder: Holder,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._clock = context.clock
        self._state = state
        self._runs = runs
        self._queue = queue
        self._deferred = deferred
        self._decider = decider
        self._commits = commits
        self._successor = successor
        self._slots = slots
        self._holder = holder
        self._on_failure = on_failure
        kept_ms = context.log.topology.spec(context.inbox).retention_ms
        self._patience_ms = None if kept_ms is None else kept_ms // 2
        self._loading: asyncio.Task[None] | None = None
        self._mixed = False
        """The next commands take more than to start: they are decided when nothing is under way."""
        self._none_beside: tuple[int, int] | None = None

    async def step(self) -> bool:
        """Do one piece of work; return whether there may be more."""
        if await self._accept_aged():
            return True
        if self._successor.partitions is not None and len(self._queue):
            return await self._hand_on()
        if self._loading is not None or self._holder.resuming:
            return self._load_resuming()
        if not self._mixed:
            self._start_queued()
        return self._mixed and await self._start_mixed()

    def may_start_at_once(self, batch: Batch) -> bool:
        """Whether nothing waits before these new commands, and there are slots for all of them."""
        if self._loading or self._holder.resuming or self._queue.written:
            return False
        if len(batch.queued) > min(AT_ONCE, self._slots.room(self._holder)):
            return False
        if any(run_id in self._deferred for run_id in batch.queued_runs):
            return False
        return sum(len(record.value) for record, _ in batch.queued) <= PICKED_BYTES

    async def _accept_aged(self) -> bool:
        if self._patience_ms is None:
            return False
        before_ms = self._clock.now_ms() - self._patience_ms
        if not self._queue.older_than(before_ms, 1):
            return False
        await self._commits.settled()
        self._commits.act_later(await self._take_up(self._queue.older_than(before_ms, AT_ONCE), None))
        return True

    async def _hand_on(self) -> bool:
        """Forward what waits to the next generation, in the turns in which it would have started."""
        await self._commits.settled()
        turns, last = self._queue.next_ones(AT_ONCE)
        self._commits.act(await self._take_up([turn.record for turn in turns], last))
        return bool(turns)

    def _load_resuming(self) -> bool:
        """Load open runs that are to go on, as far as there are slots; return whether there may be more."""
        if self._loading is not None:
            if not self._loading.done():
                return False
            self._loading = None
            return True
        holder = self._holder
        holder.hungry = True
        room = min(AT_ONCE, self._slots.room(holder))
        some = [holder.resuming.popleft() for _ in range(min(room, len(holder.resuming)))]
        if some:
            self._loading = self._runs.eviction.load(some)
            self._loading.add_done_callback(lambda loaded: holder.wake.set())
        return False

    def _start_queued(self) -> None:
        """Start commands that need nothing else, without waiting for their commit."""
        while not (self._mixed or self._holder.resuming):
            self._commits.require_open()
            self._holder.hungry = not self._queue.idle
            turns, last = self._next()
            if not turns:
                return
            count = self._starting_only(turns)
            self._mixed = count < len(turns)
            if count:
                self.start(turns[:count], None if last is None else turns[count - 1].fair)

    def _next(self) -> tuple[list[Turn], str | None]:
        """The next turns; and the fairness key of the last, if they use free slots and are not beside."""
        holder = self._holder
        if not holder.hungry:
            return [], None
        room = min(AT_ONCE, self._slots.room(holder))
        if room:
            return self._queue.next_ones(room)
        most = self._slots.beside()
        if not most:
            return [], None
        # Nobody can start beside those at work until a command comes or one of their keys has gone.
        seen = self._queue.changes, holder.gone
        if seen == self._none_beside:
            return [], None
        turns = self._queue.next_beside(holder.busy, most)
        self._none_beside = None if turns else seen
        return turns, None

    def _starting_only(self, turns: Sequence[Turn]) -> int:
        """How many of the first turns are plain starts, with nothing behind or deferred."""
        view = self._decider.view(Batch(), at_turn=True)
        for count, turn in enumerate(turns):
            record = turn.record
            if self._queue.behind(record.key, 1) or record.key in self._deferred:
                return count
            if decide(view, record).action is not Action.START:
                return count
        return len(turns)

    def start(self, turns: Sequence[Turn], fair: str | None) -> None:
        """Submit the start of these commands; what follows from it happens when it is on the log.

        `fair` is the fairness key whose turn it was last; None: these started beside others.
        """
        batch = Batch()
        for key, record in turns:
            first = key not in self._holder.busy
            self._decider.start(record, batch)
            if first and record.key in batch.begun:
                batch.ahead.add(record.key)
        self._queue.take(turns, fair)
        self._commits.commit_later(batch, fair, lambda error: self._started(batch, turns, error))

    def _started(self, batch: Batch, turns: Sequence[Turn], error: Exception | None) -> None:
        if isinstance(error, NO_LONGER_OWNER):
            return  # the writer has told the owner
        try:
            if error is not None:
                raise error
            self._queue.taken(turns)
            if not self._commits.closed:
                self._commits.act(batch)
        except Exception as failure:
            self._commits.closed = True
            self._on_failure(failure)

    async def _start_mixed(self) -> bool:
        """Take up those whose turn it is, whatever that takes; return whether there may be more."""
        await self._commits.settled()
        self._mixed = False
        turns, last = self._next()
        if last is None:
            self._queue.began_beside(turns)
        first: dict[str, str] = {}
        for fair, record in turns:
            if fair not in self._holder.busy:
                first.setdefault(fair, record.key)
        batch = await self._take_up([turn.record for turn in turns], last)
        batch.ahead = set(first.values()) & batch.begun.keys()
        self._commits.act(batch)
        return bool(turns)

    async def _take_up(self, commands: Sequence[Record], fair: str | None) -> Batch:
        """Decide on queued commands and on what waits behind each of them."""
        batch = Batch()
        view = self._decider.view(batch, at_turn=True)
        await self._successor.prepare()
        self._commits.require_open()
        room, size = BEHIND_AT_ONCE, 0
        for record in commands:
            decision = self._decide_at_turn(record, view, batch)
            if decision.action not in (Action.DEFER, Action.SKIP) and record.key in self._deferred:
                self._decider.retry(record.key, batch)
            if room > 0:
                behind = self._queue.behind(record.key, room)
                for one in behind:
                    self._decide_at_turn(one, view, batch)
                size += sum(len(one.value) for one in behind)
                room = 0 if size > PICKED_BYTES else room - len(behind)
        await self._commit_turn(batch, fair)
        for record in commands:  # what is left behind them comes before anything that comes in now
            while behind := self._queue.behind(record.key, BEHIND_AT_ONCE):
                await self._runs.outcomes_known((record.key,))
                self._commits.require_open()
                for one in behind:
                    self._decide_at_turn(one, view, batch)
                await self._commit_turn(batch, None)
        return batch

    def _decide_at_turn(self, record: Record, view: AdmissionView, batch: Batch) -> Decision:
        decision = decide(view, record)
        if not self._decider.apply(record, decision, batch, at_turn=True):
            batch.skipped.append(record.offset)
        return decision

    async def _commit_turn(self, batch: Batch, fair: str | None) -> None:
        await self._commits.commit(batch, fair)
        again = {record.offset for record in await batch.judged_again(self._state)}
        for offset in batch.skipped:
            if offset not in again:
                self._queue.drop(offset)
        batch.skipped.clear()
