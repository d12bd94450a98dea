"""How many runs of a worker's agent work at once, over all of its partitions.

A run takes a slot when its turn comes and holds it while it works. One that only waits holds none, and goes
on when it is woken, whether there is a free one or not: an answer is never stuck behind commands. Nor is a
tenant stuck behind the runs of another, however long they take: where all slots are taken, one run of each
fairness key that has none at work in its partition begins beside them, an eighth of the slots at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.worker.fairness import fairness_key
from noesium_stream.worker.pacing import Pace

CONCURRENCY: Final = 200
"""Runs of each agent type that work at once in a worker, unless it is told otherwise."""

BESIDE: Final = 8
"""One slot in so many is added for keys that have no run at work: a worker of less than this has none."""


class Holder:
    """What one partition holds.

    Attributes:
        working: runs that hold a slot.
        busy: how many of them each fairness key has that has any.
        gone: how many times a key has ceased to have any.
        resuming: open runs that are to go on when there are slots, in order.
        hungry: commands or open runs of it wait for one.
        wake: set when there may be one.
    """

    def __init__(self, slots: Slots) -> None:
        self.working: set[str] = set()
        self.busy: Counter[str] = Counter()
        self.gone = 0
        self.resuming: deque[str] = deque()
        self.hungry = False
        self.wake = asyncio.Event()
        self._pace = slots.pace
        self._keys: dict[str, str] = {}
        self._slots = slots

    def works(self, command: EventEnvelope) -> None:
        """The run of a command works, whether there was a slot or not."""
        run_id = command.partition_key or ""
        if run_id not in self.working:
            self.working.add(run_id)
            self._keys[run_id] = key = fairness_key(command)
            self.busy[key] += 1
            self._pace.begins(key)

    def pace_of(self, run_id: str) -> Callable[[], Awaitable[None]]:
        """What a run that works waits for before it goes on."""
        return partial(self._pace.step, self._keys[run_id])

    def rests(self, run_id: str) -> None:
        """A run only waits, or has ended."""
        if run_id in self.working:
            self.gives_way(run_id)
            self._slots.freed()

    def gives_way(self, run_id: str) -> None:
        """A run that was about to work does not; nobody is told."""
        self.working.discard(run_id)
        key = self._keys.pop(run_id, None)
        if key is not None:
            self.busy[key] -= 1
            if not self.busy[key]:
                del self.busy[key]
                self.gone += 1

    def leaves(self) -> None:
        """It holds nothing any more."""
        self.working.clear()
        self.busy.clear()
        self._keys.clear()

    def resume(self, run_ids: Iterable[str]) -> None:
        """Let open runs go on when there are slots."""
        self.resuming.extend(run_ids)
        self.wake.set()

    def part_of(self, number: int) -> int:
        """An equal part of what all partitions of the agent that are at work may have together."""
        return number // max(1, self._slots.at_work)


class Slots:
    """The slots of one agent of a worker.

    Args:
        most: how many there are.

    Attributes:
        pace: in which all its runs go on.
    """

    def __init__(self, most: int = CONCURRENCY) -> None:
        self.most: Final = most
        self.pace = Pace()
        self._holders: list[Holder] = []

    def join(self) -> Holder:
        """A partition comes."""
        holder = Holder(self)
        self._holders.append(holder)
        return holder

    def leave(self, holder: Holder) -> None:
        """It goes, with what it holds; harmless when repeated."""
        if holder in self._holders:
            self._holders.remove(holder)
        holder.leaves()
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

    def beside(self) -> int:
        """How many runs may begin where there is no room, each of a key that has none at work."""
        return max(0, self.most + self.most // BESIDE - sum(len(holder.working) for holder in self._holders))

    @property
    def at_work(self) -> int:
        """How many partitions have runs at work, or some that are to begin."""
        return sum(bool(holder.working) or holder.hungry for holder in self._holders)

    def freed(self) -> None:
        """There may be a free one."""
        for holder in self._holders:
            if holder.hungry:
                holder.wake.set()
