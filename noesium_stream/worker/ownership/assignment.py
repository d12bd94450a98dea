"""A partition as the consumer group has assigned it to this process, and opening its writer under that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import TenureEndedError
from noesium_stream.event.standard import PartitionAcquired
from noesium_stream.log.port import LogWriter, Outgoing, Subscription, Tenure, TopicPartition
from noesium_stream.worker.context import PartitionContext

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
        """Note that the log has said that this tenure has ended."""
        self._refused, self._refused_s = tenure, self._clock.monotonic()

    async def start_at(self, offset: int) -> None:
        """Read the partition from there on, as soon as it is read at all."""
        subscription = await asyncio.shield(self._subscription)
        while self._tp not in subscription.assignment:
            await self._clock.sleep(_PAUSE_S)
        subscription.seek({self._tp: offset})


async def open_writer(
    context: PartitionContext,
    writer_id: str,
    assignment: Assignment,
    first: Callable[[LogWriter], Awaitable[Outgoing]],
) -> LogWriter:
    """Open the writer of a partition (fences) and get past its first commit, which is the record `first`.

    Raises:
        TenureEndedError: the group has given the partition to another member.
        FencedError, CommitUnknownError, LogUnavailableError
    """
    tenure = await assignment.tenure()
    try:
        writer = await context.log.writer(writer_id, tenure=tenure)
        try:
            await writer.commit([await first(writer)])
        except BaseException:
            await writer.close()
            raise
    except TenureEndedError:
        assignment.refused(tenure)
        raise
    return writer


async def acquired(context: PartitionContext, writer: LogWriter, *, in_order: bool | None = None) -> Outgoing:
    """The first record of an epoch: nobody of an older one can commit after it."""
    more = {} if in_order is None else {"in_order": in_order}
    return context.record(
        PartitionAcquired(
            agent_type=context.agent_type,
            partition=context.partition,
            writer_id=writer.writer_id,
            epoch=writer.epoch,
            instance_id=context.agent_ref.instance_id,
            inbox_id=await context.log.topic_id(context.inbox),
            **more,
        )
    )
