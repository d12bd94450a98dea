"""The admission of one tenure: one loop that reads, decides, commits, evolves and acts.

Each turn of the loop takes one piece of work, in this order:
 1. a batch of inbox records,
 2. deferred requests that an earlier owner could not take, once for each tenure,
 3. the queue: commands that have waited long, open runs that are to go on, and commands whose turn it is
    (`turns`).
For each it decides (`decide`), commits the records of all decisions in one transaction, lets the state evolve
by them (`PartitionState.evolve`, called by the committer), and acts: runs start, or hear of what is for them.
Inbox and state stay one: the state never says that a record was read which is neither decided on nor queued.

Commands of unknown runs are decided without waiting for the commits before them, and everything else waits
for those (`commits`). A record is skipped for good only when what it was skipped for is on the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from noesium_stream.errors import LogClosedError
from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.log.record import Record
from noesium_stream.worker.commit.partition_writer import PartitionWriter
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.batch import Batch, DecisionApplier
from noesium_stream.worker.inbox.commits import Commits
from noesium_stream.worker.inbox.decide import Action, decide
from noesium_stream.worker.inbox.deferred_requests import DeferredRequests
from noesium_stream.worker.inbox.successor import Successor
from noesium_stream.worker.inbox.turns import AT_ONCE, Turns
from noesium_stream.worker.runs.eviction import Eviction
from noesium_stream.worker.runs.open_runs import OpenRuns
from noesium_stream.worker.runs.slots import Holder, Slots, fairness_key
from noesium_stream.worker.state.command_queue import CommandQueue, Turn
from noesium_stream.worker.state.partition_state import PartitionState

DEFERRED_AT_ONCE: Final = 16
"""Upper bound of the runs whose deferred requests are in one commit: these may be large."""

RECOUNT_S: Final = 5.0
RECOUNT_SOON_S: Final = 0.05
RECOUNT_EACH: Final = 16
"""Waiting runs that have not said so are looked for each so many times that something wakes the loop, and so
soon after it has; or now and then."""


class _Waiting(NamedTuple):
    """Records that were handed over, and the future that says that they are dealt with.

    The future's result is False where one of their runs was evicted meanwhile: it has to be loaded first.
    """

    records: Sequence[Record]
    runs: frozenset[str]
    dealt: asyncio.Future[bool]


class Admission:
    """The admission of one tenure, until `close`.

    Args:
        context: of the partition.
        state: of the partition.
        writer: of the tenure.
        runs: the open runs of the tenure.
        successor: the next generation.
        slots: of the worker's agent.
        holder: what the partition has of the slots.
        on_failure: called with an error that ends the tenure.

    Attributes:
        deferred: the deferred requests.
    """

    def __init__(
        self,
        context: PartitionContext,
        state: PartitionState,
        writer: PartitionWriter,
        runs: OpenRuns,
        successor: Successor,
        slots: Slots,
        holder: Holder,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.deferred = DeferredRequests(context, state)
        self._context = context
        self._state = state
        self._runs = runs
        self._eviction: Eviction = runs.eviction
        self._successor = successor
        self._slots = slots
        self._holder = holder
        self._on_failure = on_failure
        self._commits = Commits(context, state, writer, runs, holder)
        self._queue = CommandQueue(state, context.inbox, context.partition, context.log.decoder)
        self._decider = DecisionApplier(context, state, runs, self.deferred, successor, self._queue, holder)
        self._turns = Turns(
            context,
            state,
            runs,
            self._queue,
            self.deferred,
            self._decider,
            self._commits,
            successor,
            slots,
            holder,
            on_failure,
        )
        self._inbox: deque[_Waiting] = deque()
        self._deferred_runs: deque[str] = deque()
        self._task: asyncio.Task[None] | None = None
        holder.wake.set()

    @property
    def queued(self) -> int:
        """How many records wait for their turn."""
        return len(self._queue)

    def wake(self) -> None:
        """Look for work now."""
        self._holder.wake.set()

    def open(self) -> None:
        """Start the loop."""
        self._task = asyncio.create_task(self._loop(), name=f"admission {self._context.name}")

    def stop(self) -> None:
        """Decide nothing any more."""
        self._commits.closed = True

    async def close(self) -> None:
        """Stop, and end the loop: nothing starts any more."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            # Not the task itself: its cancellation is not that of who waits.
            await asyncio.wait((self._task,))
        self._refuse_waiting(LogClosedError("the partition was given up meanwhile"))
        self._slots.leave(self._holder)

    async def accept(self, records: Sequence[Record]) -> None:
        """Deal with the next records of the inbox; those that were dealt with before are passed over.

        Returns when all are decided on or queued. Raises what the commit raised, and `LogClosedError` where
        the admission was closed.
        """
        runs = frozenset(record.key for record in records)
        with self._eviction.staying(runs):
            while True:
                await self._eviction.bring_back(runs)
                self._commits.require_open()
                waiting = _Waiting(records, runs, asyncio.get_running_loop().create_future())
                self._inbox.append(waiting)
                self.wake()
                if await waiting.dealt:
                    return

    async def accept_orphans(self) -> None:
        """Deal with what waits behind commands that wait no more; before anything else is decided.

        This state is older than the journal: somebody else has taken up the commands meanwhile, and may not
        have read what came behind them.
        """
        while orphans := self._queue.left_behind(AT_ONCE):
            runs = {record.key for record in orphans}
            with self._eviction.staying(runs):
                await self._eviction.bring_back(runs)
                for part in Batch.until_cancelled(orphans):
                    batch = await self._decide_all(part)
                    for record in part:
                        self._queue.drop(record.offset)
                    for record, fair in batch.queued:
                        self._queue.put(record, fair)
                    self._commits.act(batch)

    # -- the loop ------------------------------------------------------------------------------------

    async def _loop(self) -> None:
        try:
            self._deferred_runs = deque(self.deferred.runs())
            looks = 0
            while True:
                while await self._step():
                    pass
                looks = await self._wait(looks)
        except NO_LONGER_OWNER as error:
            self.stop()  # the writer has told the owner; nobody waits for a loop that has ended
            self._refuse_waiting(error)
        except Exception as error:
            self.stop()  # what comes for a run that could not start is not accepted
            self._refuse_waiting(error)
            self._on_failure(error)

    async def _step(self) -> bool:
        """Do one piece of work; return whether there may be more."""
        if self._inbox:
            await self._accept(self._inbox[0])
            self._inbox.popleft()
            return True
        if self._deferred_runs:
            await self._retry_deferred(self._deferred_runs)
            return True
        return await self._turns.step()

    async def _wait(self, looks: int) -> int:
        """Wait for work; return how many times in a row something came soon."""
        wake = self._holder.wake
        with suppress(TimeoutError):
            async with asyncio.timeout(RECOUNT_S if looks == 0 else RECOUNT_SOON_S):
                await wake.wait()
        looks = (looks + 1) % RECOUNT_EACH if wake.is_set() else 0
        wake.clear()
        if looks == 0:
            self._recount()
        return looks

    def _recount(self) -> None:
        """Free the slots of runs that only wait since one of their tasks ended, which nobody was told of."""
        for run_id in list(self._holder.working):
            session = self._runs.loaded.get(run_id)
            if session is None or (session.begun and session.only_waits()):
                self._holder.rests(run_id)

    def _refuse_waiting(self, error: Exception) -> None:
        while self._inbox:
            waiting = self._inbox.popleft()
            if not waiting.dealt.done():
                waiting.dealt.set_exception(error)
                waiting.dealt.exception()  # who waits may be gone

    # -- 1. the inbox --------------------------------------------------------------------------------

    async def _accept(self, waiting: _Waiting) -> None:
        self._commits.require_open()
        records = waiting.records[self._accept_new(waiting.records) :]
        loaded = True
        if records:
            await self._commits.settled()
            loaded = not any(run_id in self._eviction for run_id in waiting.runs)
            for part in Batch.until_cancelled(records) if loaded else ():
                batch = await self._decide_all([record for record in part if self._is_new(record)])
                self._read(part[-1], batch)
                self._commits.act(batch)
                self._runs.answered(self._state.manifest.position)
        if not waiting.dealt.done():
            waiting.dealt.set_result(loaded)

    def _accept_new(self, records: Sequence[Record]) -> int:
        """Start, or queue, the first records as long as they are commands of unknown runs.

        They need no commit before them. Return how many they are, with those dealt with before.
        """
        if self._successor.partitions is not None:
            return 0
        batch, count = Batch(), 0
        view, cancelled = self._decider.view(batch), Batch.cancelled(records)
        for record in records:
            if self._is_new(record):
                # A run that is cancelled in the same batch starts as cancelled: it does no work.
                if record.key in cancelled or decide(view, record).action is not Action.START:
                    break
                batch.queue(record, fairness_key(record.envelope))
                record.release()
            count += 1
        if count:
            if batch.queued and not self._deferred_runs and self._turns.may_start_at_once(batch):
                self._start_at_once(records[count - 1], batch)
            else:
                self._read(records[count - 1], batch)
            self._runs.answered(self._state.manifest.position)
        return count

    def _start_at_once(self, last: Record, batch: Batch) -> None:
        """Start commands that need not be queued."""
        turns = [Turn(fair or "", record) for record, fair in batch.queued]
        batch.queued = []
        for turn in turns:
            self._state.starting[turn.record.offset] = turn.record, turn.fair
        self._read(last, batch)
        self._turns.start(turns, turns[-1].fair)

    def _is_new(self, record: Record) -> bool:
        state = self._state
        return record.offset >= state.manifest.position and not state.is_decided(record.offset)

    def _read(self, last: Record, batch: Batch) -> None:
        """Queue what waits and count the inbox as read up to `last`, in one go."""
        for record, fair in batch.queued:
            self._queue.put(record, fair)
        if last.offset >= self._state.manifest.position:
            self._state.read_to(last.offset + 1, last)

    async def _decide_all(self, records: Sequence[Record]) -> Batch:
        batch = Batch()
        view = self._decider.view(batch)
        while True:
            await self._successor.prepare(records)
            await self._runs.outcomes_known({record.key for record in records})
            self._commits.require_open()
            for record in records:
                self._decider.apply(record, decide(view, record), batch)
                record.release()
            await self._commits.commit(batch)
            records = await batch.judged_again(self._state)
            if not records:
                return batch

    # -- 2. deferred requests ------------------------------------------------------------------------

    async def _retry_deferred(self, run_ids: deque[str]) -> None:
        """Take up what earlier owners could not take and this one can, for the next runs."""
        some = [run_ids.popleft() for _ in range(min(DEFERRED_AT_ONCE, len(run_ids)))]
        await self._successor.prepare()
        with self._eviction.staying(some):
            while True:
                await self._eviction.bring_back(some)
                await self._commits.settled()
                if not any(run_id in self._eviction for run_id in some):
                    break
            await self._runs.outcomes_known(some)
            self._commits.require_open()
            batch = Batch()
            for run_id in some:
                self._decider.retry(run_id, batch)
            await self._commits.commit(batch)
            self._commits.act_later(batch)
        await asyncio.sleep(0)  # where nothing can be taken, nothing else gives way
