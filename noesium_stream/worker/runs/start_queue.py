"""Start queue: runs start in order, a few at a time, so that 1,000 commands do not start 1,000 graphs.

A started run makes room for the next one when it waits or calls an effect, that is, when none of its records
is on its way to the log after a round. So any number of runs that call models work side by side, and runs
that only ask a question are evicted (`eviction`) while others start. A run whose terminal event is on its way
to the log makes room at once: its graph is done, and waiting for commits takes longer than such a run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from noesium_stream.worker.runs.run_session import RunSession

AT_ONCE: Final = 24
"""Concurrent starts over all partitions.

Each starting run waits for a commit after each node; with 8 a partition waited for commits most of the time.
The partitions share the number: incoming records and commits wait for a turn of the event loop, in which each
starting run does a little. With 24 for each of three partitions a commit of 4 ms waited 12 ms for it."""

FEWEST: Final = 8
"""Minimum number of concurrent starts per partition."""

AHEAD: Final = 8
"""Additional concurrent starts per partition that bypass the queue: one of each fairness key."""

ROUND_S: Final = 0.01
_ROUND_TURNS: Final = 50


class StartQueue:
    """The runs of one partition that are about to start.

    Args:
        runs: the partition's loaded runs by id; a run that is no longer there does not start.
        begin: creates a run's task.
        part_of: computes this partition's share of a number that all partitions have together.
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
        self._beginning: list[str] = []
        self._ahead: list[str] = []
        self._rounds: asyncio.Task[None] | None = None

    def start(self, session: RunSession, *, ahead: bool = False) -> None:
        """Start a run, now or when it is its turn; `ahead` of the others, if there is room."""
        most = self._most
        if self._rounds is None and len(self._beginning) >= most:
            self._beginning = self._still(self._beginning)
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
        self._ahead = self._still(self._ahead)
        room = len(self._ahead) < AHEAD
        if room:
            self._ahead.append(session.run_id)
            self._begin(session)
        return room

    def _go(self, session: RunSession) -> None:
        self._beginning.append(session.run_id)
        self._begin(session)

    def _still(self, run_ids: list[str]) -> list[str]:
        """Return those of these runs that are still starting."""
        return [run_id for run_id in run_ids if _begins(self._runs.get(run_id))]

    async def _work(self) -> None:
        ended = False
        while self._queue:
            # A round is measured in turns of the event loop as well as in time: the more there is to do, the
            # longer it is. No pause after a round in which a run ended: it leaves no work to wait for.
            if not ended:
                await asyncio.sleep(ROUND_S)
            for _ in range(_ROUND_TURNS):
                await asyncio.sleep(0)
            ended = any(_has_ended(self._runs.get(run_id)) for run_id in self._beginning)
            self._beginning = self._still(self._beginning)
            most = self._most
            while self._queue and len(self._beginning) < most:
                session = self._queue.popleft()
                if session.task is None and self._runs.get(session.run_id) is session:
                    self._go(session)
        self._rounds = None

    async def close(self) -> None:
        """Stop starting runs."""
        self._queue.clear()
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
            self._rounds = None


def _has_ended(session: RunSession | None) -> bool:
    return (
        session is None or session.task is None or session.task.done() or session.history.terminal is not None
    )


def _begins(session: RunSession | None) -> bool:
    if session is None or _has_ended(session):
        return False
    return not session.activity.changes or session.committing
