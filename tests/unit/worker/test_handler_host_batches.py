"""What a group hands over is handled while commits are under way, as long as those are not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

import pytest

from noesium_stream.log.port import TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.worker import handler_host
from noesium_stream.worker.handler_host import HandlerHost


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


class Owner:
    def __init__(self, tenure: Tenure) -> None:
        self.tenure = tenure


class Place:
    def __init__(self, partition: int, size: int = 10) -> None:
        self.topic, self.partition, self.value = "facts", partition, b"x" * size


class Group:
    """Has so many more records of partition 1."""

    many = 0

    def behind(self, tp: TopicPartition) -> int:
        return self.many if tp.partition == 1 else 0


RECORDS: Any = [Place(0), Place(1), Place(0)]
GIVEN = ["owner 0 is given 2", "owner 1 is given 1"]
UNDER_WAY = ["owner 0 is under way", "owner 1 is under way"]


def host(said: list[str], log: asyncio.Event) -> Any:
    made: Any = object.__new__(HandlerHost)
    made._owners = {TopicPartition("facts", n): Owner(Tenure(f"owner {n}", said, log)) for n in (0, 1)}
    made._accepting, made._events, made._bytes, made._broken = {}, 0, 0, None
    made._closing, made._eased = False, asyncio.Event()
    made._subscription, made._failure = Group(), asyncio.get_running_loop().create_future()
    return made


async def test_the_group_reads_on_while_commits_are_under_way() -> None:
    said, log = list[str](), asyncio.Event()
    made = host(said, log)
    for _ in range(2):
        await made._handle(RECORDS)
        assert said == GIVEN + UNDER_WAY
        said.clear()
    assert (made._events, made._bytes) == (6, 60)
    log.set()
    await asyncio.gather(*made._accepting)
    await asyncio.sleep(0)
    assert (made._accepting, made._events, made._bytes) == ({}, 0, 0)


@pytest.mark.parametrize(("bound", "value"), [("MOST_EVENTS", 5), ("MOST_BYTES", 50)])
async def test_the_group_reads_no_further_than_so_far_ahead_of_the_log(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(handler_host, bound, value)
    said, log = list[str](), asyncio.Event()
    made = host(said, log)
    await made._handle(RECORDS)
    handling = asyncio.create_task(made._handle(RECORDS))
    for owner in made._owners.values():
        await owner.tenure.hurried.wait()
    assert not handling.done()
    log.set()
    await handling


async def test_an_owner_is_told_where_many_more_are_there() -> None:
    said, log = list[str](), asyncio.Event()
    made = host(said, log)
    made._subscription.many = handler_host.MANY
    await made._handle(RECORDS)
    assert said[:2] == ["owner 0 is given 2", "owner 1 is given 1 of many"]
    log.set()
    await asyncio.gather(*made._accepting)


async def test_a_partition_that_is_given_up_meanwhile_is_asked_all_the_same() -> None:
    said, log = list[str](), asyncio.Event()
    made = host(said, log)
    handling = asyncio.create_task(made._handle(RECORDS))
    while not said:
        await asyncio.sleep(0)
    del made._owners[TopicPartition("facts", 1)]
    log.set()
    await handling
    assert "owner 1 is under way" in said


async def test_what_one_owner_raises_ends_the_handling_and_the_host() -> None:
    said, log = list[str](), asyncio.Event()
    made = host(said, log)
    made._owners[TopicPartition("facts", 1)].tenure.fails = OSError("the disk is gone")
    with suppress(OSError):  # it may be heard of at once
        await made._handle(RECORDS)
    with pytest.raises(OSError, match="the disk is gone"):
        await made._handle(RECORDS)
    assert isinstance(made._failure.exception(), OSError), "also where nothing more is handed over"
    log.set()
    await asyncio.gather(*made._accepting)


async def test_who_is_cancelled_cancels_what_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_host, "MOST_EVENTS", 0)
    said, log = list[str](), asyncio.Event()
    handling = asyncio.create_task(host(said, log)._handle(RECORDS))
    while "owner 1 is under way" not in said:
        await asyncio.sleep(0)
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    while "owner 1 is cancelled" not in said:
        await asyncio.sleep(0)
    assert "owner 0 is cancelled" in said
