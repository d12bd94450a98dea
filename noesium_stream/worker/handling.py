"""The owner of one partition that a handler reads: what it has read, made of it and knows is one commit.

Order is the guarantee, as with runs (`partition`). Acquiring:
 1. open the writer (fences the previous owner and ends what it left open),
 2. write `partition.acquired`, under the group's tenure,
 3. find the last `handler.advanced` in the journal: how far the one before has come; where there is none the
    handler is new, and begins with what is left of the topic,
 4. fold the state up to there, from the file on this machine and what the topic has behind it,
 5. go on from there.
A commit has what was made of some events, and `handler.advanced` behind that (`handling_commits`). The
state's file is written when all that was folded is on the log, so that it is never ahead of it; what it lacks
is folded again. Where a commit has failed all that was handled since is given up, and handled again.

What is made of an event and is unsound, or larger than any log takes, is refused where it is made. What the
log alone refuses is found out by handling again, one event by one commit, all that was refused together: so
the handler stops at the event that it comes of, and what came before that is on the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from noesium_stream.agent.handler import BaseHandler
from noesium_stream.clock import Clock
from noesium_stream.errors import EventHeldError, LogClosedError, LogTruncatedError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import HandlerAdvanced, PartitionAcquired, PartitionStatus
from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.log.port import EventLog, LogWriter, Outgoing, TopicPartition
from noesium_stream.log.record import Record, bytes_of
from noesium_stream.log.topics import partition_of
from noesium_stream.observability import events_processed
from noesium_stream.projection.faults import stopped_by
from noesium_stream.projection.fold import UNFLUSHED_BYTES, PartitionFold
from noesium_stream.projection.folder import open_fold
from noesium_stream.projection.state_claim import claimed
from noesium_stream.projection.state_codec import StateCodec
from noesium_stream.worker.acquiring import Assignment, take
from noesium_stream.worker.committer import Committer
from noesium_stream.worker.handling_commits import Commits, Made
from noesium_stream.worker.handling_events import REFUSED, Handling, stopped_at
from noesium_stream.worker.handling_past import fold_until, last_advanced
from noesium_stream.worker.handling_takeover import PASSING, Takeover

FLUSH_EVENTS: Final = 10_000
"""How many events the state's file may lack: a takeover folds them again, in a tenth of a second."""

DRAIN_S: Final = 5.0


