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
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from noesium_stream.capability import CapabilityRegistry
from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CommitUnknownError,
    LogClosedError,
    LogFullError,
    LogUnavailableError,
    ProjectionError,
)
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import PartitionStatus
from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.log.generations import Generation, next_specs
from noesium_stream.log.port import EventLog, Outgoing, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.log.topics import generation_of
from noesium_stream.observability import events_processed
from noesium_stream.worker.acquiring import (
    Assignment,
    acquired,
    answered_meanwhile,
    low_water_mark,
    take,
)
from noesium_stream.worker.committer import Moment
from noesium_stream.worker.directory import Directory
from noesium_stream.worker.forwarding import outgrown
from noesium_stream.worker.grace import GRACE_S
from noesium_stream.worker.intake import Intake
from noesium_stream.worker.known_runs import Bounds
from noesium_stream.worker.open_runs import OpenRuns
from noesium_stream.worker.parking import Parking
from noesium_stream.worker.releases import Releases
from noesium_stream.worker.reports import Reports
from noesium_stream.worker.slots import Slots
from noesium_stream.worker.standing import status_of
from noesium_stream.worker.state_keeper import StateKeeper
from noesium_stream.worker.submission import Submission
from noesium_stream.worker.timers import Timers
from noesium_stream.worker.writing import Writing

TAKING_S: Final = 2.0
"""For so long the group waits for a partition to be taken; then that goes on beside it."""

