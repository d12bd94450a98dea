"""The deadlines of a partition's open runs: one heap, one task, whatever their number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
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
        self._known: set[tuple[int, str]] = set()
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._work(), name="timers")

    def set(self, run_id: str, due_ms: int) -> None:
        """Call for this run at `due_ms` (milliseconds since the epoch); the same one is set once."""
        entry = (due_ms, run_id)
        if entry in self._known:
            return
        self._known.add(entry)
        heappush(self._heap, entry)
        if self._heap[0] == entry:
            self._changed.set()

    def __len__(self) -> int:
        return len(self._heap)

    async def close(self) -> None:
        """Forget all deadlines."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            self._call_due()
            if not self._heap:
                await self._changed.wait()
                continue
            left_s = (self._heap[0][0] - self._clock.now_ms()) / 1000
            await self._sleep(min(left_s, LONGEST_SLEEP_S))

    def _call_due(self) -> None:
        while self._heap and self._heap[0][0] <= self._clock.now_ms():
            entry = heappop(self._heap)
            self._known.discard(entry)
            self._on_due(entry[1])

    async def _sleep(self, seconds: float) -> None:
        """For so long, or until there is an earlier deadline."""
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((sleeping, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            changed.cancel()
