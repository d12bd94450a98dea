"""What is on a log when all is over, and what was asked for and done beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.run_life import ENDINGS as TERMINAL
from noesium_stream.event.standard import EventValidationFailed
from noesium_stream.log.generations import generations
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.log.topics import generation_of


@dataclass(slots=True)
class Call:
    """A call that reached the outside.

    Attributes:
        key: the idempotency key that it came with.
        kind: `pure`, `idempotent`, `external`, or `undo`.
        process: who called.
        begun_s, ended_s: when, on the outside's clock; None: the caller did not live to see the end.
        outcome: `done`, `refused`, or None: it was begun, and nothing came of it.
    """

    key: str
    kind: str
    words: str
    process: str
    begun_s: float
    ended_s: float | None = None
    outcome: str | None = None
    result: Any = None


@dataclass(frozen=True, slots=True)
class Asked:
    """An accepted command: a run of `agent_type`, and what it may give (`any_of`, None: anything) if it
    completes.
    """

    run_id: str
    agent_type: str
    any_of: Sequence[Any] | None = None


@dataclass(slots=True)
class Book:
    """What is on a log: records by topic; those of journals and inboxes by agent type, and those of its later
    generations by `TYPE.g2` and so on.
    """

    journals: dict[str, list[Record]] = field(default_factory=dict)
    inboxes: dict[str, list[Record]] = field(default_factory=dict)
    letters: list[Record] = field(default_factory=list)
    runs: dict[str, list[EventEnvelope]] = field(default_factory=dict)

    def refused(self) -> dict[bytes, list[Record]]:
        """The dead letters, by the places of the records that they are about."""
        found: dict[bytes, list[Record]] = {}
        for record in self.letters:
            if record.event_type == EventValidationFailed.TYPE:
                payload = record.envelope.payload
                place = f"{payload['topic']}/{payload['partition']}/{payload['offset']}"
                found.setdefault(place.encode(), []).append(record)
        return found

    def all(self) -> Iterator[Record]:
        for records in (*self.journals.values(), *self.inboxes.values(), self.letters):
            yield from records


async def read_book(log: EventLog, agent_types: Iterable[str]) -> Book:
    """Read journals, inboxes and dead letters to their high watermarks."""
    book = Book()
    for kind in agent_types:
        for generation in await generations(log, kind):
            name = kind if generation.number == 1 else f"{kind}.g{generation.number}"
            book.journals[name] = await read_topic(log, generation.journal)
            book.inboxes[name] = await read_topic(log, generation.inbox)
            for record in book.journals[name]:
                if record.header(SEQUENCE) is not None:
                    book.runs.setdefault(record.key, []).append(record.envelope)
    book.letters = await read_topic(log, log.topology.dlq)
    return book


async def read_topic(log: EventLog, topic: str) -> list[Record]:
    """All committed records of a topic, partition by partition; none where it does not exist."""
    if generation_of(topic) == 1:
        await log.ensure_topics([log.topology.spec(topic)])
    records: list[Record] = []
    async for batch in log.read_batches(topic, {}, until=await log.end(topic)):
        records += batch
    return sorted(records, key=lambda record: (record.partition, record.offset))


def outcome_of(book: Book, run_id: str) -> EventEnvelope | None:
    """The first terminal event of a run."""
    return next((event for event in book.runs.get(run_id, ()) if event.event_type in TERMINAL), None)


def source_of(record: Record) -> bytes:
    """The place of a record, as its copies name it."""
    return f"{record.topic}/{record.partition}/{record.offset}".encode()


def at(record: Record) -> str:
    """The place of a record, for people."""
    return f"{record.topic}/{record.partition}@{record.offset}"
