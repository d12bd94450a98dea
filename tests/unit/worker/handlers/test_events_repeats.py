"""A fact that was appended again is handled and folded once, whoever owns the partition by then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import ClassVar

import pytest

from noesium_stream.agent import BaseHandler
from noesium_stream.clock import VirtualClock
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold import repeats
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S

ANN, BOB = AgentRef("ann", "shop"), AgentRef("bob", "shop")
CLOCK = VirtualClock()


class Paid(DomainEvent, event_type="orders.paid"):
    amount: int


class Noted(DomainEvent, event_type="orders.noted"):
    """Nobody reads it."""


class Summed(DomainEvent, event_type="sums.summed"):
    total: int


class Total(BaseProjection[int]):
    name = "total"
    topics = ("events.orders",)
    event_types = ("orders.paid",)
    events = (Paid, Noted)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["amount"])


class Summing(BaseHandler):
    agent_type = "summing"
    state = Total
    events = (Paid, Summed)
    handled: ClassVar[list[int]] = []

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        yield Summed(total=state + event.payload["amount"])


@pytest.fixture(params=["memory://", "sqlite:///{}/log.db"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(f"{request.param.format(tmp_path)}?partitions=1")
    for event in (Paid, Noted, Summed):
        log.catalogue.register(event)
    yield log
    await log.close()


def paid(amount: int, producer: AgentRef = ANN) -> EventEnvelope:
    return enveloped(Paid(amount=amount), producer)


def enveloped(event: DomainEvent, producer: AgentRef = ANN) -> EventEnvelope:
    return event.to_envelope(producer, TraceContext("1" * 32, "2" * 16), partition_key="k", clock=CLOCK)


async def totals(log: EventLog, count: int) -> list[int]:
    """What the handler has made, as soon as it is so much."""
    topic = log.topology.events("sums")
    await log.ensure_topics([log.topology.spec(topic)])
    found: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        async for record in log.read(topic, {}):
            found.append(record.envelope.payload["total"])
            if len(found) == count:
                return found
    raise AssertionError(found)


def worker(log: EventLog, home: Path) -> Worker:
    return Worker(log, [Summing], home=home)


async def test_an_event_that_comes_again_is_handled_once(log: EventLog, tmp_path: Path) -> None:
    one = paid(1)
    await log.append([one])
    await log.append([one])
    async with worker(log, tmp_path):
        assert await totals(log, 1) == [1]
        await log.append([one])
        await log.append([paid(10)])
        assert await totals(log, 2) == [1, 11]


@pytest.mark.parametrize("same_machine", [True, False])
async def test_a_new_owner_knows_what_its_predecessors_have_handled(
    log: EventLog, tmp_path: Path, same_machine: bool
) -> None:
    one, two = paid(1), paid(2)
    await log.append([one])
    await log.append([one])
    async with worker(log, tmp_path / "first"):
        assert await totals(log, 1) == [1]
        await log.append([two])
        assert await totals(log, 2) == [1, 3]
    await log.append([two])
    await log.append([one])
    await log.append([paid(10)])
    async with worker(log, tmp_path / ("first" if same_machine else "second")):
        assert await totals(log, 3) == [1, 3, 13]


async def test_the_event_id_of_another_producer_takes_no_event_away(log: EventLog, tmp_path: Path) -> None:
    forged = paid(1, BOB)
    await log.append([forged])
    await log.append([paid(10).replace(event_id=forged.event_id)])
    async with worker(log, tmp_path):
        assert await totals(log, 2) == [1, 11]


async def test_an_event_that_comes_again_beyond_the_window_counts_again_for_every_owner(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "WINDOW", 3)
    one = paid(1)
    for event in (one, enveloped(Noted()), enveloped(Noted()), enveloped(Noted()), one, paid(10)):
        await log.append([event])
    async with worker(log, tmp_path / "first"):
        assert await totals(log, 3) == [1, 2, 12]
    for event in (one, paid(100)):
        await log.append([event])
    async with worker(log, tmp_path / "second"):
        assert await totals(log, 4) == [1, 2, 12, 112]
