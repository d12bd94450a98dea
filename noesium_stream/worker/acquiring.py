"""What an owner reads and says when it takes a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from noesium_stream.clock import Clock
from noesium_stream.errors import LogUnavailableError
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import PartitionAcquired
from noesium_stream.log.port import EventLog, LogWriter, Outgoing
from noesium_stream.worker.directory import Directory
from noesium_stream.worker.restore import answers_in


class AcquiringOwner(Protocol):
    """What is known of the partition before it is acquired."""

    log: EventLog
    clock: Clock
    agent_ref: AgentRef
    partition: int
    inbox: str
    journal: str


def acquired(owner: AcquiringOwner, writer: LogWriter, inbox_id: str) -> Outgoing:
    """The first record of an epoch: nobody of an older one can commit after it."""
    event = PartitionAcquired(
        agent_type=owner.agent_ref.agent_type,
        partition=owner.partition,
        writer_id=writer.writer_id,
        epoch=writer.epoch,
        instance_id=owner.agent_ref.instance_id,
        inbox_id=inbox_id,
        in_order=False,
    )
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
