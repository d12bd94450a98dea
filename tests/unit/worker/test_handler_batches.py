"""What came of several partitions is handled one after the other, while the commits before are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from noesium_stream.log.port import TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.worker.handler_host import HandlerHost


class Owner:
    """Handles a batch, hands it to the log, and waits for it."""

    def __init__(self, name: str, said: list[str], log: asyncio.Event) -> None:
        self.name = name
        self.said = said
        self.log = log
        self.fails: Exception | None = None

    async def accept(self, records: Sequence[Record]) -> None:
        self.said.append(f"{self.name} handles {len(records)}")
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        self.said.append(f"{self.name} is under way")
        try:
            await self.log.wait()
        except asyncio.CancelledError:
            self.said.append(f"{self.name} is cancelled")
            raise


class Place:
    def __init__(self, partition: int) -> None:
        self.topic, self.partition = "facts", partition


RECORDS: Any = [Place(0), Place(1), Place(0)]


def host(said: list[str], log: asyncio.Event) -> Any:
    made: Any = object.__new__(HandlerHost)
    made._owners = {TopicPartition("facts", n): Owner(f"owner {n}", said, log) for n in (0, 1)}
    return made


async def test_the_commit_before_is_under_way_when_the_next_partition_is_handled():
    said, log = list[str](), asyncio.Event()
    handling = asyncio.create_task(host(said, log)._handle(RECORDS))
    while len(said) < 4:
        await asyncio.sleep(0)
    assert said == ["owner 0 handles 2", "owner 0 is under way", "owner 1 handles 1", "owner 1 is under way"]
    assert not handling.done()
    log.set()
    await handling


async def test_a_partition_that_is_given_up_meanwhile_is_asked_all_the_same():
    said, log = list[str](), asyncio.Event()
    made = host(said, log)
    handling = asyncio.create_task(made._handle(RECORDS))
    while not said:
        await asyncio.sleep(0)
    del made._owners[TopicPartition("facts", 1)]
    log.set()
    await handling
    assert "owner 1 handles 1" in said


async def test_what_one_owner_raises_ends_the_handling():
    said, log = list[str](), asyncio.Event()
    made = host(said, log)
    made._owners[TopicPartition("facts", 1)].fails = OSError("the disk is gone")
    with pytest.raises(OSError, match="the disk is gone"):
        await made._handle(RECORDS)
    log.set()


async def test_who_is_cancelled_cancels_what_it_began():
    said, log = list[str](), asyncio.Event()
    handling = asyncio.create_task(host(said, log)._handle(RECORDS))
    while "owner 0 is under way" not in said:
        await asyncio.sleep(0)
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    while "owner 0 is cancelled" not in said:
        await asyncio.sleep(0)
