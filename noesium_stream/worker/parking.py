"""Runs that only wait live on the log: after a while no more of them stays in memory than an entry.

What brings one back is a record for it from the inbox, or its deadline. It is read back from the journal
and executed over what it finds there, as after a crash; nothing is written for either way.

A loaded run takes 55 kB, most of them LangGraph's, and thousands may come to wait within a minute. So only
`CROWD` runs of a partition that wait for a person or a far deadline stay loaded, those that began last; the
others are parked at once. One that will probably go on soon keeps its place for a while: it waits for another
agent, its deadline is near, or its last wait was a short one (what is woken again and again is read back
once). A run in a node with a timeout stays: that is no deadline on the log, and nothing else would end it. So
does one of which it cannot be proven that its bodies do nothing beside their waits (`rest`); it is looked at
again, and is none of a crowd.

Order is the guarantee. To park a run (`Parking.park`, without giving way to anybody):
 1. all that it did is on the log, nothing was accepted that it does not know of (`RunSession.only_waits`),
    and it does nothing beside that (`Rest.proves`),
 2. its session is closed: what its tasks do while they end cannot write,
 3. its task is cancelled and its entry made: from here on a record for it brings it back.
A record of the inbox is judged only when its run is back (`bring_back`), and until it is delivered its run
stays (`staying`), so that no run is parked with a record on its way to it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from noesium_stream.clock import Clock
from noesium_stream.log.record import Record
from noesium_stream.worker.rest import Rest
from noesium_stream.worker.session import BRIEF_S, RunSession

IDLE_S: Final = 60.0
"""For so long a run has to have waited, by the owner's clock, before it is parked."""

CROWD: Final = 6
"""More waiting runs than these of a partition are parked sooner, the one that waits longest first."""

CROWDED_IDLE_S: Final = BRIEF_S
"""After so long those of a crowd are parked that were expected to go on soon."""

SWEEP_S: Final = 5.0
SETTLE_S: Final = 0.02
_SETTLING_TURNS: Final = 50

_PAUSE_PER_TASK_S: Final = 1e-4
"""A look at a crowd takes 2 us for each task in the process, of all runs: so much later is the next one."""


class ParkingOwner(Protocol):
    """What it needs of its partition's owner."""

    clock: Clock

    def parked(self, run_id: str) -> None:
        """A run is not loaded any more."""

    async def read_runs(self, run_ids: Collection[str]) -> dict[str, list[Record]]:
        """The records of runs by id; waits for a log that is away."""

    def bring_back(self, run_id: str, records: list[Record]) -> RunSession:
        """Take a run that is back, with its records, and go on with it."""


