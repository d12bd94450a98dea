"""What a group hands over is handled while commits are under way, as long as those are not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

import pytest

from noesium_stream.log.record import Record
from noesium_stream.worker.handlers.ahead import MANY, Batch, HandledAhead, batches_of


class Tenure:
    """Handles a batch, hands it to the log, and waits for it."""

    def __init__(self, name: str, said: list[str], log: asyncio.Event) -> None:
        self.name = name
        self.said = said
        self.log = log
        self.fails: Exception | None = None
        self.hurried = asyncio.Event()

    def accept(self, records: Sequence[Record], *, more: bool = False) -> Coroutine[Any, Any, None]:
        self.said.append(f"{self.name} is given {len(records)}{' of many' if more else ''}")
        return self._accept(records)

    async def _accept(self, records: Sequence[Record]) -> None:
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        self.said.append(f"{self.name} is under way")
        try:
            await self.log.wait()
        except asyncio.CancelledError:
            self.said.append(f"{self.name} is cancelled")
            raise

    def hurry(self) -> None:
        self.hurried.set()


class Place:
    def __init__(self, partition: int, size: int = 10) -> None:
        self.topic, self.partition, self.value = "facts", partition, b"x" * size


RECORDS: Any = [Place(0), Place(1), Place(0)]
GIVEN = ["owner 0 is given 2", "owner 1 is given 1"]
UNDER_WAY = ["owner 0 is under way", "owner 1 is under way"]


class Handler:
    """A handler with a tenure of each of two partitions."""

    def __init__(self, **bounds: int) -> None:
        self.said: list[str] = []
        self.log = asyncio.Event()
        self.tenures = {n: Tenure(f"owner {n}", self.said, self.log) for n in (0, 1)}
        self.more = 0
        self.failures: list[BaseException] = []
        self.ahead = HandledAhead(self.failures.append, **bounds)

    def batches(self) -> list[Batch]:
        """The records, as each tenure gets them; there are `more` of partition 1."""
        return batches_of(
            RECORDS,
            lambda place: self.tenures.get(place.partition),
            lambda place: self.more if place.partition == 1 else 0,
        )

    async def handle(self) -> None:
        """Handle the records."""
        await self.ahead.handle(self.batches(), self.hurry)

    def hurry(self) -> None:
        """Tell all tenures."""
        for tenure in self.tenures.values():
            tenure.hurry()


async def test_the_group_reads_on_while_commits_are_under_way() -> None:
    handler = Handler()
    for _ in range(2):
        await handler.handle()
        assert handler.said == GIVEN + UNDER_WAY
        handler.said.clear()
    assert (handler.ahead.events, handler.ahead.size) == (6, 60)
    handler.log.set()
    await handler.ahead.settled()
    await asyncio.sleep(0)
    assert (handler.ahead.events, handler.ahead.size) == (0, 0)


@pytest.mark.parametrize(("bound", "value"), [("most_events", 5), ("most_bytes", 50)])
async def test_the_group_reads_no_further_than_so_far_ahead_of_the_log(bound: str, value: int) -> None:
    handler = Handler(**{bound: value})
    await handler.handle()
    handling = asyncio.create_task(handler.handle())
    for tenure in handler.tenures.values():
        await tenure.hurried.wait()
    assert not handling.done()
    handler.log.set()
    await handling


async def test_who_closes_waits_no_longer_for_the_log() -> None:
    handler = Handler(most_events=0)
    handling = asyncio.create_task(handler.handle())
    await handler.tenures[0].hurried.wait()
    handler.ahead.stop_waiting()
    await handling
    await handler.ahead.close()
    assert {"owner 0 is cancelled", "owner 1 is cancelled"} <= set(handler.said)


async def test_an_owner_is_told_where_many_more_are_there() -> None:
    handler = Handler()
    handler.more = MANY
    await handler.handle()
    assert handler.said[:2] == ["owner 0 is given 2", "owner 1 is given 1 of many"]
    handler.log.set()
    await handler.ahead.settled()


async def test_a_partition_without_an_owner_is_not_handled() -> None:
    handler = Handler()
    del handler.tenures[1]
    await handler.handle()
    assert handler.said == ["owner 0 is given 2", "owner 0 is under way"]
    handler.log.set()
    await handler.ahead.settled()


async def test_a_partition_that_is_given_up_meanwhile_is_asked_all_the_same() -> None:
    handler = Handler()
    handling = asyncio.create_task(handler.handle())
    while not handler.said:
        await asyncio.sleep(0)
    del handler.tenures[1]
    handler.log.set()
    await handling
    assert "owner 1 is under way" in handler.said


async def test_what_one_owner_raises_ends_the_handling_and_the_host() -> None:
    handler = Handler()
    handler.tenures[1].fails = OSError("the disk is gone")
    with suppress(OSError):  # it may be heard of at once
        await handler.handle()
    with pytest.raises(OSError, match="the disk is gone"):
        await handler.handle()
    [failure] = handler.failures
    assert isinstance(failure, OSError), "also where nothing more is handed over"
    handler.log.set()
    await handler.ahead.settled()


async def test_who_is_cancelled_cancels_what_it_began() -> None:
    handler = Handler(most_events=0)
    handling = asyncio.create_task(handler.handle())
    while "owner 1 is under way" not in handler.said:
        await asyncio.sleep(0)
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    while "owner 1 is cancelled" not in handler.said:
        await asyncio.sleep(0)
    assert "owner 0 is cancelled" in handler.said
