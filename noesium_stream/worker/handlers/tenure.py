"""One tenure of a handler's partition: progress and made events are one commit.

Order is the guarantee, as with runs (`worker.tenure`). To take a partition (`open_tenure`):
 1. Open the writer: this fences the previous owner and ends its open transaction.
 2. Write `partition.acquired`, under the group's tenure.
 3. Find the last `handler.advanced` in the journal: it says how far the previous owner has come. If there is
    none, the handler is new and begins with the first event that the topic still has.
 4. Fold the state up to there, from the file on this machine and the later events of the topic. Repeated
    events are dropped, here and later (`projection.fold.repeats`).
 5. Go on from there.
A commit has the made events and then `handler.advanced` (`commits`). The state file is written when all
folded events are dealt with on the log, so that it is never ahead of the log; events that it lacks are folded
again. After a failed commit, the tenure ends and all that it has handled since is handled again.

A made event that is invalid, or larger than any log takes, is refused when it is made. If only the log
refuses a commit, its events are handled again with a commit for each, to find the event whose results are
refused: the handler stops at that event, and all before it is on the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from noesium_stream.agent.handler import BaseHandler, Feeder
from noesium_stream.errors import EventHeldError, LogClosedError, LogTruncatedError
from noesium_stream.event.standard import HandlerAdvanced, PartitionStatus
from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.log.port import EventLog, LogWriter, Outgoing, TopicPartition
from noesium_stream.log.record import Record, bytes_of
from noesium_stream.log.topics import partition_of
from noesium_stream.observability import events_processed
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.faults import stopped_by
from noesium_stream.projection.fold.partition_fold import UNFLUSHED_BYTES, PartitionFold
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.stored.folder import open_fold
from noesium_stream.state_file.claim import claimed
from noesium_stream.worker.commit.committer import Committer
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.handlers.catch_up import fold_until
from noesium_stream.worker.handlers.commits import Commits, Made
from noesium_stream.worker.handlers.events import REFUSED, Handling, misplaced, stopped_at
from noesium_stream.worker.handlers.last_advanced import last_advanced
from noesium_stream.worker.ownership.assignment import Assignment, acquired, open_writer
from noesium_stream.worker.ownership.owner import PASSING, PartitionOwner

FLUSH_EVENTS: Final = 10_000
"""Most events that the state file may lack; a takeover folds them again in a tenth of a second."""

DRAIN_S: Final = 5.0


@dataclass(slots=True)
class HandlerPartition:
    """The common parts of all tenures of one partition that a handler reads.

    Attributes:
        context: context of the partition.
        agent: the handler.
        place: topic and partition.
        assignment: the group's assignment of the partition.
        folder: folder of the state files on this machine.
        state: projection of the handler's state.
        codec: codec of the state.
        handling: handles events.
        alone_until: events below this offset get a commit each, because the log has refused some together.
    """

    context: PartitionContext
    agent: BaseHandler
    place: TopicPartition
    assignment: Assignment
    folder: Path
    state: BaseProjection[Any]
    codec: StateCodec[Any]
    handling: Handling
    alone_until: int = 0


HandlerOwner = PartitionOwner["HandlerTenure"]


def handler_owner(
    log: EventLog,
    agent: BaseHandler,
    place: TopicPartition,
    assignment: Assignment,
    folder: Path,
    *,
    on_failure: Callable[[BaseException], None],
    on_change: Callable[[], None] = lambda: None,
    on_taken: Callable[[PartitionContext], None] = lambda context: None,
) -> HandlerOwner:
    """Make the owner of a partition that a handler reads.

    Args:
        log: an open log.
        agent: the handler.
        place: topic and partition.
        assignment: the group's assignment of the partition.
        folder: folder of the state files on this machine.
        on_failure: called with the error that ends the ownership, if the group does not wait for it.
        on_change: called when the partition is taken while the group does not wait, or stopped.
        on_taken: called with the context when the partition is taken.
    """
    state = type(agent).state()
    state.on_error = "stop"  # type: ignore[misc]  # held events would be handled out of order
    context = PartitionContext(
        log=log,
        clock=agent.context.clock,
        agent_ref=agent.context.agent_ref,
        partition=place.partition,
        inbox=place.topic,
        journal=log.topology.journal(agent.agent_type),
        journal_partition=0,  # known once the journal is there
        key=f"{place.topic}/{place.partition}",
        progress=agent.context.progress,
    )
    partition = HandlerPartition(
        context, agent, place, assignment, folder, state, StateCodec(state), Handling(log, agent, state)
    )
    return PartitionOwner(
        context,
        assignment,
        partial(open_tenure, partition),
        on_change=on_change,
        on_taken=on_taken,
        on_failure=on_failure,
    )


async def open_tenure(partition: HandlerPartition, owner: HandlerOwner) -> HandlerTenure:
    """Take the partition.

    Raises:
        ProjectionError: the state cannot be written on this machine.
        EventHeldError: an event that was handled before cannot be folded any more.
        LogTruncatedError: events are gone that the handler has not handled, or that its state lacks.
    """
    place, key = partition.place, partition.context.key
    log = partition.context.log
    number = partition_of(key, len(await log.end(partition.context.journal)))
    context = replace(partition.context, journal_partition=number)
    topic_id = await log.topic_id(place.topic)
    # 1. Fence. 2. Say so.
    writer_id = f"{context.journal}/{key}"
    writer = await open_writer(context, writer_id, partition.assignment, partial(acquired, context))
    try:
        writer.tells_positions = False
        # 3. Find how far the previous owner has come; it cannot write any more.
        first = (await log.beginning(place.topic))[place.partition]
        advanced = await last_advanced(log, context.journal, number, key, topic_id)
        start = first if advanced is None else advanced["next_offset"]
        began = first if advanced is None else advanced.get("began_at", 0)
        if start < first:  # events that the handler has not handled are gone
            raise LogTruncatedError(place.topic, place.partition, start, first)
        # 4. Fold the state up to there.
        open_file = partial(
            open_fold,
            partition.folder,
            partition.state,
            partition.codec,
            log,
            place,
            topic_id,
            context.progress,
            partition.handling,
            flushes=False,
            claim=claimed,
            misplaced=None if partition.state.local_keys else partial(misplaced, partition.state),
        )
        fold = await fold_until(open_file, log, place, start, began, context.progress)
    except BaseException:
        await writer.close()
        raise
    try:
        feeder = await partition.agent.feeder(dict(fold.rows()))
    except BaseException:
        fold.file.close()
        await writer.close()
        raise
    tenure = HandlerTenure(partition, context, owner, writer, fold, topic_id, start, began, feeder)
    if advanced is None and first > 0:
        context.progress(
            f"{key}: {partition.agent.agent_type} is new here and begins at offset {first}: "
            "what came before was removed from the topic"
        )
        try:
            await tenure.say_where_it_begins()
        except BaseException:
            await tenure.end(orderly=False)
            raise
    return tenure


class HandlerTenure:
    """A handler at work on one partition, as long as the partition is owned.

    Args:
        partition: the partition.
        context: context of the partition, with its journal partition.
        owner: the owner, called when the tenure is lost.
        writer: the fenced writer; its first commit has succeeded.
        fold: the state up to `start`.
        topic_id: id of the topic that is read.
        start: see `Tenure.start`.
        began: offset at which the handler began, when it was new.
        feeder: what tells the handler of time.
    """

    open_runs = 0
    """Number of open runs: a handler has none."""

    def __init__(
        self,
        partition: HandlerPartition,
        context: PartitionContext,
        owner: HandlerOwner,
        writer: LogWriter,
        fold: PartitionFold[Any],
        topic_id: str,
        start: int,
        began: int,
        feeder: Feeder | None = None,
    ) -> None:
        self.start = start
        self._feeder = feeder
        self._feeding: asyncio.Task[None] | None = None
        self._partition = partition
        self._context = context
        self._owner = owner
        self._writer = writer
        self._fold = fold
        self._topic_id = topic_id
        self._began = began
        self._committer = Committer(
            writer, context.journal, context.clock, context.progress, lambda error: None
        )
        self._commits = Commits(self._commit, self._on_log)
        self._stopped: Exception | None = None
        self._accepting = 0
        self._next = self._told = start
        self._unwritten = 0
        self._lock = asyncio.Lock()
        self._ended = False

    def begin(self) -> None:
        """See `Tenure.begin`."""
        if self._feeder is not None:
            self._feeding = asyncio.create_task(self._feed(self._feeder), name="a handler's feeder")

    async def _feed(self, feeder: Feeder) -> None:
        try:
            await feeder.wait()
        except Exception as error:
            self._owner.fail(error)

    async def say_where_it_begins(self) -> None:
        """Commit the offset at which a new handler begins."""
        await self._commit(self.start, 0, [])

    def status(self, handled: int | None) -> PartitionStatus:
        """See `Tenure.status`."""
        idle = not self._accepting and self._commits.idle
        return PartitionStatus(
            partition=self._context.partition,
            epoch=self._writer.epoch,
            next_offset=max(self._next, handled or 0) if idle else self._next,
            open_runs=0,
            topic=self._context.inbox,
        )

    async def end(self, *, orderly: bool) -> None:
        """See `Tenure.end`: the open commit ends, the state is written, the writer closes.

        Does not wait for a commit while the log is unavailable: the next owner handles its events again.

        Raises:
            EventHeldError: an event has led to a state that cannot be stored.
            ProjectionError: the state cannot be written on this machine.
        """
        if self._ended:
            return
        self._ended = True
        if self._feeder is not None:
            await self._feeder.close()
        if not orderly:
            await self._let_go(write=False)
            return
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._lock.acquire()
        except TimeoutError:
            await self._committer.close()  # fails the pending `accept`, which then releases the lock
            await self._lock.acquire()
        try:
            await self._let_go(write=True)
        finally:
            self._lock.release()

    async def _let_go(self, *, write: bool) -> None:
        patience_s = DRAIN_S
        try:
            if write:
                patience_s = 0.0
                with suppress(*NO_LONGER_OWNER, TimeoutError):  # the next owner folds it again
                    async with asyncio.timeout(DRAIN_S):
                        if await self._commits.settle() and self._fold.cursor == self._next:
                            await self._write()
        finally:
            self._fold.file.close()
            try:
                await self._committer.drain(patience_s)
                await self._committer.close()
                await self._commits.close()
            finally:
                await self._writer.close()

    # -- events --------------------------------------------------------------------------------------

    async def accept(self, records: Sequence[Record], *, more: bool = False) -> None:
        """Handle the next records; return when they are dealt with on the log.

        Records that come after the tenure was lost are ignored: the next tenure reads them again. May be
        called again before it has returned.

        Args:
            records: the next records of the partition.
            more: whether many more records are about to come.

        Raises:
            EventHeldError: `handle` or `apply` fails for an event, or the log refuses the events made of it;
                all events before it are dealt with.
        """
        stopped = None
        self._accepting += 1
        try:
            async with self._lock:
                if self._owner.tenure is not self:
                    return
                if self._stopped is not None:
                    raise self._stopped
                try:
                    made, stopped = await self._handle(records, more)
                except BaseException as error:
                    # The state and the made events may not match: handle nothing more.
                    self._stopped = error if isinstance(error, Exception) else LogClosedError("broken off")
                    raise
            await made.on_log
        except PASSING as error:
            self._owner.lose(error, self)  # events that are not dealt with on the log are folded again
            return
        except REFUSED as error:
            partition = self._partition
            if self._owner.tenure is self:
                partition.alone_until = max(partition.alone_until, self._fold.cursor)
            self._owner.lose(error, self)
            return
        finally:
            self._accepting -= 1
        if stopped is not None:
            raise stopped

    async def _handle(self, records: Sequence[Record], more: bool) -> tuple[Made, EventHeldError | None]:
        """Handle the next records; return also the error of an event that stops the handler."""
        alone = 0
        for record in records:
            if record.offset >= self._partition.alone_until:
                break
            await self._handle_alone(record)
            alone += 1
        return await self._handle_together(records[alone:] if alone else records, more)

    async def _handle_alone(self, record: Record) -> None:
        """Handle an event with a commit of its own."""
        try:
            made, stopped = await self._handle_together([record], more=False)
            await made.on_log
        except REFUSED as error:
            failure = stopped_by(self._partition.state.name, record, error)
            failure.__cause__ = error
            raise stopped_at(self._partition.agent, failure) from failure
        if stopped is not None:
            raise stopped

    async def _handle_together(
        self, records: Sequence[Record], more: bool
    ) -> tuple[Made, EventHeldError | None]:
        fold, commits, handling = self._fold, self._commits, self._partition.handling
        await commits.room()
        if self._unwritten >= FLUSH_EVENTS or fold.unflushed_bytes >= UNFLUSHED_BYTES:
            await commits.settle()
        if commits.lost is not None:
            raise commits.lost
        if self._unwritten >= FLUSH_EVENTS or fold.unflushed_bytes >= UNFLUSHED_BYTES:
            await self._write()
        before = fold.cursor
        made, handled, failure = handling.take(fold, records)
        if self._feeder is not None:
            await self._feeder.follow({row: fold.state(row) for row in handling.touched()})
        outgoing = await handling.outgoing(made)
        self._unwritten += len(records)
        if records and records[0].offset < before:
            records = [record for record in records if record.offset >= before]
        size = bytes_of(records)
        sent = commits.add(outgoing, handled, size, fold.cursor, more=more and failure is None)
        if failure is None:
            return sent, None
        stopped = stopped_at(self._partition.agent, failure)
        stopped.__cause__ = failure
        self._stopped = stopped
        return sent, stopped

    def hurry(self) -> None:
        """Commit handled events without waiting for more."""
        self._commits.hurry()

    def _on_log(self, made: Made) -> None:
        self._next = made.cursor
        if made.handled:
            attributes = {"noesium.reader": "worker", "noesium.name": self._context.agent_type}
            events_processed.add(made.handled, attributes)

    async def _commit(self, cursor: int, handled: int, outgoing: Sequence[Outgoing]) -> None:
        context = self._context
        advanced = HandlerAdvanced(
            agent_type=context.agent_type,
            topic=context.inbox,
            topic_id=self._topic_id,
            partition=context.partition,
            next_offset=cursor,
            handled=handled,
            made=len(outgoing),
            began_at=self._began,
        )
        await self._committer.submit([*outgoing, context.record(advanced)]).wait()
        self._told = cursor

    async def _write(self) -> None:
        """Write the state, after its cursor was committed (even if there was no event to handle)."""
        if self._told != self._fold.cursor:
            await self._commit(self._fold.cursor, 0, [])
        self._fold.flush()
        self._unwritten = 0
