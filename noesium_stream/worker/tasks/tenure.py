"""One tenure of a partition of a task topic: tasks go to the agent's inbox in one commit with `task.taken`.

A consumer group alone does not give each task to one agent: its offset is committed after the tasks are
handed on, and the next subscriber, perhaps of another agent type, would hand the same ones on again. Two
agents would do them, and neither would know of the other. So the group only says whose turn it is, and the
position is on the log: `task.taken`, in the topic of taken tasks, is in the same transaction as the tasks
that it counts. Order is the guarantee. To take a partition (`open_tenure`):
 1. Open the writer: this fences the previous subscriber and ends its open transaction. All subscribers of a
    partition, of whatever agent type, have the same writer's id.
 2. Write `partition.acquired`, under the group's tenure (KIP-447).
 3. Find the last `task.taken`: it says how far the previous subscriber has come. If there is none, nobody has
    taken a task here, and everything that the topic still has is to be taken.
 4. Go on from there, whatever the group's offset says.
A subscriber that dies in between has handed on all tasks of a commit or none.

A request to cancel goes where the task has gone. If a subscriber of this agent type took it, that is this
inbox, in order behind the task. If another one did, `task.taken` names it; the request is appended to its
inbox by itself, since repeating it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from noesium_stream.errors import (
    CorruptRecordError,
    EventStoreError,
    EventValidationError,
    NoesiumError,
    RecordTooLargeError,
    brief,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import PartitionStatus, RunCancelRequested, TaskRequested, TaskTaken
from noesium_stream.log.last_record import last_record
from noesium_stream.log.port import LogWriter, Outgoing, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of
from noesium_stream.worker.agent_directory import Directory
from noesium_stream.worker.commit.committer import Committer
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.journal_records import dead_letter, handed_on
from noesium_stream.worker.ownership.assignment import Assignment, acquired, open_writer
from noesium_stream.worker.ownership.owner import PASSING, PartitionOwner

AT_ONCE: Final = 200
"""Tasks in one commit."""

_DRAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class TaskPartition:
    """The lasting part of a partition of a task topic: shared by its tenures here.

    Attributes:
        context: of the partition; its journal is the topic of taken tasks.
        capability_id: whose tasks it has.
        place: topic and partition.
        assignment: what the group says of it.
        directory: finds the agent's inbox, which it has learned.
    """

    context: PartitionContext
    capability_id: str
    place: TopicPartition
    assignment: Assignment
    directory: Directory


TaskOwner = PartitionOwner["TaskTenure"]


async def open_tenure(partition: TaskPartition, owner: TaskOwner) -> TaskTenure:
    """Take the partition.

    Raises:
        FencedError, TenureEndedError, CommitUnknownError: somebody else has it.
        CorruptRecordError: the topic of taken tasks cannot be read back.
        LogUnavailableError: nobody answers.
    """
    place, log, key = partition.place, partition.context.log, partition.context.key
    number = partition_of(key, len(await log.end(partition.context.journal)))
    context = replace(partition.context, journal_partition=number)
    topic_id = await log.topic_id(place.topic)
    # 1. Fence. 2. Say so.
    writer_id = f"{context.journal}/{place.partition}"
    writer = await open_writer(context, writer_id, partition.assignment, partial(acquired, context))
    try:
        # 3. Find how far the previous one has come; it cannot write any more.
        first = (await log.beginning(place.topic))[place.partition]
        taken = await _last_taken(context, topic_id)
    except BaseException:
        await writer.close()
        raise
    # What retention has removed was taken by nobody and is lost, as in an inbox.
    start = first if taken is None else max(first, taken["next_offset"])
    return TaskTenure(replace(partition, context=context), owner, writer, topic_id, start)


async def _last_taken(
    context: PartitionContext, topic_id: str, task_id: str | None = None
) -> dict[str, Any] | None:
    """The last `task.taken` of a partition, or that of one task."""

    def is_wanted(record: Record) -> bool:
        if record.key != context.key:
            return False
        said = record.envelope.payload
        return said["topic_id"] == topic_id and (task_id is None or task_id in said["tasks"])

    place = TopicPartition(context.journal, context.journal_partition)
    found = await last_record(context.log, place, is_wanted, types=(TaskTaken.TYPE,))
    return None if found is None else found.envelope.payload


class TaskTenure:
    """The taking of tasks from one partition, for as long as it is owned.

    Args:
        partition: whose tenure it is.
        owner: told when the tenure is lost.
        writer: the fenced writer; its first commit has succeeded.
        topic_id: id of the task topic.
        start: see `Tenure.start`.
    """

    open_runs = 0
    """Number of open runs: tasks are runs of the agent's own partitions."""

    def __init__(
        self, partition: TaskPartition, owner: TaskOwner, writer: LogWriter, topic_id: str, start: int
    ) -> None:
        self.start = self._next = start
        self._partition = partition
        self._context = context = partition.context
        self._owner = owner
        self._writer = writer
        self._topic_id = topic_id
        self._committer = Committer(
            writer, context.journal, context.clock, context.progress, lambda error: None
        )
        self._ended = False

    def begin(self) -> None:
        """See `Tenure.begin`."""

    def status(self, handled: int | None) -> PartitionStatus:
        """See `Tenure.status`."""
        context = self._context
        return PartitionStatus(
            partition=context.partition,
            epoch=self._writer.epoch,
            next_offset=max(self._next, handled or 0),
            open_runs=0,
            topic=context.inbox,
        )

    async def end(self, *, orderly: bool) -> None:
        """See `Tenure.end`: a commit under way ends, the writer closes."""
        if self._ended:
            return
        self._ended = True
        try:
            await self._committer.drain(_DRAIN_S if orderly else 0.0)
            await self._committer.close()
        finally:
            await self._writer.close()

    async def accept(self, records: Sequence[Record]) -> None:
        """Take tasks; returns when they are in the agent's inbox."""
        new = [record for record in records if record.offset >= self._next]
        try:
            for start in range(0, len(new), AT_ONCE):
                await self._take(new[start : start + AT_ONCE])
        except PASSING as error:
            self._owner.lose(error, self)

    async def _take(self, records: Sequence[Record]) -> None:
        try:
            await self._commit(records, [await self._handed_on(record, records) for record in records])
        except (EventValidationError, RecordTooLargeError) as error:
            # The log refuses one of them: each for itself, so that only that one is a dead letter.
            if len(records) == 1:
                await self._commit(records, [self._dead_letter(records[0], error)])
            for record in records if len(records) > 1 else ():
                await self._take([record])

    async def _commit(self, records: Sequence[Record], made: Sequence[Sequence[Outgoing]]) -> None:
        context = self._context
        tasks = [
            record.key
            for record, sent in zip(records, made, strict=True)
            if sent and sent[0].envelope.event_type == TaskRequested.TYPE
        ]
        taken = TaskTaken(
            agent_type=context.agent_type,
            topic=context.inbox,
            topic_id=self._topic_id,
            partition=context.partition,
            next_offset=records[-1].offset + 1,
            tasks=tasks,
        )
        outgoing = [one for sent in made for one in sent]
        await self._committer.submit([*outgoing, context.record(taken)]).wait()
        self._next = records[-1].offset + 1

    async def _handed_on(self, record: Record, together: Sequence[Record]) -> list[Outgoing]:
        """What becomes of a record: it goes to the inbox, or is a dead letter."""
        try:
            event = record.envelope
            self._check(record, event)
            if event.event_type == RunCancelRequested.TYPE and await self._cancelled(record, together):
                return []
            return [handed_on(record, *self._partition.directory.inbox_of(self._context.agent_type))]
        except (CorruptRecordError, EventValidationError) as error:
            return self._dead_letter(record, error)

    def _check(self, record: Record, event: EventEnvelope) -> None:
        if event.event_type not in (TaskRequested.TYPE, RunCancelRequested.TYPE):
            raise EventValidationError("event_type", f"{event.event_type} is no task")
        if record.key != event.payload.get("run_id"):
            raise EventValidationError(
                "key", f"is {record.key}, but the task is {event.payload.get('run_id')}"
            )
        wanted = event.payload.get("capability_id", self._partition.capability_id)
        if wanted != self._partition.capability_id:
            raise EventValidationError("payload.capability_id", "is not that of the topic")

    async def _cancelled(self, record: Record, together: Sequence[Record]) -> bool:
        """Send a request to cancel to another agent type that has the task; False: it belongs here."""
        context = self._context
        if any(one.key == record.key and one.offset < record.offset for one in together):
            return False
        taken = await _last_taken(context, self._topic_id, record.key)
        if taken is None or taken["agent_type"] == context.agent_type:
            return False
        agent_type: str = taken["agent_type"]
        inbox = context.log.topology.inbox(agent_type)
        try:
            await context.log.append([record.envelope], topic=inbox)
        except PASSING:
            raise
        except EventStoreError as error:  # a user of this cluster may not be allowed to write there
            context.progress(
                f"{context.key}: task {record.key} is not cancelled: {agent_type} has taken it, and "
                f"{brief(error, 200)}"
            )
        return True

    def _dead_letter(self, record: Record, error: NoesiumError) -> list[Outgoing]:
        self._context.progress(f"{self._context.key}: offset {record.offset} is no task: {brief(error, 200)}")
        return dead_letter(self._context, record, error, topic_id=self._topic_id)
