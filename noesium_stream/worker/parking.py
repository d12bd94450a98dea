"""Runs that only wait live on the log: after a while no more of them stays in memory than an entry.

What brings one back is a record for it from the inbox, or its deadline. It is read back from the journal
and executed over what it finds there, as after a crash; nothing is written for either way.

Order is the guarantee. To park a run (`Parking.park`, without giving way to anybody):
 1. all that it did is on the log, nothing was accepted that it does not know of (`RunSession.only_waits`),
 2. its session is closed: what its tasks do while they end cannot write,
 3. its task is cancelled and its entry made: from here on a record for it brings it back.
A record of the inbox is judged only when its run is back (`bring_back`), and between that and the submission
of its copy nothing gives way, so that no run is parked with a record on its way to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from noesium_stream.log.record import Record
from noesium_stream.worker.session import RunSession

IDLE_S: Final = 60.0
"""For so long a run has to have waited, by the owner's clock, before it is parked."""

CROWD: Final = 32
"""More waiting runs than these of a partition are parked sooner, the one that waits longest first: a loaded
one takes 55 kB, most of them LangGraph's, and thousands may come to wait within a minute."""

CROWDED_IDLE_S: Final = 5.0
SWEEP_S: Final = 5.0


class Parking:
    """The open runs of one partition that are not loaded.

    Args:
        read: gives the records of runs by id, from an offset on; waits for a log that is away.
        restored: takes a run that is back: its id, its records and its first offset.
        sweep: called every `SWEEP_S` seconds, to park what is idle.
        on_failure: told of a run that cannot be read back.
    """

    def __init__(
        self,
        read: Callable[[Collection[str], int], Awaitable[dict[str, list[Record]]]],
        restored: Callable[[str, list[Record], int], None],
        sweep: Callable[[], object],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._read = read
        self._restored = restored
        self._on_failure = on_failure
        self._first: dict[str, int] = {}
        self._wanted: set[str] = set()
        self._loader: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._sweeper = asyncio.create_task(_regularly(sweep), name="park idle runs")

    def __len__(self) -> int:
        return len(self._first)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._first

    def park(self, session: RunSession) -> None:
        """Forget a run that only waits; its task ends by and by."""
        session.close()
        task = session.task
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
        self._first[session.run_id] = session.first_offset

    async def bring_back(self, run_ids: Collection[str]) -> None:
        """Return when none of these runs is parked (any more); also when they are given up meanwhile.

        Raises what made one unreadable.
        """
        while wanted := [run_id for run_id in run_ids if run_id in self._first]:
            loader = self.load(wanted)
            await asyncio.wait((loader,))
            if not loader.cancelled():
                loader.result()

    def load(self, run_ids: Collection[str]) -> asyncio.Task[None]:
        """Begin to read parked runs back: all that are wanted at a time in one pass over the journal."""
        self._wanted.update(run_ids)
        if self._loader is None or self._loader.done():
            self._loader = asyncio.create_task(self._load(), name="bring runs back")
            self._loader.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._loader

    async def _load(self) -> None:
        try:
            while self._wanted:
                wanted = {run_id: self._first[run_id] for run_id in self._wanted if run_id in self._first}
                self._wanted.clear()
                if not wanted:
                    return
                found = await self._read(wanted.keys(), min(wanted.values()))
                for run_id, first in wanted.items():
                    del self._first[run_id]
                    self._restored(run_id, found[run_id], first)
        except Exception as error:
            self._on_failure(error)
            raise

    async def close(self) -> None:
        """Forget all entries; the partition goes on elsewhere, or is read anew."""
        self._first.clear()
        tasks = [self._sweeper, *self._ending]
        if self._loader is not None:
            tasks.append(self._loader)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def idle(sessions: Iterable[RunSession], now_s: float) -> list[RunSession]:
    """Those to park: that only wait, and in which nothing has changed for `IDLE_S` since an earlier look, or
    for `CROWDED_IDLE_S` where they are a crowd.

    `now_s` is the owner's monotonic time.
    """
    quiet: list[tuple[float, RunSession]] = []
    for session in sessions:
        changes, since = session.quiet
        if changes != session.activity.changes:
            session.quiet = changes, since = session.activity.changes, now_s
        if session.begun and session.only_waits():
            quiet.append((now_s - since, session))
    quiet.sort(key=lambda waiting: waiting[0], reverse=True)
    surplus = len(quiet) - CROWD
    return [
        session
        for number, (waited_s, session) in enumerate(quiet)
        if waited_s >= (CROWDED_IDLE_S if number < surplus else IDLE_S)
    ]


async def _regularly(sweep: Callable[[], object]) -> None:
    # The machine's time says when to look, the owner's clock whom to park: a virtual clock, which moves when
    # somebody sleeps, is not driven by this.
    while True:
        await asyncio.sleep(SWEEP_S)
        sweep()
