"""Runs begin in their order, a few at a time: a thousand commands at once are not a thousand graphs at once.

A run that has begun makes room for the next one when it waits or does something outside: whenever nothing of
it is on its way to the log after a round. So runs that call models work side by side, whatever their number,
and those that only get to a question leave the memory (`parking`) while others begin. One whose end is on its
way to the log makes room at once: its graph is done, and to wait for commits takes longer than such a run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from noesium_stream.worker.session import RunSession

AT_ONCE: Final = 24
"""Each of them waits for a commit after each node; with 8 a partition waited for commits most of the time."""

ROUND_S: Final = 0.01
_ROUND_TURNS: Final = 50


class Starting:
    """The runs of one partition that are about to begin.

    Args:
        runs: the partition's loaded runs by id; one that is no longer there does not begin.
        begin: makes a run's task.
    """

    def __init__(self, runs: Mapping[str, RunSession], begin: Callable[[RunSession], None]) -> None:
        self._runs = runs
        self._begin = begin
        self._queue: deque[RunSession] = deque()
        self._beginning: list[RunSession] = []
        self._rounds: asyncio.Task[None] | None = None

    def start(self, session: RunSession) -> None:
        """Let a run begin, now or when it is its turn."""
        if self._rounds is None and len(self._beginning) >= AT_ONCE:
            self._beginning = [earlier for earlier in self._beginning if _begins(earlier)]
        if self._rounds is None and len(self._beginning) < AT_ONCE:
            self._go(session)
            return
        self._queue.append(session)
        if self._rounds is None:
            self._rounds = asyncio.create_task(self._work(), name="begin runs")

    def _go(self, session: RunSession) -> None:
        self._beginning.append(session)
        self._begin(session)

    async def _work(self) -> None:
        ended = False
        while self._queue:
            # By turns of the event loop as well as by time: the more there is to do, the longer a round. Runs
            # that come to their end in one leave nothing behind that would have to go first.
            if not ended:
                await asyncio.sleep(ROUND_S)
            for _ in range(_ROUND_TURNS):
                await asyncio.sleep(0)
            ended = any(map(_has_ended, self._beginning))
            self._beginning = [session for session in self._beginning if _begins(session)]
            while self._queue and len(self._beginning) < AT_ONCE:
                session = self._queue.popleft()
                if session.task is None and self._runs.get(session.run_id) is session:
                    self._go(session)
        self._rounds = None

    async def close(self) -> None:
        """Nothing begins any more."""
        self._queue.clear()
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
            self._rounds = None


def _has_ended(session: RunSession) -> bool:
    return session.task is None or session.task.done() or session.history.terminal is not None


def _begins(session: RunSession) -> bool:
    if _has_ended(session):
        return False
    return not session.activity.changes or session.committing
