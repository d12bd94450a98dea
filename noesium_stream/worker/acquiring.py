"""What an owner asks, reads and says when it takes a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from noesium_stream.clock import Clock
from noesium_stream.errors import LogUnavailableError, TenureEndedError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import PartitionAcquired, PartitionConfirmed
from noesium_stream.log.port import EventLog, LogWriter, Outgoing, Subscription, Tenure, TopicPartition
from noesium_stream.worker.directory import Directory
from noesium_stream.worker.restore import answers_in

HEARD_S: Final = 10.0
"""Longer than a member may live without hearing that its group has given its partitions to others."""

_PAUSE_S: Final = 0.25


class Assignment:
    """One partition of an inbox, as the group has assigned it to this process.

    A tenure that was refused is not used again before the group has had the time to say what has become of
    it: who opens a writer fences the one who has the partition by now.

    Args:
        tp: the partition.
        subscription: of the member that it was assigned to.
        clock: for pauses.
    """

    def __init__(self, tp: TopicPartition, subscription: asyncio.Future[Subscription], clock: Clock) -> None:
        self._tp = tp
        self._subscription = subscription
        self._clock = clock
        self._refused: Tenure | None = None
        self._refused_s = 0.0

    async def tenure(self) -> Tenure:
        """What to open a writer under.

        Raises:
            TenureEndedError: the partition is not this process's any more.
        """
        subscription = await asyncio.shield(self._subscription)
        while True:
            tenure = await subscription.tenure(self._tp)
            if tenure != self._refused or self._clock.monotonic() - self._refused_s > HEARD_S:
                return tenure
            await self._clock.sleep(_PAUSE_S)

    async def still_here(self) -> bool:
        """Whether the group leaves the partition here, as far as this process can know."""
        try:
            await self.tenure()
        except TenureEndedError:
            return False
        return True

    def refused(self, tenure: Tenure) -> None:
        """The log has said that this tenure has ended."""
        self._refused, self._refused_s = tenure, self._clock.monotonic()

    async def start_at(self, offset: int) -> None:
        """Read the partition from there on, as soon as it is read at all."""
        subscription = await asyncio.shield(self._subscription)
        while self._tp not in subscription.assignment:
            await self._clock.sleep(_PAUSE_S)
        subscription.seek({self._tp: offset})


class AcquiringOwner(Protocol):
    """What is known of the partition before it is acquired."""

    log: EventLog
    clock: Clock
    agent_ref: AgentRef
    partition: int
    inbox: str
    journal: str


async def take(
    log: EventLog, writer_id: str, assignment: Assignment, first: Callable[[LogWriter], Awaitable[Outgoing]]
) -> LogWriter:
    """Open the writer of a partition (fences) and get past its first commit, which is the record `first`.

    Raises:
        TenureEndedError: the group has given the partition to another member.
        FencedError, CommitUnknownError, LogUnavailableError
    """
    tenure = await assignment.tenure()
    try:
        writer = await log.writer(writer_id, tenure=tenure)
        try:
            await writer.commit([await first(writer)])
        except BaseException:
            await writer.close()
            raise
    except TenureEndedError:
        assignment.refused(tenure)
        raise
    return writer


async def acquired(owner: AcquiringOwner, writer: LogWriter) -> Outgoing:
    """The first record of an epoch: nobody of an older one can commit after it."""
    event = PartitionAcquired(
        agent_type=owner.agent_ref.agent_type,
        partition=owner.partition,
        writer_id=writer.writer_id,
        epoch=writer.epoch,
        instance_id=owner.agent_ref.instance_id,
        inbox_id=await owner.log.topic_id(owner.inbox),
        in_order=False,
    )
    return _said(owner, event)


def confirmed(owner: AcquiringOwner, epoch: int) -> Outgoing:
    """A record that says nothing but that its writer is not fenced: once it is committed, that is known."""
    return _said(
        owner,
        PartitionConfirmed(
            agent_type=owner.agent_ref.agent_type,
            partition=owner.partition,
            epoch=epoch,
            instance_id=owner.agent_ref.instance_id,
        ),
    )


def _said(owner: AcquiringOwner, event: DomainEvent) -> Outgoing:
    key = f"partition-{owner.partition}"
    trace = TraceContext(owner.clock.token(16), owner.clock.token(8))
    envelope = event.to_envelope(owner.agent_ref, trace, partition_key=key, clock=owner.clock)
    return Outgoing(envelope, owner.journal, owner.partition, key)


async def low_water_mark(owner: AcquiringOwner, accepted: int, progress: Callable[[str], None]) -> int:
    """The next inbox offset to accept: what retention has removed cannot be, whether it was or not.

    Records that were passed over leave no copy, and markers of transactions take offsets: behind the last
    copy nothing need be missing, but a command that waited for longer than the inbox keeps it is.

    Args:
        owner: of the partition.
        accepted: where the journal's copies end.
        progress: takes one line for people.

    Raises:
        LogUnavailableError: nobody answers.
    """
    first = (await owner.log.beginning(owner.inbox))[owner.partition]
    if accepted < first:
        progress(
            f"{owner.inbox}/{owner.partition}: retention has removed offsets {accepted} to {first - 1}; "
            "a command among them that nobody had taken up is lost"
        )
    return max(accepted, first)


async def answered_meanwhile(owner: AcquiringOwner, accepted: int, directory: Directory) -> dict[str, int]:
    """The runs that people have answered in the inbox from `accepted` on, and where last."""
    while True:
        try:
            return await answers_in(owner.log, owner.inbox, owner.partition, accepted)
        except LogUnavailableError as error:
            await directory.wait_for_log(error)
