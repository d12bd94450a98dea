"""What a log holds about a data subject: sealed records, readable ones, runs, and texts that were sealed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from noesium_stream.errors import CorruptRecordError, EventValidationError, TopicNotFoundError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.sealing.seal import SEALED, is_erased, sealed_keys, subjects_of
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record

SHORTEST: Final = 8
"""Characters of a text that is looked for by itself: shorter ones are found everywhere."""
MOST_TEXTS: Final = 200
"""Texts that are looked for: the longest ones of those that were sealed."""
MOST_PLACES: Final = 1_000

_TOLD: Final = frozenset({"error_type", "message", "traceback", "where", "hint", "stack_trace"})
"""Fields with words of the program's own."""
_ID: Final = re.compile(r"(?:[a-z]+:)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:/\d+)?")
"""An id of an event, a fact or a run: it says nothing of a person."""
_PRUNE_AT: Final = 20_000


@dataclass
class Survey:
    """What a log holds about a data subject.

    Attributes:
        records: the number of sealed records, by topic.
        readable: records about the subject that are not sealed, as `TOPIC/PARTITION@OFFSET TYPE`; at most
            1,000.
        open_runs: the ids of runs of the subject that have not ended.
        texts: texts that were sealed, the longest first, at most 200.
        all_texts: how many there are.
        unreadable: sealed records whose key is destroyed already.
    """

    records: Counter[str] = field(default_factory=Counter)
    readable: list[str] = field(default_factory=list)
    open_runs: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    all_texts: int = 0
    unreadable: int = 0


async def survey(log: EventLog, subject: str, keys: Collection[str]) -> Survey:
    """Read the whole log, and say what it holds about a data subject.

    Args:
        log: an open log.
        subject: the data subject.
        keys: the ids of all keys that it has, or has had.

    Raises:
        LogUnavailableError
    """
    found = Survey()
    marks = [key.encode() for key in keys]
    name = orjson.dumps(subject)[1:-1]
    texts: set[str] = set()
    runs: dict[str, bool] = {}
    async for record in records_of(log):
        if any(mark in record.value for mark in marks):
            _take_sealed(found, log, record, keys, texts, runs)
        elif (
            name in record.value and _is_readable(log, record, subject) and len(found.readable) < MOST_PLACES
        ):
            found.readable.append(f"{place_of(record)} {record.event_type}")
    found.open_runs = sorted(run_id for run_id, ended in runs.items() if not ended)
    # Its name is no secret, it is in the event that says that it is erased; those of agents are in topics.
    texts -= {subject, *await _agent_types(log)}
    found.all_texts = len(texts)
    found.texts = _longest(texts)
    return found


async def records_of(log: EventLog) -> AsyncIterator[Record]:
    """All records that a log holds now, topic by topic, by partition and offset."""
    for topic in sorted(await log.layout()):
        try:
            begin, until = await log.beginning(topic), await log.end(topic)
        except TopicNotFoundError:
            continue  # it was removed meanwhile
        async for batch in log.read_batches(topic, begin, until=until):
            for record in batch:
                yield record


async def _agent_types(log: EventLog) -> set[str]:
    prefix = f"{log.topology.namespace}.agent."
    return {name.removeprefix(prefix).split(".")[0] for name in await log.layout() if name.startswith(prefix)}


def place_of(record: Record) -> str:
    """The position of a record."""
    return f"{record.topic}/{record.partition}@{record.offset}"


def _take_sealed(
    found: Survey,
    log: EventLog,
    record: Record,
    keys: Collection[str],
    texts: set[str],
    runs: dict[str, bool],
) -> None:
    try:
        closed = log.decoder.decode_closed(record.value)
        if not set(sealed_keys(closed)) & set(keys):
            return
        event = record.unchecked
        names: list[str] = [] if is_erased(event) else closed.metadata[SEALED]["fields"]
    except (CorruptRecordError, EventValidationError):
        return  # it has the id of a key in it, and nothing that was sealed
    found.unreadable += is_erased(event)
    found.records[record.topic] += 1
    _follow_run(record, event, runs)
    for name in names:
        if name not in _TOLD:
            texts.update(_texts_in(event.payload.get(name)))
    if len(texts) > _PRUNE_AT:
        texts.intersection_update(_longest(texts))


def _follow_run(record: Record, event: EventEnvelope, runs: dict[str, bool]) -> None:
    """Note a run of the subject, from its command on, and whether it has ended."""
    if event.event_type in COMMANDS and event.payload.get("run_id") == record.key:
        runs.setdefault(record.key, False)
    elif event.event_type in ENDINGS and record.key in runs:
        runs[record.key] = True


def _is_readable(log: EventLog, record: Record, subject: str) -> bool:
    """Whether a record is about the subject and is not sealed."""
    try:
        event = log.decoder.decode_unchecked(record.value)
        return SEALED not in event.metadata and subject in subjects_of(event)
    except EventValidationError:
        return False


def _texts_in(value: Any) -> Iterator[str]:
    """The texts in a JSON value that are long enough to be looked for."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str) and len(one.strip()) >= SHORTEST and not _ID.fullmatch(one):
            yield one.strip()


def _longest(texts: Collection[str]) -> list[str]:
    return sorted(texts, key=lambda text: (-len(text), text))[:MOST_TEXTS]
