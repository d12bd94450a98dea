"""Agents without a graph: each event is handled once, whatever dies, with the state of those before it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from noesium_stream.agent import BaseHandler
from noesium_stream.client import Client
from noesium_stream.errors import CommitUnknownError, ConfigError, EventHeldError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.projection.base import BaseProjection
from noesium_stream.worker import Worker
from tests.support.handlers import append_by_key
from tests.support.reading import PATIENCE_S


class Paid(DomainEvent, event_type="orders.paid"):
    customer: str
    amount: int


class Reached(DomainEvent, event_type="loyalty.reached"):
    """A customer has paid a multiple of ten."""

    customer: str
    total: int


class Totals(BaseProjection[int]):
    """What each customer has paid."""

    name = "totals"
    topics = ("events.orders",)
    event_types = ("orders.",)
    events = (Paid,)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["amount"])


class Loyalty(BaseHandler):
    agent_type = "loyalty"
    state = Totals
    events = (Paid, Reached)
    seen: ClassVar[list[tuple[str, int, int]]] = []

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        paid = Paid(**event.payload)
        self.seen.append((paid.customer, state, paid.amount))
        if paid.amount < 0:
            raise ValueError("nobody pays less than nothing")
        if (state + paid.amount) // 10 > state // 10:
            yield Reached(customer=paid.customer, total=state + paid.amount)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    Loyalty.seen = []
    log = await open_log("memory://")
    for event in (Paid, Reached):
        log.catalogue.register(event)
    yield log
    await log.close()


def worker(log: EventLog, home: Path) -> Worker:
    return Worker(log, [Loyalty], home=home)


async def pay(log: EventLog, *amounts: int, customers: Iterable[str] = ("a", "b", "c")) -> None:
    customers = list(customers)
    await append_by_key(
        log, [(name, Paid(customer=name, amount=amount)) for amount in amounts for name in customers]
    )


async def reached(log: EventLog, count: int) -> dict[str, list[int]]:
    """The totals that were told, by customer, as soon as there are so many; then no more may come."""
    found: dict[str, list[int]] = {}
    topic = log.topology.events("loyalty")
    await log.ensure_topics([log.topology.spec(topic)])
    async with asyncio.timeout(PATIENCE_S):
        async for record in log.read(topic, {}):
            event = record.envelope
            found.setdefault(event.payload["customer"], []).append(event.payload["total"])
            if sum(map(len, found.values())) >= count:
                break
    return found


async def all_reached(log: EventLog) -> list[EventEnvelope]:
    topic = log.topology.events("loyalty")
    return [record.envelope async for record in log.read(topic, {}, until=await log.end(topic))]


async def test_each_event_is_handled_with_the_state_before_it(log: EventLog, tmp_path: Path) -> None:
    await pay(log, 4, 4, 4)
    async with worker(log, tmp_path):
        assert await reached(log, 3) == {"a": [12], "b": [12], "c": [12]}
        await pay(log, 9)
        assert await reached(log, 6) == {"a": [12, 21], "b": [12, 21], "c": [12, 21]}
    by_customer = [(state, amount) for customer, state, amount in Loyalty.seen if customer == "a"]
    assert by_customer == [(0, 4), (4, 4), (8, 4), (12, 9)]


async def test_what_is_made_says_what_it_came_of(log: EventLog, tmp_path: Path) -> None:
    await pay(log, 10, customers=["a"])
    async with worker(log, tmp_path):
        await reached(log, 1)
    (made,) = await all_reached(log)
    orders = log.topology.events("orders")
    (paid,) = [record.envelope async for record in log.read(orders, {}, until=await log.end(orders))]
    assert made.causation_id == made.correlation_id == paid.event_id
    assert made.trace.trace_id == paid.trace.trace_id
    assert (made.partition_key, made.producer.agent_type) == ("a", "loyalty")
    assert made.idempotency_key == f"loyalty/{paid.event_id}/0"


async def test_the_next_process_goes_on_where_the_last_one_was_with_its_state(
    log: EventLog, tmp_path: Path
) -> None:
    await pay(log, 6)
    async with worker(log, tmp_path / "one"):
        await until_handled(log, 3)
    Loyalty.seen = []
    await pay(log, 6)
    async with worker(log, tmp_path / "one"):
        await reached(log, 3)
    assert sorted(Loyalty.seen) == [("a", 6, 6), ("b", 6, 6), ("c", 6, 6)]
    Loyalty.seen = []
    await pay(log, 9)
    async with worker(log, tmp_path / "another machine"):  # which has no file: the state is folded again
        assert await reached(log, 6) == {name: [12, 21] for name in "abc"}
    assert sorted(Loyalty.seen) == [("a", 12, 9), ("b", 12, 9), ("c", 12, 9)]


async def until_handled(log: EventLog, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while sum([one.payload["handled"] for one in await advanced(log)]) < count:
            await asyncio.sleep(0.01)


async def advanced(log: EventLog) -> list[EventEnvelope]:
    journal = log.topology.journal("loyalty")
    until = await log.end(journal)
    types = ("handler.advanced",)
    return [record.envelope async for record in log.read(journal, {}, until=until, types=types)]


@pytest.mark.parametrize("landed", [True, False])
async def test_a_commit_of_unknown_outcome_is_looked_up_on_the_log(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    open_writer, unknown = log.writer, [True]

    async def writer(writer_id: str, **options: Any) -> Any:
        opened = await open_writer(writer_id, **options)
        commit = opened.commit

        async def committing(outgoing: Any) -> Any:
            if unknown and any(one.envelope.event_type == "loyalty.reached" for one in outgoing):
                unknown.clear()
                if landed:
                    await commit(outgoing)
                raise CommitUnknownError("told to")
            return await commit(outgoing)

        opened.commit = committing  # type: ignore[method-assign]
        return opened

    monkeypatch.setattr(log, "writer", writer)
    await pay(log, 12, customers=["a"])
    async with worker(log, tmp_path):
        assert await reached(log, 1) == {"a": [12]}
        await pay(log, 8, customers=["a"])
        assert await reached(log, 2) == {"a": [12, 20]}
    assert not unknown
    made = Counter(event.payload["total"] for event in await all_reached(log))
    assert made == {12: 1, 20: 1}


async def test_who_was_fenced_makes_nothing_more_and_the_new_owner_goes_on(
    log: EventLog, tmp_path: Path
) -> None:
    await pay(log, 6)
    async with worker(log, tmp_path / "one"):
        await until_handled(log, 3)
        async with worker(log, tmp_path / "two"):
            await pay(log, 6, 6, 6)
            assert await reached(log, 6) == {name: [12, 24] for name in "abc"}
    assert Counter(event.payload["total"] for event in await all_reached(log)) == {12: 3, 24: 3}


async def test_an_event_that_cannot_be_handled_stops_the_worker_and_is_named(
    log: EventLog, tmp_path: Path
) -> None:
    await pay(log, 12, -1, 9, customers=["a"])
    async with worker(log, tmp_path) as working:
        with pytest.raises(EventHeldError, match="nobody pays less than nothing") as stopped:
            await asyncio.wait_for(working.wait(), PATIENCE_S)
    assert stopped.value.message.startswith("The handler loyalty stops. ")
    assert "Mend `handle`" in (stopped.value.hint or "")
    assert [event.payload["total"] for event in await all_reached(log)] == [12]
    assert [one.payload["next_offset"] for one in await advanced(log)] == [1]


class ByAmount(Totals):
    name = "by-amount"

    def key(self, event: EventEnvelope) -> str | None:
        return f"paid {event.payload['amount']}" if event.payload["amount"] > 9 else event.partition_key


class ByAmountHere(ByAmount):
    name = "by-amount-here"
    local_keys = True


class Sorting(Loyalty):
    agent_type = "sorting"
    state = ByAmount


class SortingHere(Loyalty):
    agent_type = "sorting-here"
    state = ByAmountHere


async def test_an_event_whose_key_is_not_its_partition_key_stops_the_handler(
    log: EventLog, tmp_path: Path
) -> None:
    await pay(log, 4, 10, customers=["a"])
    async with Worker(log, [Sorting], home=tmp_path) as working:
        with pytest.raises(EventHeldError, match="is 'paid 10', and the partition key is 'a'") as stopped:
            await asyncio.wait_for(working.wait(), PATIENCE_S)
    assert stopped.value.message.startswith("The handler sorting stops. It cannot take the event at ")
    assert "local_keys = True in ByAmount" in (stopped.value.hint or "")
    assert [seen[2] for seen in Loyalty.seen] == [4]


async def test_a_state_per_partition_can_be_asked_for(log: EventLog, tmp_path: Path) -> None:
    await pay(log, 10, 10, customers=["a"])
    async with Worker(log, [SortingHere], home=tmp_path):
        assert await reached(log, 2) == {"a": [10, 20]}


class Careless(Loyalty):
    agent_type = "careless"

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        amount = event.payload["amount"]
        yield Reached.model_construct(customer="a", total=amount if amount < 50 else "much")

    def partition_key_of(self, made: DomainEvent, event: EventEnvelope) -> str | None:
        if made.total == 40:  # type: ignore[attr-defined]
            raise ValueError("no key for 40")
        return event.partition_key


class Vague(Loyalty):
    agent_type = "vague"

    def handle(self, event: EventEnvelope, state: int) -> Any:
        amount = event.payload["amount"]
        return {1: [{"total": 1}], 2: Reached(customer="a", total=1)}[amount]


@pytest.mark.parametrize(
    ("amount", "what"), [(1, "gave a dict"), (2, "gave a tuple"), (3, r"3 \(.*in handle\)")]
)
async def test_a_handler_that_gives_no_list_of_events_is_told_so_and_where_it_fails(
    log: EventLog, tmp_path: Path, amount: int, what: str
) -> None:
    await pay(log, amount, customers=["a"])
    async with Worker(log, [Vague], home=tmp_path) as working:
        with pytest.raises(EventHeldError, match=rf"handler vague stops. It cannot take the event .*{what}"):
            await asyncio.wait_for(working.wait(), PATIENCE_S)


@pytest.mark.parametrize(("amount", "what"), [(50, "total"), (40, "no key for 40")])
@pytest.mark.parametrize("before", [(), (1, 2, 3)])
async def test_what_is_made_and_unsound_stops_the_worker_whether_its_kind_was_made_before_or_not(
    log: EventLog, tmp_path: Path, before: tuple[int, ...], amount: int, what: str
) -> None:
    await log.ensure_topics([log.topology.spec(log.topology.events("loyalty"))])
    async with Worker(log, [Careless], home=tmp_path) as working:
        for number, one in enumerate(before):
            await pay(log, one, customers=["a"])
            assert len((await reached(log, number + 1))["a"]) == number + 1
        await pay(log, amount, customers=["a"])
        with pytest.raises(EventHeldError, match=rf"cannot take the event at .*orders/\d@.*{what}"):
            await asyncio.wait_for(working.wait(), PATIENCE_S)
    assert [event.payload["total"] for event in await all_reached(log)] == list(before)


async def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pay(log, 6)
    async with worker(log, tmp_path):
        await until_handled(log, 3)
    Loyalty.seen = []

    async def another(topic: str) -> str:
        return "another"

    monkeypatch.setattr(log, "topic_id", another)
    await pay(log, 6)
    async with worker(log, tmp_path):
        assert await reached(log, 3) == {name: [12] for name in "abc"}
    assert sorted(Loyalty.seen) == [(name, state, 6) for name in "abc" for state in (0, 6)]


async def test_a_handler_shows_among_the_workers(log: EventLog, tmp_path: Path) -> None:
    await pay(log, 1)
    async with worker(log, tmp_path) as working:
        await until_handled(log, 3)
        assert working.health().partitions["loyalty"]
        async with Client(log) as client:
            assert await client.agent_types() == ["loyalty"]
            async with asyncio.timeout(PATIENCE_S):
                while not all(one.epoch == 1 and one.lag == 0 for one in await client.workers()):
                    await asyncio.sleep(0.01)
            assert {one.topic for one in await client.workers()} == {log.topology.events("orders")}
            # Who looks for runs makes no inbox for who has none.
            assert [
                *await client.list_runs(),
                *await client.unresolved_effects(),
                *await client.approvals(),
            ] == []
            assert log.topology.inbox("loyalty") not in await log.layout()


async def test_what_a_handler_declares_is_judged_before_it_starts(log: EventLog, tmp_path: Path) -> None:
    class Nothing(Loyalty):
        state = int  # type: ignore[assignment]

    class Headers(Totals):
        headers_only = True

    class Blind(Loyalty):
        state = Headers

    class Waiting(Loyalty):
        async def handle(self, event: EventEnvelope, state: int) -> Any:  # type: ignore[override]
            return []

    for handler, said in (
        (Nothing, "not the class of a projection"),
        (Blind, "reads their headers alone"),
        (Waiting, "Waiting.handle is an `async def`"),
    ):
        with pytest.raises(ConfigError, match=said):
            async with Worker(log, [handler], home=tmp_path):
                pass
