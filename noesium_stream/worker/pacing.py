"""Runs of several tenants go on a few at a time: what comes in for one does not wait for a turn of all.

Decision record: when a commit is on the log, all runs that it has records of go on in the same turn of the
event loop, some fifty callbacks long, and each of the five or so turns that a command takes from the broker
to its own commit may be such a one. So where runs of several fairness keys begin, runs go on `AT_ONCE` in
`TURNS` turns, about as long as each of them takes to its next commit: the longest turns (one in a hundred)
take 1.7 ms of the processor instead of 4.5. That costs 4 % of a run, for there are more turns; so where all
runs are of one key, they go on as they may.

Those that wait go on one of each key after the other: a lone run of one tenant is not behind two hundred of
another.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Final

AT_ONCE: Final = 4
TURNS: Final = 5

REMEMBERED: Final = 500
"""After so many runs of one key in a row that begin there is nobody else."""


class Pace:
    """The pace of all runs of a worker's agent."""

    def __init__(self) -> None:
        self._room = AT_ONCE
        self._turns = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._last = ""
        self._others = 0

    def begins(self, key: str) -> None:
        """A run of this fairness key begins."""
        if key != self._last and self._last:
            self._others = REMEMBERED
        elif self._others:
            self._others -= 1
        self._last = key

    async def step(self, key: str) -> None:
        """Return when a run of this fairness key may go on."""
        if not (self._others or self._waiting):
            return
        loop = asyncio.get_running_loop()
        if not self._turns:
            self._room, self._turns = AT_ONCE, TURNS
            loop.call_soon(self._turn)
        if self._room:
            self._room -= 1
            return
        waits = loop.create_future()
        self._waiting.setdefault(key, deque()).append(waits)
        await waits

    def _turn(self) -> None:
        self._turns -= 1
        if not self._turns:
            if not self._waiting:
                return
            self._room, self._turns = AT_ONCE, TURNS
            while self._waiting and self._room:
                waits = self._next()
                if not waits.done():  # it was cancelled
                    waits.set_result(None)
                    self._room -= 1
        asyncio.get_running_loop().call_soon(self._turn)

    def _next(self) -> asyncio.Future[None]:
        """The oldest of the key that has waited longest for its turn."""
        key, own = next(iter(self._waiting.items()))
        waits = own.popleft()
        if own:
            self._waiting.move_to_end(key)
        else:
            del self._waiting[key]
        return waits
