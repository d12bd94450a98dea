"""A clock that moves by hand alone: a sleeper wakes when a test has moved it far enough."""

from __future__ import annotations

import asyncio

from noesium_stream.clock import VirtualClock
from noesium_stream.durations import Duration
from tests.support.reading import PATIENCE_S


class HandClock(VirtualClock):
    """`sleep` ends when `advance` has reached its time; nobody else moves it."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = asyncio.Event()
        self.sleepers = 0

    def advance(self, duration: Duration) -> None:
        super().advance(duration)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        self.sleepers += 1
        try:
            while self.monotonic() < until:
                await self._moved.wait()
        finally:
            self.sleepers -= 1

    async def move(self, seconds: float) -> None:
        """Advance as soon as somebody sleeps: who is just about to would otherwise count from then on."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.sleepers:
                await asyncio.sleep(0.001)
        self.advance(seconds)
