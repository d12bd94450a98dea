"""Lag of a partition that nobody owns, from the journal of its last owner."""

from __future__ import annotations

from typing import Any, Final

import orjson

from noesium_stream.errors import CorruptRecordError, TopicNotFoundError
from noesium_stream.event.standard import PartitionAcquired
from noesium_stream.log.headers import INBOX, SOURCE
from noesium_stream.log.last_record import last_record
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.log.topics import first_generation, generation_of, partition_of
from noesium_stream.worker.handlers.last_advanced import last_advanced

_LOOKED_AT: Final = 5_000
"""How far back a journal is read, in offsets of a partition."""


async def lag_without_owner(log: EventLog, agent_type: str, place: TopicPartition, end: int) -> int:
    """Return how many offsets of a partition, at most, nobody has dealt with; `end` is its end.

    Raises:
        LogUnavailableError
    """
    first = (await log.beginning(place.topic))[place.partition]
    try:
        if first_generation(place.topic) == log.topology.inbox(agent_type):
            journal = log.topology.journal(agent_type, generation_of(place.topic))
            return await _of_inbox(log, TopicPartition(journal, place.partition), place, first, end)
        return max(0, end - max(first, await _handled(log, agent_type, place)))
    except TopicNotFoundError:
        return max(0, end - first)  # there is no journal yet: nobody has ever read it


async def handled_topics(log: EventLog, agent_type: str) -> set[str]:
    """Find the topics that a handler has read, by the end of its journal; empty: it has none.

    Raises:
        LogUnavailableError
    """
    journal, layout, found = log.topology.journal(agent_type), await log.layout(), set[str]()
    if journal not in layout:
        return found
    ends, firsts = await log.end(journal), await log.beginning(journal)
    start = {partition: max(firsts[partition], end - _LOOKED_AT) for partition, end in ends.items()}
    async for record in log.read(journal, start, until=ends, types=(PartitionAcquired.TYPE,)):
        found.add(record.key.rpartition("/")[0])
    return found & layout.keys()


async def _of_inbox(
    log: EventLog, journal: TopicPartition, inbox: TopicPartition, first: int, end: int
) -> int:
    """Count the inbox offsets above the last low-water mark of which the journal's end has no copy."""
    marked = await last_record(log, journal, lambda record: _mark(record) is not None)
    low = 0 if marked is None else _mark(marked) or 0
    until = (await log.end(journal.topic))[journal.partition]
    begin = max((await log.beginning(journal.topic))[journal.partition], until - _LOOKED_AT)
    decided: set[int] = set()
    source = log.read(journal.topic, {journal.partition: begin}, until={journal.partition: until})
    async for record in source:
        decided.update(_decided(record, inbox))
    low = max(low, first)
    return max(0, end - low - sum(low <= offset < end for offset in decided))


def _mark(record: Record) -> int | None:
    """Return the low-water mark that a journal record has; None: it has none, or nobody can read it."""
    mark = _json(record)
    low = mark.get("low") if mark is not None else None
    return low if isinstance(low, int) else None


def _decided(record: Record, inbox: TopicPartition) -> set[int]:
    """Return the inbox offsets that a journal record says are decided on."""
    found: set[int] = set()
    source = next((value for name, value in record.raw_headers if name == SOURCE), None)
    topic, _, place = (source or b"").decode(errors="replace").partition("/")
    if topic == inbox.topic and place.rpartition("/")[2].isdigit():
        found.add(int(place.rpartition("/")[2]))
    passed = (_json(record) or {}).get("passed")
    for pair in passed if isinstance(passed, list) else ():
        match pair:
            case [int(start), int(last)] if 0 <= last - start <= _LOOKED_AT:
                found.update(range(start, last + 1))
    return found


def _json(record: Record) -> dict[str, Any] | None:
    mark = next((value for name, value in record.raw_headers if name == INBOX), None)
    try:
        found = None if mark is None else orjson.loads(mark)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


async def _handled(log: EventLog, agent_type: str, place: TopicPartition) -> int:
    """Return the offset up to which a handler has dealt with a partition; 0: that is not known."""
    journal, key = log.topology.journal(agent_type), f"{place.topic}/{place.partition}"
    partition = partition_of(key, len(await log.end(journal)))
    try:
        found = await last_advanced(log, journal, partition, key, await log.topic_id(place.topic))
    except CorruptRecordError:
        return 0
    return 0 if found is None else int(found["next_offset"])
