"""Deadlines of a partition's open runs, in two heaps and one task.

A deadline is a moment of the wall clock: it is on the log, and the next owner knows it. While this process
waits for it, the monotonic clock counts as well, so that a wall clock that is set back lengthens no wait. A
wall clock that is set forward, or a machine that slept, shortens it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from noesium_stream.clock import Clock

LONGEST_SLEEP_S: Final = 3_600.0
"""Longest wait before the time is checked again, in seconds.

The machine's clock may be set, and its monotonic clock stands still while the machine sleeps."""

_REMEMBERED_MS: Final = 60_000
"""How long a deadline is remembered after it has passed by the wall clock, in milliseconds: its run may be
loaded first, and the clock be set back meanwhile."""


class Timers:
    """Calls `on_due` with a run's id when one of its deadlines has passed, by either clock.

    Timers are not persistent: the deadlines are on the log, and are set again after a restart. Create it in a
    running event loop.
    """

    def __init__(self, clock: Clock, on_due: Callable[[str], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._heap: list[tuple[int, str]] = []
        self._steady: list[tuple[float, int, str]] = []
        self._known: dict[str, dict[int, float]] = {}
        self._passed: dict[str, set[int]] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._work(), name="timers")

    def set(self, run_id: str, due_ms: int) -> None:
        """Call `on_due` for this run at `due_ms` (milliseconds since the epoch); harmless when repeated."""
        known = self._known.setdefault(run_id, {})
        if due_ms in known:
            return
        # The wall clock first: a process that stands still between the two waits longer, and not shorter.
        left_ms = due_ms - self._clock.now_ms()
        ends_s = self._clock.monotonic() + left_ms / 1000
        known[due_ms] = ends_s
        self._count += 1
        entry, steady = (due_ms, run_id), (ends_s, due_ms, run_id)
        heappush(self._heap, entry)
        heappush(self._steady, steady)
        if self._heap[0] == entry or self._steady[0] == steady:
            self._changed.set()

    def has_passed(self, run_id: str, due_ms: int) -> bool:
        """Whether a deadline has passed, by the wall clock now, or by either clock since it was set."""
        if self._clock.now_ms() >= due_ms or due_ms in self._passed.get(run_id, ()):
            return True
        ends_s = self._known.get(run_id, {}).get(due_ms)
        return ends_s is not None and ends_s <= self._clock.monotonic()

    def next_of(self, run_id: str) -> int | None:
        """Return a run's earliest deadline, in milliseconds since the epoch; None: it has none."""
        return min(self._known.get(run_id, ()), default=None)

    def forget(self, run_id: str) -> None:
        """Forget the deadlines of a run that has ended."""
        self._passed.pop(run_id, None)
        self._count -= len(self._known.pop(run_id, ()))
        self._drop_stale()

    def __len__(self) -> int:
        return self._count

    async def close(self) -> None:
        """Forget all deadlines."""
        self._task.cancel()
        # No `suppress(CancelledError)` here: the caller itself may be cancelled while it waits.
        await asyncio.gather(self._task, return_exceptions=True)

    def _drop_stale(self) -> None:
        # They stay in the heaps until half of one is stale: to remove one means to search the whole heap.
        if len(self._heap) > 2 * self._count:
            self._heap = [(due_ms, run_id) for run_id, dues in self._known.items() for due_ms in dues]
            heapify(self._heap)
        if len(self._steady) > 2 * self._count:
            self._steady = [
                (ends_s, due_ms, run_id)
                for run_id, dues in self._known.items()
                for due_ms, ends_s in dues.items()
            ]
            heapify(self._steady)

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            self._call_due()
            if not self._count:
                await self._changed.wait()
                continue
            await self._sleep()

    def _call_due(self) -> None:
        while self._heap and self._heap[0][0] <= self._clock.now_ms():
            due_ms, run_id = heappop(self._heap)
            self._pass(run_id, due_ms)
        while self._steady and self._steady[0][0] <= self._clock.monotonic():
            ends_s, due_ms, run_id = heappop(self._steady)
            if self._known.get(run_id, {}).get(due_ms) == ends_s:
                self._pass(run_id, due_ms)
        self._drop_stale()

    def _pass(self, run_id: str, due_ms: int) -> None:
        known = self._known.get(run_id, {})
        if due_ms not in known:
            return  # its run has ended, or the other clock was first
        del known[due_ms]
        self._count -= 1
        if not known:
            del self._known[run_id]
        now_ms = self._clock.now_ms()
        passed = self._passed.setdefault(run_id, set())
        passed.difference_update([past for past in passed if past < now_ms - _REMEMBERED_MS])
        passed.add(due_ms)
        self._on_due(run_id)

    async def _sleep(self) -> None:
        """Sleep until the next deadline of either clock, or until an earlier one is set."""
        sleeping = asyncio.ensure_future(self._sleep_until_next())
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((sleeping, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            changed.cancel()

    async def _sleep_until_next(self) -> None:
        # Compute the remaining time here: a task begins one turn of the loop after it was created.
        by_wall_s = (self._heap[0][0] - self._clock.now_ms()) / 1000
        steady_s = self._steady[0][0] - self._clock.monotonic()
        await self._clock.sleep(min(by_wall_s, steady_s, LONGEST_SLEEP_S))
