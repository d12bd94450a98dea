"""Reading in tests: what is there now, what comes, and waiting for a condition."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from noesium_stream.clock import SystemClock
from noesium_stream.log.port import Cursor, EventLog, Only, TopicPartition, Types
from noesium_stream.log.record import Record

PATIENCE_S = 120.0
"""How long a test waits for what has to come: so long only if it fails, also on a busy machine."""


async def eventually(condition: Callable[[], Any | Awaitable[Any]], timeout_s: float = PATIENCE_S) -> None:
    """Return when `condition` holds; fail the test when it has not for `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {inspect.getsource(condition).strip()}")
        await asyncio.sleep(0.005)


async def expired(ttl_ms: int = 1) -> None:
    """Return when a time to live of `ttl_ms` that began before is over, by the machine's clock."""
    end_ms = SystemClock().now_ms() + ttl_ms
    await eventually(lambda: SystemClock().now_ms() > end_ms)


async def stored(
    log: EventLog, topic: str, cursor: Cursor | None = None, types: Types = None
) -> list[Record]:
    """What `topic` holds now, by partition and offset."""
    end = await log.end(topic)
    records = [record async for record in log.read(topic, cursor or {}, until=end, types=types)]
    return sorted(records, key=lambda record: (record.partition, record.offset))


def numbers(records: Sequence[Record]) -> list[int]:
    """The `n` of every record's payload."""
    return [record.envelope.payload["n"] for record in records]


class Tail:
    """A live reader in a task of its own."""

    def __init__(
        self,
        log: EventLog,
        topic: str,
        cursor: Cursor | None = None,
        types: Types = None,
        partitions: Only = None,
    ) -> None:
        self.records: list[Record] = []
        self._task = asyncio.create_task(self._read(log, topic, cursor or {}, types, partitions))

    async def __aenter__(self) -> Tail:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _read(self, log: EventLog, topic: str, cursor: Cursor, types: Types, partitions: Only) -> None:
        async for record in log.read(topic, cursor, types=types, partitions=partitions):
            self.records.append(record)

    async def has(self, count: int, timeout_s: float = PATIENCE_S) -> list[Record]:
        """The records, as soon as there are `count`."""
        await eventually(lambda: len(self.records) >= count or self._task.done(), timeout_s)
        if self._task.done():
            self._task.result()
        return self.records


class GroupMember:
    """A handler that remembers what it was given, and by whom it was called."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.assigned: list[frozenset[TopicPartition]] = []
        self.revoked: list[frozenset[TopicPartition]] = []

    async def handle(self, records: Sequence[Record]) -> None:
        self.records.extend(records)

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.assigned.append(partitions)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.revoked.append(partitions)
