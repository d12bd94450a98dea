"""The previous owners of partitions that a worker has taken, in lines for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.standard import AgentStopped, PartitionAcquired
from noesium_stream.log.last_record import last_record
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.log.topics import first_generation, generation_of, partition_of
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.heartbeats import last_heartbeats
from noesium_stream.worker.progress_lines import ranges

_SHORT_ID: Final = 13
_LOOKED_AT: Final = 20_000
"""How far back an earlier owner is searched, in offsets of a journal's partition; a line is worth no more."""
_STOPPED_LOOKED_AT: Final = 5_000
"""How far back its end is searched, in offsets of the registry."""


async def takeover_lines(log: EventLog, taken: Iterable[PartitionContext]) -> list[str]:
    """Make a line for each previous owner: which of these partitions were taken over from it.

    A partition that nobody has owned, or this process itself, is in no line, nor is one whose previous owner
    has stopped in an orderly way or took it more than `_LOOKED_AT` offsets before. A process is named as in
    its last heartbeat, if that is still on the log, else by the beginning of its instance id.

    Raises:
        EventStoreError: the journal or the heartbeats cannot be read.
    """
    by_owner: dict[str, list[PartitionContext]] = {}
    for context in taken:
        previous = await _previous(log, context)
        if previous is not None:
            by_owner.setdefault(previous, []).append(context)
    for owner in [owner for owner in by_owner if await _has_stopped(log, owner)]:
        del by_owner[owner]
    if not by_owner:
        return []
    beats = await last_heartbeats(log)
    processes = {beat["instance_id"]: beat["process"] for _, beat in beats if beat.get("process")}
    return [
        f"{contexts[0].agent_type}: {_named(contexts)} taken over from "
        f"{processes.get(owner) or f'instance {owner[:_SHORT_ID]}'}"
        for owner, contexts in by_owner.items()
    ]


async def _previous(log: EventLog, context: PartitionContext) -> str | None:
    """Return the instance from which this one has taken a partition; None: there is none."""

    def is_of_partition(record: Record) -> bool:
        return record.key == context.key

    place = await _journal_of(log, context)
    types, own = (PartitionAcquired.TYPE,), context.agent_ref.instance_id
    latest = await last_record(log, place, is_of_partition, types=types, most=_LOOKED_AT)
    if latest is None or _instance_of(latest) != own:
        return None  # another one has it by now, and says so itself
    before = await last_record(
        log, place, is_of_partition, types=types, before=latest.offset, most=_LOOKED_AT
    )
    previous = None if before is None else _instance_of(before)
    return None if previous == own else previous


async def _has_stopped(log: EventLog, instance: str) -> bool:
    """Whether a process has said that it ended."""

    def is_its_end(record: Record) -> bool:
        return _instance_of(record) == instance

    registry, types = log.topology.registry, (AgentStopped.TYPE,)
    for number in await log.end(registry):
        place = TopicPartition(registry, number)
        if await last_record(log, place, is_its_end, types=types, most=_STOPPED_LOOKED_AT) is not None:
            return True
    return False


async def _journal_of(log: EventLog, context: PartitionContext) -> TopicPartition:
    """Return the journal partition in which the owners of a partition write."""
    journal = context.journal
    if first_generation(context.inbox) == log.topology.inbox(context.agent_type):
        return TopicPartition(journal, context.journal_partition)
    return TopicPartition(journal, partition_of(context.key, len(await log.end(journal))))  # a handler's


def _instance_of(record: Record) -> str | None:
    try:
        found: Any = record.envelope.payload["instance_id"]
    except CorruptRecordError:
        return None
    return str(found)


def _named(contexts: list[PartitionContext]) -> str:
    """Format partitions as `partitions 0-3, 7`; those of another topic or generation with its name."""
    parts = []
    for topic in sorted({context.inbox for context in contexts}):
        own = first_generation(topic).endswith(f".{contexts[0].agent_type}.inbox")
        where = "" if own and generation_of(topic) == 1 else f" of {topic}"
        numbers = sorted({context.partition for context in contexts if context.inbox == topic})
        word = "partition" if len(numbers) == 1 else "partitions"
        parts.append(f"{word} {ranges(numbers)}{where}")
    return ", ".join(parts)
