"""Deadlines of a partition's open runs, in one heap and one task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from noesium_stream.clock import Clock

LONGEST_SLEEP_S: Final = 3_600.0
"""Longest wait before the time is checked again, in seconds.

The machine's clock may be set, and its monotonic clock stands still while the machine sleeps."""


class Timers:
    """Calls `on_due` with a run's id when one of its deadlines has passed, by `clock`.

    Timers are not persistent: the deadlines are on the log, and are set again after a restart. Create it in a
    running event loop.
    """

    def __init__(self, clock: Clock, on_due: Callable[[str], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._heap: list[tuple[int, str]] = []
        self._known: dict[str, set[int]] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._work(), name="timers")

    def set(self, run_id: str, due_ms: int) -> None:
        """Call `on_due` for this run at `due_ms` (milliseconds since the epoch); harmless when repeated."""
        known = self._known.setdefault(run_id, set())
        if due_ms in known:
            return
        known.add(due_ms)
        self._count += 1
        entry = (due_ms, run_id)
        heappush(self._heap, entry)
        if self._heap[0] == entry:
            self._changed.set()

    def next_of(self, run_id: str) -> int | None:
        """Return a run's earliest deadline, in milliseconds since the epoch; None: it has none."""
        return min(self._known.get(run_id, ()), default=None)

    def forget(self, run_id: str) -> None:
        """Forget the deadlines of a run that has ended."""
        self._count -= len(self._known.pop(run_id, ()))
        # They stay in the heap until half of it is stale: to remove one means to search the whole heap.
        if len(self._heap) > 2 * self._count:
            self._heap = [(due_ms, known) for known, dues in self._known.items() for due_ms in dues]
            heapify(self._heap)

    def __len__(self) -> int:
        return self._count

    async def close(self) -> None:
        """Forget all deadlines."""
        self._task.cancel()
        # No `suppress(CancelledError)` here: the caller itself may be cancelled while it waits.
        await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            self._call_due()
            if not self._heap:
                await self._changed.wait()
                continue
            await self._sleep(self._heap[0][0])

    def _call_due(self) -> None:
        while self._heap and self._heap[0][0] <= self._clock.now_ms():
            due_ms, run_id = heappop(self._heap)
            known = self._known.get(run_id, set())
            if due_ms not in known:
                continue  # its run has ended
            known.discard(due_ms)
            self._count -= 1
            if not known:
                del self._known[run_id]
            self._on_due(run_id)

    async def _sleep(self, due_ms: int) -> None:
        """Sleep until `due_ms`, or until an earlier deadline is set."""
        sleeping = asyncio.ensure_future(self._sleep_until(due_ms))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((sleeping, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            changed.cancel()

    async def _sleep_until(self, due_ms: int) -> None:
        # Compute the remaining time here: a task begins one turn of the loop after it was created.
        await self._clock.sleep(min((due_ms - self._clock.now_ms()) / 1000, LONGEST_SLEEP_S))
