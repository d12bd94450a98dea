"""A watchdog: once for each thing that does not end in time, whoever owns the partition and dies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noesium_stream import AgentRequest, BaseWatchdog, Client, Overdue
from noesium_stream.errors import ConfigError, TopicNotFoundError
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import WatchdogElapsed
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import AutoClock
from noesium_stream.worker import Worker
from tests.support.reading import eventually, stored

HOUR_MS = 3_600_000


class Placed(DomainEvent, event_type="shop.placed"):
    total: int


class Paid(DomainEvent, event_type="shop.paid"):
    pass


class Late(DomainEvent, event_type="reminders.late"):
    total: int
    due_ms: int


class Unpaid(BaseWatchdog):
    """An order that is not paid within an hour."""

    agent_type = "unpaid"
    topic = "events.shop"
    begins = ("shop.placed",)
    ends = ("shop.paid",)
    within = timedelta(hours=1)
    reads = (Placed, Paid)
    events = (Late,)

    def overdue(self, one: Overdue) -> Iterable[DomainEvent | AgentRequest]:
        yield Late(total=one.payload["total"], due_ms=one.due_ms)


@pytest.fixture
async def clock() -> AutoClock:
    clock = AutoClock()
    clock.attach()
    return clock


@pytest.fixture
async def log(clock: AutoClock) -> AsyncIterator[EventLog]:
    log = await open_log("memory://", clock=clock)
    yield log
    await log.close()


async def late(log: EventLog) -> list[tuple[str | None, int]]:
    try:
        records = await stored(log, log.topology.events("reminders"))
    except TopicNotFoundError:
        return []
    return sorted((record.key, record.envelope.payload["total"]) for record in records)


async def told(log: EventLog) -> int:
    return len(await stored(log, log.topology.events("shop"), types=("watchdog.elapsed",)))


async def test_what_is_not_paid_in_time_is_told_once_and_what_is_paid_is_not(
    log: EventLog, clock: AutoClock, tmp_path: Path
) -> None:
    async with Client(log, clock=clock) as client, Worker(log, [Unpaid], home=tmp_path, clock=clock):
        begun_ms = clock.now_ms()
        for number in range(20):
            await client.publish(Placed(total=number), key=f"order-{number}")
            if number % 2:
                await client.publish(Paid(), key=f"order-{number}")

        async def is_told() -> bool:
            return len(await late(log)) == 10

        await eventually(is_told)
        assert await late(log) == sorted((f"order-{number}", number) for number in range(0, 20, 2))
        due = {
            record.envelope.payload["due_ms"]
            for record in await stored(log, log.topology.events("reminders"))
        }
        assert min(due) >= begun_ms + HOUR_MS
        assert clock.now_ms() >= min(due)


async def test_who_takes_over_tells_what_was_due_meanwhile_and_nothing_twice(
    log: EventLog, clock: AutoClock, tmp_path: Path
) -> None:
    async with Client(log, clock=clock) as client:
        await client.publish(Placed(total=1), key="a")
        await client.publish(Placed(total=2), key="b")
        async with Worker(log, [Unpaid], home=tmp_path / "1", clock=clock):
            await eventually(lambda: late_is(log, [("a", 1), ("b", 2)]))
        await client.publish(Placed(total=3), key="a")
        await client.publish(Placed(total=4), key="c")
        clock.advance(timedelta(days=2))
        await client.publish(Paid(), key="c")  # too late, and nobody was there to say so
        wanted = [("a", 1), ("a", 3), ("b", 2), ("c", 4)]
        for home in ("2", "1", "3"):
            async with Worker(log, [Unpaid], home=tmp_path / home, clock=clock):
                await eventually(lambda: late_is(log, wanted))
        again = await told(log)
        await client.publish(Placed(total=5), key="d")
        async with Worker(log, [Unpaid], home=tmp_path / "4", clock=clock):
            await eventually(lambda: late_is(log, sorted([*wanted, ("d", 5)])))
        assert await told(log) > again


async def late_is(log: EventLog, wanted: list[Any]) -> bool:
    return await late(log) == wanted


async def test_a_forged_or_repeated_time_changes_nothing(
    log: EventLog, clock: AutoClock, tmp_path: Path
) -> None:
    async with Client(log, clock=clock) as client:
        await client.publish(Placed(total=1), key="a")
        (record,) = await stored(log, log.topology.events("shop"))
        begun_ms = record.envelope.timestamp_ms

        def elapsed(**changed: Any) -> WatchdogElapsed:
            fields: dict[str, Any] = {
                "watchdog": "unpaid",
                "begun_id": record.envelope.event_id,
                "due_ms": begun_ms + HOUR_MS,
                "now_ms": begun_ms + HOUR_MS,
            }
            return WatchdogElapsed(**{**fields, **changed})

        forged = [
            elapsed(watchdog="another"),
            elapsed(begun_id="nothing"),
            elapsed(due_ms=0, now_ms=begun_ms + HOUR_MS - 1),
            elapsed(due_ms=-(2**53) + 1, now_ms=-(2**53) + 1),
        ]
        who = AgentRef("x", "client", "local", "i")
        topic = log.topology.events("shop")
        await log.append([root_event(one, who, clock, partition_key="a") for one in forged], topic=topic)
        await client.publish(Paid(), key="a")
        await client.publish(Placed(total=2), key="b")
        async with Worker(log, [Unpaid], home=tmp_path, clock=clock):
            await eventually(lambda: late_is(log, [("b", 2)]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"topic": "agent.*.journal"}, "one topic of facts"),
        ({"topic": "events.*"}, "one topic of facts"),
        ({"ends": ()}, "not a tuple of event types"),
        ({"begins": "shop.placed"}, "not a tuple of event types"),
        ({"within": timedelta(days=9_000)}, "between a millisecond and ten years"),
    ],
)
def test_a_watchdog_that_cannot_be_is_refused(changed: dict[str, Any], said: str) -> None:
    wrong = type("Wrong", (Unpaid,), changed)
    with pytest.raises(ConfigError, match=said):
        wrong.check()


def test_a_watchdog_that_says_too_little_is_refused() -> None:
    class Little(BaseWatchdog):
        agent_type = "little"
        begins = ("shop.placed",)

        def overdue(self, one: Overdue) -> Iterable[DomainEvent]:
            return ()

    with pytest.raises(ConfigError, match="does not declare topic, ends, within"):
        Little.check()
