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
"""Each of them waits for a commit after each node; with 8 a partition waited for commits most of the time.
Partitions share them: what comes in, and each commit, waits for a turn of the event loop, in which all runs
that are at it do a little; with 24 of each of three partitions a commit of 4 ms waited 12 ms for that."""

FEWEST: Final = 8
"""Of a partition, whatever the number of others."""

AHEAD: Final = 8
"""Of a partition, more, that do not wait for those before them: one of each fairness key."""

ROUND_S: Final = 0.01
_ROUND_TURNS: Final = 50


class Starting:
    """The runs of one partition that are about to begin.

    Args:
        runs: the partition's loaded runs by id; one that is no longer there does not begin.
        begin: makes a run's task.
        part_of: this partition's part of what all of them may have.
    """

    def __init__(
        self,
        runs: Mapping[str, RunSession],
        begin: Callable[[RunSession], None],
        part_of: Callable[[int], int] = lambda number: number,
    ) -> None:
        self._runs = runs
        self._begin = begin
        self._part_of = part_of
        self._queue: deque[RunSession] = deque()
        self._beginning: list[RunSession] = []
        self._ahead: list[RunSession] = []
        self._rounds: asyncio.Task[None] | None = None

    def start(self, session: RunSession, *, ahead: bool = False) -> None:
        """Let a run begin, now or when it is its turn; `ahead` of the others, if there is room."""
        most = self._most
        if self._rounds is None and len(self._beginning) >= most:
            self._beginning = [earlier for earlier in self._beginning if _begins(earlier)]
        if self._rounds is None and len(self._beginning) < most:
            self._go(session)
            return
        if ahead and self._goes_ahead(session):
            return
        self._queue.append(session)
        if self._rounds is None:
            self._rounds = asyncio.create_task(self._work(), name="begin runs")

    @property
    def _most(self) -> int:
        return max(FEWEST, self._part_of(AT_ONCE))

    def _goes_ahead(self, session: RunSession) -> bool:
        self._ahead = [earlier for earlier in self._ahead if _begins(earlier)]
        room = len(self._ahead) < AHEAD
        if room:
            self._ahead.append(session)
            self._begin(session)
        return room

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
            most = self._most
            while self._queue and len(self._beginning) < most:
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
