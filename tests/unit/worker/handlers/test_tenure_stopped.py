"""A handler stops at an event that it cannot take: what came before it is handled once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.agent import BaseHandler
from noesium_stream.errors import EventHeldError, EventValidationError, FencedError, LogUnavailableError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Decoder, Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.worker.handlers import catch_up as handling_past
from noesium_stream.worker.handlers.events import Handling
from noesium_stream.worker.handlers.tenure import HandlerOwner
from noesium_stream.worker.ownership import owner as ownership
from tests.support.handlers import append_by_key, handler_owner
from tests.support.reading import PATIENCE_S, stored


class Sold(DomainEvent, event_type="sales.sold"):
    number: int


class Noted(DomainEvent, event_type="notes.noted"):
    number: int
    before: list[int]


class Numbers(BaseProjection[dict[str, Any]]):
    """What was sold, as a state that can be changed in place."""

    name = "numbers"
    topics = ("events.sales",)
    events = (Sold,)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> dict[str, Any]:
        return {"sold": []}

    def apply(self, state: dict[str, Any], event: EventEnvelope) -> dict[str, Any]:
        return {"sold": [*state["sold"], event.payload["number"]]}


class Noting(BaseHandler):
    agent_type = "noting"
    state = Numbers
    events = (Noted,)

    def handle(self, event: EventEnvelope, state: dict[str, Any]) -> Iterable[DomainEvent]:
        return [Noted(number=event.payload["number"], before=state["sold"])]


class Invalid:
    """Decodes as the log does, and finds that the payload is not valid."""

    def __init__(self, decoder: Decoder) -> None:
        self.decode_unchecked = decoder.decode_unchecked
        self.upcast = decoder.upcast
        self.record_verifier = decoder.record_verifier

    def decode(self, data: bytes) -> EventEnvelope:
        raise EventValidationError("payload", "is not valid")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is taken when `take` returns, however slow the machine is."""
    monkeypatch.setattr(ownership, "TAKING_S", PATIENCE_S)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    log.catalogue.register(Sold)
    log.catalogue.register(Noted)
    await log.ensure_topics([log.topology.spec(log.topology.journal("noting"))])
    await append_by_key(log, [("a", Sold(number=n)) for n in range(6)])
    yield log
    await log.close()


def owner_of(log: EventLog, home: Path, **options: Any) -> HandlerOwner:
    return handler_owner(log, Noting, home, domain="sales", **options)


async def sold(log: EventLog) -> list[Record]:
    return await stored(log, log.topology.events("sales"))


async def noted(log: EventLog) -> list[tuple[int, list[int]]]:
    payloads = [record.envelope.payload for record in await stored(log, log.topology.events("notes"))]
    return [(payload["number"], payload["before"]) for payload in payloads]


def as_invalid(record: Record) -> Record:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.headers,
        record.value,
        Invalid(record._decoder),
    )


@pytest.mark.parametrize("apart", [True, False])
async def test_what_was_handled_before_an_invalid_event_of_its_row_is_handled_once(
    log: EventLog, tmp_path: Path, apart: bool
) -> None:
    """A row is made again then, by `apply` alone: all that was folded since the file was written."""
    owner = owner_of(log, tmp_path)
    await owner.take()
    records = await sold(log)
    batch = [*records[:3], as_invalid(records[3])]
    if apart:
        await owner.accept(batch[:2])
        batch = batch[2:]
    with pytest.raises(EventHeldError, match="is not valid"):
        await owner.accept(batch)
    expected = [(0, []), (1, [0]), (2, [0, 1])]
    assert await noted(log) == expected
    await owner.release()
    again = owner_of(log, tmp_path)
    assert await again.take() == records[3].offset
    await again.accept(records[3:])
    await again.release()
    assert await noted(log) == [*expected, (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4])]


async def test_a_state_that_is_folded_anew_is_written_on_the_way(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes of the memory is bounded, however long the topic is."""
    owner, records = owner_of(log, tmp_path), await sold(log)
    await owner.take()
    await owner.accept(records)
    await owner.release()
    monkeypatch.setattr(handling_past, "UNFLUSHED_BYTES", 1)
    read_batches, flush, written = log.read_batches, PartitionFold.flush, list[int]()

    async def one_by_one(*args: Any, **options: Any) -> AsyncIterator[Sequence[Record]]:
        async for batch in read_batches(*args, **options):
            for record in batch:
                yield [record]

    def flushing(fold: PartitionFold[Any]) -> None:
        flush(fold)
        written.append(fold.cursor)

    monkeypatch.setattr(log, "read_batches", one_by_one)
    monkeypatch.setattr(PartitionFold, "flush", flushing)
    elsewhere = owner_of(log, tmp_path / "another machine")
    assert await elsewhere.take() == 6
    assert written == [1, 2, 3, 4, 5, 6, 6]
    await elsewhere.release()


async def test_what_stops_an_owner_that_has_lost_the_partition_meanwhile_does_not_stop_it_anew(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is handled, and has no commit yet, does not count as handled."""
    taken = list[object]()
    taken_again = asyncio.Event()

    def told() -> None:
        taken.append(owner.tenure)
        taken_again.set()

    owner, records = owner_of(log, tmp_path, on_change=told), await sold(log)
    await owner.take()
    outgoing, asked, go_on = Handling.outgoing, asyncio.Event(), asyncio.Event()

    async def slowly(handling: Handling, made: Any) -> Any:
        asked.set()
        await go_on.wait()
        raise LogUnavailableError("told to")

    monkeypatch.setattr(Handling, "outgoing", slowly)
    accepting = asyncio.create_task(owner.accept(records[:2]))
    await asked.wait()
    status = owner.status(2)
    assert status is not None
    assert status.next_offset == 0
    owner.lose(FencedError("told to"))
    async with asyncio.timeout(PATIENCE_S):
        await taken_again.wait()
        go_on.set()
        await accepting
        assert owner.tenure is not None
        monkeypatch.setattr(Handling, "outgoing", outgoing)
        await owner.accept(records)
    assert taken == [owner.tenure], "it is not taken once more"
    assert [number for number, _ in await noted(log)] == list(range(6))
    await owner.release()
