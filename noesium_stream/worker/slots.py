"""How many runs of a worker's agent work at once, over all of its partitions.

A run takes a slot when its turn comes and holds it while it works. One that only waits holds none, and goes
on when it is woken, whether there is a free one or not: an answer is never stuck behind commands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

CONCURRENCY: Final = 200
"""Runs of each agent type that work at once in a worker, unless it is told otherwise."""


class Holder:
    """What one partition holds.

    Attributes:
        working: runs that hold a slot.
        resuming: open runs that are to go on when there are slots, in order.
        hungry: commands or open runs of it wait for one.
        wake: set when there may be one.
    """

    def __init__(self, freed: Callable[[], None]) -> None:
        self.working: set[str] = set()
        self.resuming: deque[str] = deque()
        self.hungry = False
        self.wake = asyncio.Event()
        self._freed = freed

    def works(self, run_id: str) -> None:
        """A run works, whether there was a slot or not."""
        self.working.add(run_id)

    def rests(self, run_id: str) -> None:
        """A run only waits, or has ended."""
        if run_id in self.working:
            self.working.discard(run_id)
            self._freed()

    def resume(self, run_ids: Iterable[str]) -> None:
        """Let open runs go on when there are slots."""
        self.resuming.extend(run_ids)
        self.wake.set()


class Slots:
    """The slots of one agent of a worker.

    Args:
        most: how many there are.
    """

    def __init__(self, most: int = CONCURRENCY) -> None:
        self.most: Final = most
        self._holders: list[Holder] = []

    def join(self) -> Holder:
        """A partition comes."""
        holder = Holder(self.freed)
        self._holders.append(holder)
        return holder

    def leave(self, holder: Holder) -> None:
        """It goes, with what it holds; harmless when repeated."""
        if holder in self._holders:
            self._holders.remove(holder)
        holder.working.clear()
        self.freed()

    def room(self, holder: Holder) -> int:
        """How many more runs of this partition may begin: as many as are free, of which others that want some
        as well get their part.
        """
        free = self.most - sum(len(other.working) for other in self._holders)
        hungry = sum(other.hungry or other is holder for other in self._holders)
        if hungry > 1:
            free = min(free, max(1, self.most // hungry) - len(holder.working))
        return max(0, free)

    def freed(self) -> None:
        """There may be a free one."""
        for holder in self._holders:
            if holder.hungry:
                holder.wake.set()
