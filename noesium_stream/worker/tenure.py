"""One tenure of a partition with runs: taken by a fenced writer, dropped whole when it is lost.

Order is the guarantee. Taking a partition (`open_tenure`):
 1. open the writer (fences the previous owner and ends what it left open),
 2. write `partition.acquired` (nobody of an older epoch can commit after it); that this succeeds proves that
    the group has the partition here and nowhere else,
 3. read the journal from where the local state ends to its high watermark,
 4. resume the runs that are open; those that only wait are not even loaded,
 5. accept from the inbox, from where the journal's copies end (`begin`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from noesium_stream.errors import CommitUnknownError, LogUnavailableError, ProjectionError
from noesium_stream.event.standard import PartitionStatus
from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.log.generations import Generation
from noesium_stream.log.record import Record
from noesium_stream.observability import events_processed
from noesium_stream.worker.agent_directory import Directory
from noesium_stream.worker.commit.committer import Moment
from noesium_stream.worker.commit.partition_writer import PartitionWriter
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.graph_versions import Releases
from noesium_stream.worker.inbox.admission import Admission
from noesium_stream.worker.inbox.successor import Successor, outgrown
from noesium_stream.worker.ownership.assignment import Assignment, acquired, open_writer
from noesium_stream.worker.ownership.owner import PartitionOwner
from noesium_stream.worker.partition_status import status_of
from noesium_stream.worker.runs.late_outcomes import OutcomeReports
from noesium_stream.worker.runs.open_runs import OpenRuns
from noesium_stream.worker.runs.slots import Slots
from noesium_stream.worker.runs.unrecorded_outcomes import UnrecordedOutcomes
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.restore import answers_in
from noesium_stream.worker.state.state_keeper import StateKeeper, StateStore


@dataclass(frozen=True, slots=True)
class RunPartition:
    """The lasting part of a partition: shared by its tenures, one after the other.

    Attributes:
        context: of the partition.
        releases: what the worker carries of the agent.
        assignment: what the group says of the partition.
        directory: of other agents.
        store: where its state is kept.
        slots: of the worker's agent.
        reports: for calls that outlast a tenure.
        unrecorded: outcomes of calls that earlier tenures may not have recorded.
        successor: the next generation, if the log has one.
        grace_s: how long effects under way are waited for when the partition is given up, in seconds.
        on_moved: called when partitions have come or gone.
    """

    context: PartitionContext
    releases: Releases
    assignment: Assignment
    directory: Directory
    store: StateStore
    slots: Slots
    reports: OutcomeReports
    unrecorded: UnrecordedOutcomes
    successor: Generation | None
    grace_s: float
    on_moved: Callable[[], None]


RunPartitionOwner = PartitionOwner["RunTenure"]


async def open_tenure(partition: RunPartition, owner: RunPartitionOwner) -> RunTenure:
    """Take the partition.

    Raises:
        CheckpointError, CorruptRecordError: the journal cannot be read back.
        FencedError, TenureEndedError, CommitUnknownError: somebody else has it.
        LogUnavailableError: no broker answers.
    """
    context = partition.context
    begun = Moment.now(context.clock)
    # 1. Fence. 2. Say so: the first record of this epoch.
    first = partial(acquired, context, in_order=False)
    log_writer = await open_writer(context, context.name, partition.assignment, first)
    try:
        # 3. Read the journal; nobody else can write it now.
        keeper = await partition.store.open()
    except BaseException:
        await log_writer.close()
        raise
    tenure = RunTenure(partition, owner, keeper, partial(PartitionWriter, context, log_writer, begun))
    try:
        await tenure.resume()
    except BaseException:
        await tenure.end(orderly=False)
        raise
    return tenure


class RunTenure:
    """The runs, the state, the writer and the admission of a partition, for as long as it is owned.

    Args:
        partition: whose tenure it is.
        owner: told when the tenure is lost.
        keeper: of the state, which is that of the journal's end.
        make_writer: makes the writer; takes the next record numbers of open runs, and callbacks for the loss
            of the writer and for each commit.

    Attributes:
        start: see `Tenure.start`.
        context: of the partition.
        runs: its open runs.
        admission: of its inbox.
        keeper: of its state.
        writer: of the tenure.
    """

    def __init__(
        self,
        partition: RunPartition,
        owner: RunPartitionOwner,
        keeper: StateKeeper,
        make_writer: Callable[..., PartitionWriter],
    ) -> None:
        self.context = context = partition.context
        state = keeper.state
        sequences = {run_id: run.count for run_id, run in state.open.items()}
        holder = partition.slots.join()
        self.start = state.manifest.position
        self.keeper = keeper
        self.writer = writer = make_writer(sequences, self._lost, keeper.committed)
        keeper.on_broken = writer.lose
        self.runs = OpenRuns(
            context,
            partition.releases,
            writer,
            keeper,
            partition.directory,
            partition.reports,
            partition.unrecorded,
            holder,
            owner.fail,
        )
        known = state.manifest.successor
        partitions = None if known is None else known[1]
        self._successor = Successor(context, writer, partition.directory, partition.on_moved, partitions)
        self.admission = Admission(
            context, state, writer, self.runs, self._successor, partition.slots, holder, self._failed
        )
        self._measured = {"noesium.reader": "worker", "noesium.name": context.agent_type}
        self._partition = partition
        self._owner = owner
        self._ended = False

    # -- from the first commit to the last -----------------------------------------------------------

    async def resume(self) -> None:
        """Let the open runs go on, and deal with what the state has of the inbox.

        Raises:
            LogUnavailableError: nobody answers.
        """
        partition, context, state = self._partition, self.context, self.keeper.state
        self.start = await low_water_mark(context, state)
        state.read_to(self.start)
        if partition.successor is not None and state.manifest.successor is None:
            # Nobody has announced it so far: retention may have removed the record from the inbox.
            await self.writer.submit([outgrown(context, partition.successor.partitions)]).wait()
            self._successor.partitions = partition.successor.partitions
        # 4. Not yet those that people have answered meanwhile: a deadline that has passed since must not get
        # ahead of the answer that lies in the inbox.
        awaited = await self._answered_meanwhile() if state.open else {}
        self.runs.resume(state, awaited)
        await self.admission.accept_orphans()

    def begin(self) -> None:
        """See `Tenure.begin`. 5. The inbox follows from here."""
        if self.writer.lost.is_set():
            raise CommitUnknownError(f"{self.context.name}: lost while it was taken.")
        self.admission.open()

    async def end(self, *, orderly: bool) -> None:
        """See `Tenure.end`: calls under way end and are recorded, runs stop where they are."""
        if self._ended:
            return
        self._ended = True
        # 1. Nothing comes in any more, and nothing starts or is loaded. Admission closes before evicted runs
        # are forgotten: nothing is judged without them.
        self.admission.stop()
        await self.runs.stop_waking()
        await self.admission.close()
        await self.runs.stop_starting()
        # 2. Runs stop where they are; what they have recorded gets to the log.
        left = await self.runs.give_up(self._partition.grace_s if orderly else 0.0)
        await self.writer.drain()
        for session, heir in left:
            for outcome in session.unrecorded:
                heir.recover(outcome)
            for outcome in session.uncalled().values():
                heir.recover(outcome, begun=False)
        # 3. The state is that of the last commit.
        self.keeper.close()
        await self.writer.close()

    # -- the inbox -----------------------------------------------------------------------------------

    async def accept(self, records: Sequence[Record]) -> None:
        """Deal with the next records of the inbox; returns when all are dealt with on the log."""
        try:
            await self.admission.accept(records)
        except NO_LONGER_OWNER as error:
            self._owner.lose(error, self)
        except ProjectionError as error:
            self.keeper.broke(error)
        else:
            events_processed.add(len(records), self._measured)

    # -- what others see -----------------------------------------------------------------------------

    @property
    def open_runs(self) -> int:
        """How many runs of this partition are open."""
        return len(self.runs.loaded) + self.evicted_runs

    @property
    def evicted_runs(self) -> int:
        """How many of them only wait, and are not in memory."""
        return len(self.runs.eviction)

    def evict_idle(self) -> None:
        """Evict the runs that have only waited for long enough; a sweep does so now and then."""
        self.runs.eviction.evict_idle()

    def status(self, handled: int | None) -> PartitionStatus:
        """Status of the partition; `handled` is where the group's reader stands in the inbox."""
        context = self.context
        return status_of(
            context.inbox,
            context.partition,
            self.writer.epoch,
            self.keeper.state.dealt_with(handled or 0),
            self.open_runs,
            self.runs.loaded.values(),
            self.admission.deferred,
        )

    # -- help ----------------------------------------------------------------------------------------

    async def _answered_meanwhile(self) -> dict[str, int]:
        """The runs that people have answered in the inbox behind what was accepted, and where last."""
        context = self.context
        while True:
            try:
                return await answers_in(context.log, context.inbox, context.partition, self.start)
            except LogUnavailableError as error:
                await self._partition.directory.wait_for_log(error)

    def _lost(self, error: Exception) -> None:
        if isinstance(error, NO_LONGER_OWNER):
            self._owner.lose(error, self)
        else:
            self._owner.fail(error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, ProjectionError):
            self.keeper.broke(error)
        else:
            self._owner.fail(error)


async def low_water_mark(context: PartitionContext, state: PartitionState) -> int:
    """The next inbox offset to accept: what retention has removed cannot be, whether it was or not.

    Records that were skipped leave no copy, and markers of transactions take offsets: behind the last copy
    nothing need be missing, but a command that waited for longer than the inbox keeps it is.

    Raises:
        LogUnavailableError: nobody answers.
    """
    accepted = state.manifest.position
    first = (await context.log.beginning(context.inbox))[context.partition]
    if accepted < first:
        context.progress(
            f"{context.inbox}/{context.partition}: retention has removed offsets {accepted} to {first - 1}; "
            "a command among them that nobody had taken up is lost"
        )
    return max(accepted, first)
