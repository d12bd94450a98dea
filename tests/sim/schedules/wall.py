"""Clocks that are put forward or back while a play goes on."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.sim.clock import START_MS, SimClock
from tests.sim.loop import SimLoop


class Wall:
    """How much the clocks of a world are ahead of its loop's time.

    That of the world, which is the broker's too, is only put forward, so that append times ascend.

    Args:
        loop: the loop of the world.
        begins_ms: what its clocks show at first, in milliseconds since the epoch.
    """

    def __init__(self, loop: SimLoop, begins_ms: int) -> None:
        self._loop = loop
        self._own_ms = Counter[str]()
        self._ahead_ms = [(0.0, begins_ms - START_MS)]

    def jump(self, ms: int, process: str | None) -> None:
        """Put one process's clock forward or back, or that of the world forward."""
        if process is None:
            self._ahead_ms.append((self._loop.time(), self._ahead_ms[-1][1] + ms))
        else:
            self._own_ms[process] += ms

    def ahead_ms(self, process: str) -> int:
        """How much a process's clock is ahead."""
        return self._ahead_ms[-1][1] + self._own_ms[process]

    def seconds_of(self, timestamp_ms: int) -> float:
        """The loop's time at which the world's clock showed this, which it never leaped over."""
        found = 0.0
        for since_s, ahead_ms in self._ahead_ms:
            seconds = (timestamp_ms - START_MS - ahead_ms) / 1000
            if seconds + 0.001 < since_s:  # append times are whole milliseconds
                break
            found = seconds
        return found


class JumpingClock(SimClock):
    """The clock of a process in a world with a wall clock."""

    def __init__(self, wall: Wall, process: str, loop: SimLoop, chance: Random, skew_ms: int) -> None:
        super().__init__(loop, chance, skew_ms)
        self._wall = wall
        self._process = process

    def now_ms(self) -> int:
        return super().now_ms() + self._wall.ahead_ms(self._process)