class HandlerPartition:
    """Owns one partition that a handler reads, from `acquire` to `release`.

    Args:
        log: an open log.
        agent: the handler.
        place: which partition.
        assignment: what the group says of it.
        folder: where states are kept on this machine.
        on_failure: told what ends the ownership where the group does not wait for it.
        on_recovered: told when it is taken beside the group.
    """

    def __init__(
        self,
        log: EventLog,
        agent: BaseHandler,
        place: TopicPartition,
        assignment: Assignment,
        folder: Path,
        *,
        on_failure: Callable[[BaseException], None],
        on_recovered: Callable[[], None] = lambda: None,
    ) -> None:
        self.log = log
        self.clock: Clock = agent.context.clock
        self.agent_ref: AgentRef = agent.context.agent_ref
        self.partition = place.partition
        self.inbox = place.topic
        self.journal = log.topology.journal(agent.agent_type)
        self._agent = agent
        self._place = place
        self._assignment = assignment
        self._folder = folder
        self._progress = agent.context.progress
        self.state = type(agent).state()
        self.state.on_error = "stop"  # type: ignore[misc]  # what is held back would be handled out of order
        self._codec: StateCodec[Any] = StateCodec(self.state)
        self._key = f"{place.topic}/{place.partition}"
        self._journal_partition = 0
        self._handling = Handling(log, agent, self.state)
        self._topic_id = ""
        self._writer: LogWriter | None = None
        self._committer: Committer | None = None
        self._commits: Commits | None = None
        self._fold: PartitionFold[Any] | None = None
        self._stopped: Exception | None = None
        self._accepting = 0
        self._alone_until = 0
        self._next = 0
        self._told = 0
        self._began = 0
        self._unwritten = 0
        self._lock = asyncio.Lock()
        self._takeover = Takeover(
            self._key,
            self._acquire,
            lambda: self._let_go(),  # what is released writes its state, what was lost does not
            assignment,
            self.clock,
            self._progress,
            on_recovered,
            on_failure,
        )

    open_runs = 0
    """A handler has none."""

    def status(self, handled: int | None) -> PartitionStatus | None:
        """How the partition stands; None: it is being taken, or given up."""
        if not self._takeover.taken or self._writer is None:
            return None
        idle = not self._accepting and (self._commits is None or self._commits.idle)
        return PartitionStatus(
            partition=self.partition,
            epoch=self._writer.epoch,
            next_offset=max(self._next, handled or 0) if idle else self._next,
            open_runs=0,
            topic=self.inbox,
        )

    # -- ownership -----------------------------------------------------------------------------------

    async def acquire_or_recover(self) -> int | None:
        """Take the partition; return the next offset to handle, or None: it is taken by and by, or given up.

        Raises:
            ProjectionError: the state cannot be written on this machine.
            EventHeldError: an event of before cannot be folded any more.
            LogTruncatedError: events are gone that the handler has not handled, or that its state lacks.
        """
        return await self._takeover.begin()

    async def _acquire(self) -> int:
        log = self.log
        self._journal_partition = partition_of(self._key, len(await log.end(self.journal)))
        self._topic_id = await log.topic_id(self.inbox)
        # 1. Fence. 2. Say so.
        writer_id = f"{self.journal}/{self._key}"
        self._writer = await take(log, writer_id, self._assignment, self._acquired)
        self._writer.tells_positions = False
        # 3. How far the one before has come; nobody else can write that now.
        first = (await log.beginning(self.inbox))[self.partition]
        advanced = await last_advanced(log, self.journal, self._journal_partition, self._key, self._topic_id)
        if advanced is None:
            self._told = self._next = self._began = first
        else:
            self._told = self._next = advanced["next_offset"]
            self._began = advanced.get("began_at", 0)
            if self._next < first:  # events that it has not handled are gone
                raise LogTruncatedError(self.inbox, self.partition, self._next, first)
        # 4. The state up to there.
        open_file = partial(
            open_fold,
            self._folder,
            self.state,
            self._codec,
            log,
            self._place,
            self._topic_id,
            self._progress,
            self._handling,
            flushes=False,
            claim=claimed,
        )
        self._fold = await fold_until(open_file, log, self._place, self._next, self._began, self._progress)
        self._unwritten = 0
        committer = self._committer = Committer(
            self._writer, self.journal, self.clock, self._progress, lambda error: None
        )
        self._commits = Commits(lambda *made: self._commit(committer, *made), self._on_log)
        self._stopped = None
        if advanced is None and first > 0:
            self._progress(
                f"{self._key}: {self._agent.agent_type} is new here and begins at offset {first}: "
                "what came before was removed from the topic"
            )
            await self._commit(committer, first, 0, [])
        return self._next

    async def release(self) -> None:
        """Give the partition up: the open commit ends, the state is written, the writer closes.

        A commit that waits for a log that is away is not waited for: whoever has the partition next does it.

        Raises:
            EventHeldError: an event has made a state that cannot be stored.
            ProjectionError: the state cannot be written on this machine.
        """
        await self._takeover.stop()
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._lock.acquire()
        except TimeoutError:
            if self._committer is not None:
                await self._committer.close()  # who accepts hears that, and lets go
            await self._lock.acquire()
        try:
            await self._let_go(write=True)
        finally:
            self._lock.release()

    async def _let_go(self, *, write: bool = False) -> None:
        committer, self._committer = self._committer, None
        commits, self._commits = self._commits, None
        fold, self._fold = self._fold, None
        writer, self._writer = self._writer, None
        patience_s = DRAIN_S
        try:
            if write and fold is not None and committer is not None and commits is not None:
                patience_s = 0.0
                with suppress(*NO_LONGER_OWNER, TimeoutError):  # the next owner folds it again
                    async with asyncio.timeout(DRAIN_S):
                        if await commits.settle() and fold.cursor == self._next:
                            await self._write(fold, committer)
        finally:
            if fold is not None:
                fold.file.close()
            try:
                if committer is not None and commits is not None:
                    await committer.drain(patience_s)
                    await committer.close()
                    await commits.close()
            finally:
                if writer is not None:
                    await writer.close()

    async def _acquired(self, writer: LogWriter) -> Outgoing:
        event = PartitionAcquired(
            agent_type=self._agent.agent_type,
            partition=self.partition,
            writer_id=writer.writer_id,
            epoch=writer.epoch,
            instance_id=self.agent_ref.instance_id,
            inbox_id=self._topic_id,
        )
        return self._own(event)

    def _own(self, event: DomainEvent) -> Outgoing:
        clock = self.clock
        trace = TraceContext(clock.token(16), clock.token(8))
        envelope = event.to_envelope(self.agent_ref, trace, partition_key=self._key, clock=clock)
        return Outgoing(envelope, self.journal, self._journal_partition, self._key)

    # -- events --------------------------------------------------------------------------------------

    def accept(self, records: Sequence[Record], *, more: bool = False) -> Coroutine[Any, Any, None]:
        """Handle the next records; returns when they are dealt with on the log.

        What comes while the partition is not owned here is passed over: it is read again once it is. May be
        called again before it has returned.

        Args:
            records: the next ones of the partition.
            more: whether many more are about to come.

        Raises:
            EventHeldError: `handle` or `apply` cannot take one, or the log does not take what is made of it;
                those before it are dealt with.
        """
        return self._accept_in(self._takeover.turn, records, more)

    async def _accept_in(self, turn: int, records: Sequence[Record], more: bool) -> None:
        takeover, stopped = self._takeover, None
        fold: PartitionFold[Any] | None = None
        self._accepting += 1
        try:
            async with self._lock:
                fold, commits = self._fold, self._commits
                if not takeover.taken or turn != takeover.turn or fold is None or commits is None:
                    return
                if self._stopped is not None:
                    raise self._stopped
                try:
                    made, stopped = await self._handle(fold, commits, records, more)
                except BaseException as error:
                    # The state is ahead of what is made, or behind it: nothing is handled on top of it.
                    self._stop(fold, error if isinstance(error, Exception) else LogClosedError("broken off"))
                    raise
            await made.on_log
        except PASSING as error:
            if turn == takeover.turn:
                takeover.again(error)  # what was folded and is not on the log is folded again
            return
        except REFUSED as error:
            assert fold is not None, "nothing else is refused"
            if turn == takeover.turn:
                self._alone_until = max(self._alone_until, fold.cursor)
                takeover.again(error)
            return
        finally:
            self._accepting -= 1
        if stopped is not None:
            raise stopped

    async def _handle(
        self, fold: PartitionFold[Any], commits: Commits, records: Sequence[Record], more: bool
    ) -> tuple[Made, EventHeldError | None]:
        """Handle the next records, and say what stops the handler behind them, if something does."""
        alone = 0
        for record in records:
            if record.offset >= self._alone_until:
                break
            await self._handle_alone(fold, commits, record)
            alone += 1
        return await self._handle_together(fold, commits, records[alone:] if alone else records, more)

    async def _handle_alone(self, fold: PartitionFold[Any], commits: Commits, record: Record) -> None:
        """Handle an event by a commit of its own."""
        try:
            made, stopped = await self._handle_together(fold, commits, [record], more=False)
            await made.on_log
        except REFUSED as error:
            failure = stopped_by(self.state.name, record, error)
            failure.__cause__ = error
            raise stopped_at(self._agent, failure) from failure
        if stopped is not None:
            raise stopped

    async def _handle_together(
        self, fold: PartitionFold[Any], commits: Commits, records: Sequence[Record], more: bool
    ) -> tuple[Made, EventHeldError | None]:
        await commits.room()
        if self._unwritten >= FLUSH_EVENTS or fold.unflushed_bytes >= UNFLUSHED_BYTES:
            await commits.settle()
        if commits.lost is not None:
            raise commits.lost
        if self._unwritten >= FLUSH_EVENTS or fold.unflushed_bytes >= UNFLUSHED_BYTES:
            assert self._committer is not None, "who has a fold has a writer"
            await self._write(fold, self._committer)
        before = fold.cursor
        made, handled, failure = self._handling.take(fold, records)
        outgoing = await self._handling.outgoing(made)
        self._unwritten += len(records)
        if records and records[0].offset < before:
            records = [record for record in records if record.offset >= before]
        size = bytes_of(records)
        sent = commits.add(outgoing, handled, size, fold.cursor, more=more and failure is None)
        if failure is None:
            return sent, None
        stopped = stopped_at(self._agent, failure)
        stopped.__cause__ = failure
        self._stop(fold, stopped)
        return sent, stopped

    def _stop(self, fold: PartitionFold[Any], error: Exception) -> None:
        """Let nothing more be handled on top of a state; one that was folded since is another one."""
        if fold is self._fold:
            self._stopped = error

    def hurry(self) -> None:
        """What was handled waits for no more on its way to the log."""
        if self._commits is not None:
            self._commits.hurry()

    def _on_log(self, made: Made) -> None:
        self._next = made.cursor
        if made.handled:
            attributes = {"noesium.reader": "worker", "noesium.name": self._agent.agent_type}
            events_processed.add(made.handled, attributes)

    async def _commit(
        self, committer: Committer, cursor: int, handled: int, outgoing: Sequence[Outgoing]
    ) -> None:
        advanced = HandlerAdvanced(
            agent_type=self._agent.agent_type,
            topic=self.inbox,
            topic_id=self._topic_id,
            partition=self.partition,
            next_offset=cursor,
            handled=handled,
            made=len(outgoing),
            began_at=self._began,
        )
        await committer.submit([*outgoing, self._own(advanced)]).wait()
        self._told = cursor

    async def _write(self, fold: PartitionFold[Any], committer: Committer) -> None:
        """Write the state; the journal says first how far it is, also where nothing was to be handled."""
        if self._told != fold.cursor:
            await self._commit(committer, fold.cursor, 0, [])
        fold.flush()
        self._unwritten = 0
