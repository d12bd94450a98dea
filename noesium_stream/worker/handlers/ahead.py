"""Batches of a handler that are handled while the commits of earlier ones are under way, within bounds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from noesium_stream.log.port import TopicPartition
from noesium_stream.log.record import Record, bytes_of

MANY: Final = 500
"""Number of unread records from which on a commit waits for more of them."""

MOST_EVENTS: Final = 20_000
"""Most events handled and not committed, over all partitions; above it no further event is handled."""

MOST_BYTES: Final = 16_000_000
"""Most bytes of records handled and not committed, over all partitions."""

_TURNS: Final = 3
"""Turns of the event loop from the handling of a batch until its commit is under way."""


class Accepting(Protocol):
    """The present tenure of a partition."""

    def accept(self, records: Sequence[Record], *, more: bool = False) -> Coroutine[Any, Any, None]:
        """Handle records; ends when they are committed. `more`: many more of the partition are there."""

    def hurry(self) -> None:
        """Commit what was handled without waiting for more."""


class Batch(NamedTuple):
    """Records of one partition: the call that handles them, and how many events and bytes they are."""

    call: Coroutine[Any, Any, None]
    events: int
    size: int


def batches_of(
    records: Iterable[Record],
    tenure_of: Callable[[TopicPartition], Accepting | None],
    behind: Callable[[TopicPartition], int],
) -> list[Batch]:
    """One batch for each partition's tenure; a partition without one reads its records again later.

    Args:
        records: what the group hands over.
        tenure_of: the present tenure of a partition.
        behind: how many more records of a partition there are.
    """
    by_partition: dict[TopicPartition, list[Record]] = {}
    topic, partition, batch = "", -1, list[Record]()
    for record in records:
        if record.partition != partition or record.topic != topic:
            topic, partition = place = TopicPartition(record.topic, record.partition)
            batch = by_partition.setdefault(place, [])
        batch.append(record)
    made = []
    for place, batch in by_partition.items():
        tenure = tenure_of(place)
        if tenure is not None:
            call = tenure.accept(batch, more=behind(place) >= MANY)
            made.append(Batch(call, len(batch), bytes_of(batch)))
    return made


class HandledAhead:
    """The batches that are handled and not committed, over all partitions of a handler.

    Args:
        on_failure: called with the first error of a batch.
        most_events: upper bound of `events`, above which `handle` waits; default: `MOST_EVENTS`.
        most_bytes: the same of `size`; default: `MOST_BYTES`.

    Attributes:
        events: events of these batches.
        size: bytes of their records.
    """

    def __init__(
        self,
        on_failure: Callable[[BaseException], None],
        *,
        most_events: int | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self.events = 0
        self.size = 0
        self._on_failure = on_failure
        self._most_events = MOST_EVENTS if most_events is None else most_events
        self._most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self._under_way: dict[asyncio.Task[None], Batch] = {}
        self._broken: BaseException | None = None
        self._closing = False
        self._eased = asyncio.Event()

    async def handle(self, batches: Iterable[Batch], hurry: Callable[[], None]) -> None:
        """Handle batches; return while their commits are under way, unless too many are.

        `hurry` is called before it waits. Raises the first error of a batch, of this call or an earlier one.
        """
        # Handed over at once: a tenure that has ended by then ignores its records.
        left = deque(batches)
        try:
            while left:
                batch = left.popleft()
                task = asyncio.create_task(batch.call)
                self._under_way[task] = batch
                self.events += batch.events
                self.size += batch.size
                task.add_done_callback(self._committed)
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            while self._is_full() and self._broken is None and not self._closing:
                self._eased.clear()
                hurry()
                await self._eased.wait()
        except asyncio.CancelledError:
            for batch in left:
                batch.call.close()
            for task in self._under_way:
                task.cancel()
            raise
        if self._broken is not None:
            raise self._broken

    async def settled(self) -> None:
        """Wait until all batches are committed, or have failed."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def stop_waiting(self) -> None:
        """Do not wait any longer for a log that is full or unavailable."""
        self._closing = True
        self._eased.set()

    async def close(self) -> None:
        """Cancel what is under way: its partitions are given up and accept nothing."""
        self.stop_waiting()
        for task in self._under_way:
            task.cancel()
        await self.settled()

    def _is_full(self) -> bool:
        return self.events > self._most_events or self.size > self._most_bytes

    def _committed(self, task: asyncio.Task[None]) -> None:
        batch = self._under_way.pop(task)
        self.events -= batch.events
        self.size -= batch.size
        self._eased.set()
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and self._broken is None:
            self._broken = error
            self._on_failure(error)
