"""A worker that dies at one of its commits: nothing of it reaches the log, or its own file, any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.errors import FencedError
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import Worker

NEVER = 10**9


class Life:
    """One process's worker on a log with one partition.

    Args:
        log: the log that outlives it.
        agent: what it runs.
        home: its folder; the next life has the same.
        dies_at: number of the commit, from 1, that it dies at.
        reaches_log: whether that commit is on the log.
        options: more for the worker.
    """

    def __init__(
        self,
        log: EventLog,
        agent: type[BaseGraphicAgent],
        home: Path,
        *,
        dies_at: int = NEVER,
        reaches_log: bool = False,
        **options: Any,
    ) -> None:
        self.dead = asyncio.Event()
        self._closing = False
        self._commits = 0
        self._dies_at = dies_at
        self._reaches_log = reaches_log
        self.said: list[str] = []
        hooked: Any = HookedLog(log, self._commit)
        agents: list[Any] = [agent]
        self.worker = Worker(hooked, agents, home=home, progress=self.said.append, keep_state=True, **options)

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        self._commits += 1
        if self._commits >= self._dies_at and not self.dead.is_set():
            if self._reaches_log:
                await commit(outgoing)
            self.kill()
        if self.dead.is_set():
            self.kill()  # also the partitions that it was given since
            raise FencedError("dead")
        return await commit(outgoing)

    def kill(self) -> None:
        """The end of the process: what was not written to its file is not there."""
        self.dead.set()
        for tenure in self.tenures:
            tenure.keeper.state.file.close()

    @property
    def tenures(self) -> list[Any]:
        """The tenures of the partitions that it owns."""
        return self.worker.tenures()

    async def live(self, until: Callable[[], Awaitable[object]]) -> bool:
        """Work until this returns, or it dies; whether it lived."""
        work = asyncio.ensure_future(self._work(until))
        dead = asyncio.ensure_future(self.dead.wait())
        await asyncio.wait((work, dead), return_when=asyncio.FIRST_COMPLETED)
        lived = work.done() and not self.dead.is_set()
        if lived:
            work.result()
        dead.cancel()
        if not self._closing:  # else it ends by itself: who cuts that off leaves a member in the group
            work.cancel()
        await asyncio.gather(work, dead, return_exceptions=True)
        return lived

    async def _work(self, until: Callable[[], Awaitable[object]]) -> None:
        async with self.worker:
            await until()
            self._closing = True


def state_files(home: Path) -> list[Path]:
    """The files that workers of this folder keep."""
    return sorted(home.glob("worker/**/*.db"))
