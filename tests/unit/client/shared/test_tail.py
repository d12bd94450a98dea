"""All who wait for records of a partition share one reader, and none of them holds another up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from noesium_stream.client import Client
from noesium_stream.client.shared import tail as shared_tail
from noesium_stream.client.shared.tail import SharedTails, shared_tails
from noesium_stream.errors import LogTruncatedError, LogUnavailableError
from noesium_stream.event import DomainEvent
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, TopicPartition
from tests.support.reading import PATIENCE_S


class Counted(DomainEvent, event_type="things.counted"):
    number: int


class Log:
    """A log that counts its live readers and its requests, and whose readers can be made to fail."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.live = self.opened = self.bounded = self.ends = 0
        self.failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def end(self, topic: str) -> dict[int, int]:
        self.ends += 1
        return await self._log.end(topic)

    def read_batches(self, topic: str, cursor: Any, **options: Any) -> AsyncIterator[Any]:
        if options.get("until") is None:
            return self._live(topic, cursor, **options)
        self.bounded += 1
        return self._log.read_batches(topic, cursor, **options)

    async def _live(self, topic: str, cursor: Any, **options: Any) -> AsyncIterator[Any]:
        self.live, self.opened = self.live + 1, self.opened + 1
        source = self._log.read_batches(topic, cursor, **options)
        batch: asyncio.Future[Any] = asyncio.ensure_future(anext(source))
        try:
            while True:
                await asyncio.wait((batch, self.failure), return_when=asyncio.FIRST_COMPLETED)
                if not batch.done():
                    raise self.failure.result()
                yield batch.result()
                batch = asyncio.ensure_future(anext(source))
        finally:
            self.live -= 1
            batch.cancel()
            await asyncio.wait((batch,))


class Place:
    """A partition of a log, its shared readers, and who publishes to it."""

    def __init__(self, log: Log, client: Client) -> None:
        self.log, self.client, self.tails = log, client, SharedTails()
        self.at = TopicPartition(log.topology.events("things"), 0)

    async def put(self, key: str, *numbers: int) -> None:
        for number in numbers:
            await self.client.publish(Counted(number=number), key=key)

    async def taken(self, key: str, count: int, first: int = 0) -> list[int]:
        found: list[int] = []
        async with aclosing(self.tails.follow(self.log, self.at, key, first)) as records:
            async for record in records:
                found.append(record.unchecked.payload["number"])
                if len(found) == count:
                    break
        return found


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    log = await open_log("memory://?partitions=1")
    async with Client(log) as client:
        made = Place(Log(log), client)
        await made.put("old", *range(10))
        yield made
        await made.tails.close()
        assert made.log.live == 0
    await log.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


async def test_all_who_wait_share_one_reader_and_one_request(place: Place) -> None:
    waiting = [asyncio.create_task(place.taken(f"k{n}", 3)) for n in range(50)]
    await until(lambda: len(place.tails._tails) == 1)
    for number in range(3):
        for n in range(50):
            await place.put(f"k{n}", number)
    assert await asyncio.gather(*waiting) == [[0, 1, 2]] * 50
    assert (place.log.opened, place.log.ends, place.log.bounded) == (1, 1, 0)


async def test_the_place_of_a_run_costs_no_request_while_somebody_reads(place: Place) -> None:
    assert await asyncio.gather(*(place.tails.end(place.log, place.at) for _ in range(20))) == [10] * 20
    assert place.log.ends == 1
    assert await place.taken("old", 10) == list(range(10))
    assert await place.tails.end(place.log, place.at) == 10
    assert place.log.ends == 2  # the reader's own: it began near the end


async def test_who_begins_far_back_reads_alone_and_goes_on_with_all(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_tail, "BACK", 4)
    old = asyncio.create_task(place.taken("old", 12))
    await until(lambda: place.log.opened)
    await place.put("old", 10, 11)
    assert await old == list(range(12))
    assert (place.log.opened, place.log.bounded) == (1, 1)
    assert await place.taken("old", 2, first=10) == [10, 11]
    assert place.log.bounded == 1, "the shared reader still has them"


async def test_who_does_not_take_its_records_is_cut_off_and_misses_none(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_tail, "MAX_WAITING", 5)
    monkeypatch.setattr(shared_tail, "RECENT", 20)
    slow = place.tails.follow(place.log, place.at, "slow", 10)
    await place.put("slow", 0)
    found = [(await anext(slow)).unchecked.payload["number"]]
    await place.put("slow", *range(1, 60))
    assert await place.taken("slow", 60) == list(range(60)), "nobody is held up"
    (tail,) = place.tails._tails.values()
    assert len(tail._recent) == sum(map(len, tail._recent_of.values())) == 20
    assert [len(one._records) for one in tail._waiters["slow"]] == [5]
    async for record in slow:
        found.append(record.unchecked.payload["number"])
        if len(found) == 60:
            break
    assert found == list(range(60))
    await slow.aclose()


async def test_a_wait_that_is_cancelled_leaves_nothing_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_tail, "IDLE_S", 0.0)
    waiting = [asyncio.create_task(place.taken("nobody", 1)) for _ in range(5)]
    await until(lambda: place.log.live)
    (tail,) = place.tails._tails.values()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert tail._waiters == {}
    await until(lambda: place.log.live == 0)
    assert place.tails._tails == {}
    assert await place.taken("old", 10) == list(range(10)), "the next one reads again"


async def test_who_begins_before_retention_is_told_and_nobody_else(place: Place) -> None:
    await place.log.truncate(place.at.topic, {0: 5})
    late, fresh = (asyncio.create_task(place.taken("old", 6, first)) for first in (0, 5))
    await place.put("old", 10)
    with pytest.raises(LogTruncatedError):
        await late
    assert await fresh == [5, 6, 7, 8, 9, 10]


async def test_all_are_told_when_the_reader_fails_and_the_next_one_reads_anew(place: Place) -> None:
    waiting = [asyncio.create_task(place.taken("k", 1)) for _ in range(3)]
    await until(lambda: place.log.live)
    place.log.failure.set_result(LogUnavailableError("the broker is away"))
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in ended] == [LogUnavailableError] * 3
    place.log.failure = asyncio.get_running_loop().create_future()
    assert await place.taken("old", 10) == list(range(10))


async def test_a_log_has_its_shared_readers_once_and_keeps_them_no_longer_than_itself() -> None:
    log = await open_log("memory://")
    assert shared_tails(log) is shared_tails(log)
    other = await open_log("memory://")
    assert shared_tails(other) is not shared_tails(log)
    await log.close()
    await other.close()