MADE_S: Final = 2.0
"""A broker may be late by so much to tell of a topic that was made."""

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
        agent = releases.newest.agent
        self.log = log
        self.tell = tell
        self.agent_ref: AgentRef = agent.context.agent_ref
        self.clock: Clock = agent.context.clock
        self.partition = place.partition
        self.generation = generation_of(place.topic)
        self.inbox = place.topic
        self.journal = log.topology.journal(agent.agent_type, self.generation)
        self._agent_type = agent.agent_type
        self._progress = progress = agent.context.progress
        self._grace_s = grace_s
        self._on_failure = on_failure
        self._on_recovered = on_recovered
        self._successor = successor
        self._assignment = assignment
        self._slots = slots or Slots()
        self._directory = Directory(log, registry, self.clock, progress)
        self._keeper = StateKeeper(self, releases, bounds or Bounds(), self._lost, in_file=keeps_state)
        self._writing = Writing(self, progress, self._lost, self._keeper.committed)
        reports = reports or Reports(log, self.clock, progress)
        self._open = OpenRuns(
            self, releases, self._writing, self._keeper, self._directory, reports, on_failure
        )
        self._runs = self._open.loaded
        self._parking: Parking | None = None
        self._intake: Intake | None = None
        self._taken = False
        self._recovering: asyncio.Task[int | None] | None = None
        self._beside = False
        self._places = 0
        self._released = False

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
        epoch = self._writing.epoch
        if epoch is None or not self._taken:
            return None
        return status_of(
            self.inbox,
            self.partition,
            epoch,
            self._keeper.state.dealt_with(handled or 0),
            self.open_runs,
            self._runs.values(),
            self._intake.kept if self._intake is not None else None,
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
        writing, begun = self._writing, Moment.now(self.clock)
        writing.hold(await take(self.log, writer_id, self._assignment, partial(acquired, self)), begun)
        # 3. Read the journal; nobody else can write it now.
        state = await self._keeper.open()
        position = await low_water_mark(self, state.manifest.position, self._progress)
        state.read_to(position)
        writing.begin().sequences.update((run_id, run.count) for run_id, run in state.open.items())
        if self._successor is not None and state.manifest.successor is None:
            # Nobody has told it so far: retention may have removed the news from the inbox.
            await writing.submit([outgrown(self, self._successor.partitions)]).wait()
        # 4. Resume; not yet what people have answered meanwhile: a deadline that has passed since must not
        # get ahead of the answer that lies in the inbox.
        awaited = await answered_meanwhile(self, position, self._directory) if state.open else {}
        self._parking = parking = Parking(self._open, self._runs, self._on_failure)
        holder = self._slots.join()
        self._open.open(parking, Timers(self.clock, self._open.due), holder)
        self._intake = intake = Intake(self, self._open, state, parking, self._slots, holder)
        self._open.resume(state, awaited)
        await intake.take_left_behind()
        # 5. The inbox follows from here.
        if self._beside:
            # What was handed over before is read again: the state may have been lost that had it. Up to the
            # seek the group may hand over what lies behind it, and from there on nothing gives way.
            await self._assignment.start_at(position)
            self._places += 1
        if writing.lost.is_set():
            raise CommitUnknownError(f"{self.journal}/{self.partition}: lost while it was taken.")
        intake.open()
        self._taken = True
        return position

    async def acquire_or_recover(self) -> int | None:
        """As `acquire`; None: it is taken by and by, or given up.

        Somebody else takes it too, who was given it before and does not know better; or it was given on while
        this process stood still. The group says whose it is, and who waits for that here would not hear it.
        So that, a log that is away and a long journal are waited for beside the group.
        """
        first = asyncio.create_task(self._recover(None), name=f"take {self.partition}")
        self._recovering = first
        await asyncio.wait((first,), timeout=TAKING_S)
        if first.done():
            return None if first.cancelled() else first.result()
        self._beside = True
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

    async def _let_go(self, grace_s: float = 0.0) -> None:
        # 1. Nothing comes in any more, and nothing begins or comes back.
        self._taken = False
        intake = self._intake
        if intake is not None:
            intake.shut()  # before parked runs are forgotten: what comes in is not for nobody
        await self._open.wake_none()
        self._parking = None
        if intake is not None:
            await intake.close()
            self._intake = None
        await self._open.begin_none()
        # 2. Runs stop where they are; what they have recorded gets to the log.
        left = await self._open.give_up(grace_s)
        await self._writing.drain()
        for session, heir in left:
            for outcome in session.unrecorded:
                heir.recover(outcome)
        # 3. The state is that of the last commit.
        self._keeper.close()
        await self._writing.close()

    def _lost(self, error: Exception) -> None:
        self._writing.lost.set()
        if isinstance(error, NO_LONGER_OWNER):
            self.recover(error)
        else:
            self._on_failure(error)

    def recover(self, error: Exception) -> None:
        """Take the partition again, by and by, unless it is released or the group gives it to others."""
        if not self._released and self._recovering is None:
            self._taken, self._beside = False, True
            self._recovering = asyncio.create_task(self._recover(error), name=f"recover {self.partition}")

    async def _recover(self, error: Exception | None) -> int | None:
        """Take it, after what it was lost by, if it was owned here before."""
        try:
            while True:
                if error is not None:
                    await self._let_go()
                    await self.clock.sleep(_PAUSE_S)
                try:
                    if error is not None:
                        if not await self._assignment.still_here():
                            self._given_away()
                            return None
                        self._progress(f"{self.journal}/{self.partition}: taking it again after: {error}")
                    start = await self.acquire()
                    if self._beside:
                        self._on_recovered()
                    return start
                except (*NO_LONGER_OWNER, LogUnavailableError, LogFullError) as again:
                    error = again
        except Exception as failure:
            if not self._beside:
                raise
            self._on_failure(failure)
            return None
        finally:
            self._recovering = None

    def _given_away(self) -> None:
        self._progress(f"{self.journal}/{self.partition}: the group has given it to another worker")
        self._released = True

    async def open_next(self, partitions: int, *, told: bool) -> bool:
        """See `ForwardingOwner.open_next`; whoever reads for this agent type hears of it."""
        inbox, journal = next_specs(self.log.topology, self._agent_type, self.generation + 1, partitions)
        begun = self.clock.monotonic()
        while True:
            if not self._writing.open:
                raise LogClosedError(f"{self.journal}/{self.partition} was given up")
            try:
                if told:
                    made = (await self.log.layout()).get(journal.name)
                    if made is None and self.clock.monotonic() - begun < MADE_S:
                        await self.clock.sleep(_PAUSE_S)
                        continue
                    if made is None or made.partitions != partitions:
                        return False
                await self.log.ensure_topics([inbox])
                break
            except LogUnavailableError as error:
                await self._directory.wait_for_log(error)
        self._on_recovered()
        return True

    @property
    def writes(self) -> bool:
        """See `DecidingOwner.writes`."""
        return self._writing.open

    def submit(self, records: list[Outgoing]) -> Submission:
        """See `DecidingOwner.submit`."""
        return self._writing.submit(records)

    def park_idle(self) -> None:
        """See `Parking.park_idle`."""
        if self._parking is not None:
            self._parking.park_idle()

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
            attributes = {"noesium.reader": "worker", "noesium.name": self._agent_type}
            events_processed.add(len(records), attributes)

    def fell_out(self, error: Exception) -> None:
        """See `TurnsOwner.fell_out`."""
        if isinstance(error, ProjectionError):
            self._keeper.broke(error)
        else:
            self._on_failure(error)
