"""The deadlines of a partition's open runs: one heap, one task, whatever their number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from noesium_stream.clock import Clock

LONGEST_SLEEP_S: Final = 3_600.0
"""The machine's clock may be set, and its monotonic one stands still while it sleeps: look again by then."""


class Timers:
    """Calls `on_due` with a run's id when one of its deadlines has passed, by `clock`.

    Nothing of it is kept: the deadlines are on the log, and whoever waits for one sets it again after a
    restart. Open it in a running event loop.
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
        """Call for this run at `due_ms` (milliseconds since the epoch); the same one is set once."""
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
        """The earliest deadline of a run, in milliseconds since the epoch; None: it has none."""
        return min(self._known.get(run_id, ()), default=None)

    def forget(self, run_id: str) -> None:
        """The run has ended: nobody waits for its deadlines any more."""
        self._count -= len(self._known.pop(run_id, ()))
        # Those of ended runs stay in the heap until they are half of it: to take one out costs a look at all.
        if len(self._heap) > 2 * self._count:
            self._heap = [(due_ms, known) for known, dues in self._known.items() for due_ms in dues]
            heapify(self._heap)

    def __len__(self) -> int:
        return self._count

    async def close(self) -> None:
        """Forget all deadlines."""
        self._task.cancel()
        # Not suppressed: it may be the one who waits here that is cancelled.
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
        """Until then, or until there is an earlier deadline."""
        sleeping = asyncio.ensure_future(self._sleep_until(due_ms))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((sleeping, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            changed.cancel()

    async def _sleep_until(self, due_ms: int) -> None:
        # What is left is counted where the sleep begins: a task begins a turn of the loop after it was made.
        await self._clock.sleep(min((due_ms - self._clock.now_ms()) / 1000, LONGEST_SLEEP_S))