class Parking:
    """The open runs of one partition that are not loaded.

    Args:
        owner: of the partition.
        runs: its loaded runs by id; those that are parked are taken out.
        on_failure: told of a run that cannot be read back.
    """

    def __init__(
        self, owner: ParkingOwner, runs: dict[str, RunSession], on_failure: Callable[[BaseException], None]
    ) -> None:
        self._owner = owner
        self._runs = runs
        self._on_failure = on_failure
        self._parked: dict[str, float] = {}
        """Since when each is parked, by the owner's monotonic time."""
        self._patient: dict[str, int] = {}
        self._staying: Counter[str] = Counter()
        self._wanted: set[str] = set()
        self._loader: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._crowded = asyncio.Event()
        self._pause_s = 0.0
        self._sweepers = [
            asyncio.create_task(_regularly(self.park_idle), name="park idle runs"),
            asyncio.create_task(self._watch_crowd(), name="park a crowd"),
        ]

    def __len__(self) -> int:
        return len(self._parked)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._parked

    # -- out of memory -------------------------------------------------------------------------------

    def waits(self, session: RunSession, due_ms: int | None) -> None:
        """A task of this run begins to wait, until `due_ms` at most (milliseconds since the epoch)."""
        self._patient.pop(session.run_id, None)
        due_soon = due_ms is not None and due_ms - self._owner.clock.now_ms() < CROWDED_IDLE_S * 1000
        if session.brief or due_soon or session.waits_for_agents():
            return
        self._patient[session.run_id] = session.activity.changes
        if len(self._patient) > CROWD:
            self._crowded.set()

    def park_idle(self) -> None:
        """Park the runs that have only waited since it was called `IDLE_S` or more ago (see `idle`)."""
        for session in idle(self._runs.values(), self._owner.clock.monotonic()):
            self.park(session)

    def park(self, session: RunSession) -> None:
        """Forget a run that only waits; its task ends by and by. One that has to stay is passed over."""
        run_id = session.run_id
        if self._staying[run_id]:
            return
        session.close()
        task = session.task
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
        self._parked[run_id] = self._owner.clock.monotonic()
        self._patient.pop(run_id, None)
        del self._runs[run_id]
        self._owner.parked(run_id)

    def adopt(self, run_ids: Iterable[str]) -> None:
        """Take open runs that were never loaded here."""
        self._parked.update(dict.fromkeys(run_ids, float("-inf")))

    async def _watch_crowd(self) -> None:
        while True:
            await self._crowded.wait()
            # A run's other tasks may have been about to begin, and nothing but they would bring it back: they
            # had their turns before the run is judged, however long the event loop was held up.
            await asyncio.sleep(max(SETTLE_S, self._pause_s))
            for _ in range(_SETTLING_TURNS):
                await asyncio.sleep(0)
            self._crowded.clear()
            self._park_crowd()

    def _park_crowd(self) -> None:
        """Park those that are too many and in which nothing has happened since they were seen to wait."""
        settled = []
        for run_id, changes in list(self._patient.items()):
            session = self._runs.get(run_id)
            del self._patient[run_id]
            if session is None or not (session.begun and session.only_waits()):
                continue
            self._patient[run_id] = session.activity.changes
            if changes == session.activity.changes:
                settled.append(session)
        if len(self._patient) <= CROWD:
            return
        rest = Rest()
        self._pause_s = len(rest) * _PAUSE_PER_TASK_S
        for session in settled:
            if len(self._patient) <= CROWD:
                return
            if rest.proves(session):
                self.park(session)
            self._patient.pop(session.run_id, None)  # what stays is looked at again by `park_idle`
        if len(self._patient) > CROWD:
            self._crowded.set()

    # -- and back ------------------------------------------------------------------------------------

    @contextmanager
    def staying(self, run_ids: Collection[str]) -> Iterator[None]:
        """None of these runs is parked meanwhile."""
        self._staying.update(run_ids)
        try:
            yield
        finally:
            self._staying.subtract(run_ids)
            for run_id in run_ids:
                if not self._staying[run_id]:
                    del self._staying[run_id]

    async def bring_back(self, run_ids: Collection[str]) -> None:
        """Return when none of these runs is parked (any more); also when they are given up meanwhile.

        Raises what made one unreadable.
        """
        while wanted := [run_id for run_id in run_ids if run_id in self._parked]:
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
                wanted = {run_id: self._parked[run_id] for run_id in self._wanted if run_id in self._parked}
                self._wanted.clear()
                if not wanted:
                    return
                found = await self._owner.read_runs(wanted.keys())
                now_s = self._owner.clock.monotonic()
                for run_id, since_s in wanted.items():
                    del self._parked[run_id]
                    session = self._owner.bring_back(run_id, found[run_id])
                    session.brief, session.fresh = now_s - since_s < BRIEF_S, True
        except Exception as error:
            self._on_failure(error)
            raise

    async def close(self) -> None:
        """Forget all entries; the partition goes on elsewhere, or is read anew."""
        self._parked.clear()
        tasks = [*self._sweepers, *self._ending]
        if self._loader is not None:
            tasks.append(self._loader)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def idle(sessions: Iterable[RunSession], now_s: float) -> list[RunSession]:
    """Those to park: that provably only wait, and in which nothing has changed for `IDLE_S` since an earlier
    look, or for `CROWDED_IDLE_S` where they are a crowd.

    `now_s` is the owner's monotonic time.
    """
    quiet: list[tuple[float, RunSession]] = []
    for session in sessions:
        changes, since = session.quiet
        if changes != session.activity.changes:
            session.quiet = changes, since = session.activity.changes, now_s
        if session.begun and session.only_waits():
            quiet.append((now_s - since, session))
    if not any(waited_s >= min(CROWDED_IDLE_S, IDLE_S) for waited_s, _ in quiet):
        return []
    rest = Rest()
    quiet = [waiting for waiting in quiet if rest.proves(waiting[1])]
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
