"""Eviction of runs that only wait: after a minute of waiting, only an entry of a run stays in memory.

Decision record: eviction is a crash by choice. A run may be evicted when each of its open steps waits on the
log (`RunJournal.until`), none of its effects is in a call, and nothing of it was journaled for `IDLE_S`. If
the body of a step runs a task or a timer of its own beside such a wait, that ends, as in a crash. The body
runs again from its first line when a record or a deadline brings the run back, and journaled work is not
repeated. So nothing has to be proved about the tasks of a body. A run in a node with a timeout stays: that
deadline is not on the log, and nothing else would end the node.

A loaded run takes 55 kB, most of it LangGraph's, and thousands may begin to wait within a minute. So when
more than `CROWD` runs of a partition wait, those that wait longest are evicted after `CROWDED_IDLE_S`. A run
that will probably go on soon is evicted after `SOON_IDLE_S` only, because to read it back costs as much as to
start it: it waits for another agent, or it came back soon after its last eviction.

Order is the guarantee. To evict a run (`Eviction.evict`, which does not yield to the event loop):
 1. All that it did is on the log, and it was told of all that was accepted for it (`RunSession.only_waits`).
 2. Its session is closed: its tasks cannot write while they end.
 3. Its task is cancelled and its entry made: from here on a record for it brings it back.
An inbox record is decided on only when its run is loaded (`bring_back`). The run stays loaded until the
record is delivered (`staying`), so no run is evicted with a record on its way to it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from noesium_stream.clock import Clock
from noesium_stream.log.record import Record
from noesium_stream.worker.runs.run_session import RunSession

IDLE_S: Final = 60.0
"""Idle time after which a waiting run is evicted, since it journaled last; by the owner's clock."""

CROWD: Final = 6
"""Waiting runs of a partition that may stay for `IDLE_S`; more are evicted sooner, longest wait first."""

CROWDED_IDLE_S: Final = 0.1
"""Idle time as `IDLE_S`, for waiting runs beyond `CROWD`."""

SOON_IDLE_S: Final = 5.0
"""Idle time as `CROWDED_IDLE_S`, for a run that waits for an agent or came back this soon when evicted."""

SWEEP_S: Final = 5.0
"""Period of the search for idle runs, by the machine's time, so that it moves no virtual clock."""


class EvictionOwner(Protocol):
    """The interface of a partition's open runs that eviction needs."""

    clock: Clock

    def evicted(self, run_id: str) -> None:
        """Note that a run was evicted."""

    async def read_runs(self, run_ids: Collection[str]) -> dict[str, list[Record]]:
        """Read the records of runs, by run id; wait while the log is unavailable."""

    def bring_back(self, run_id: str, records: list[Record]) -> RunSession:
        """Load a run from its records and let it go on."""


class Eviction:
    """The open runs of one partition that are not in memory.

    Args:
        owner: the open runs of the partition.
        runs: the loaded runs by id; evicted runs are removed.
        on_failure: called with the error if a run cannot be read back.
    """

    def __init__(
        self, owner: EvictionOwner, runs: dict[str, RunSession], on_failure: Callable[[BaseException], None]
    ) -> None:
        self._owner = owner
        self._runs = runs
        self._on_failure = on_failure
        self._evicted: dict[str, float] = {}
        """Time of each run's eviction, by the owner's monotonic clock."""
        self._staying: Counter[str] = Counter()
        self._wanted: set[str] = set()
        self._loader: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._crowded = asyncio.Event()
        self._sweeper = asyncio.create_task(self._sweep(), name="evict idle runs")

    def __len__(self) -> int:
        return len(self._evicted)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._evicted

    # -- out of memory -------------------------------------------------------------------------------

    def waits(self) -> None:
        """Note that a task of a run begins to wait."""
        if len(self._runs) > CROWD:
            self._crowded.set()

    def evict_idle(self) -> None:
        """Evict the runs that have waited long enough."""
        now_s = self._owner.clock.monotonic()
        waiting = [session for session in self._runs.values() if session.begun and session.only_waits()]
        waiting.sort(key=lambda session: session.active_s)
        crowded = len(waiting) - CROWD
        for number, session in enumerate(waiting):
            least_s = IDLE_S
            if number < crowded:
                soon = session.returned_soon or session.waits_for_agents()
                least_s = SOON_IDLE_S if soon else CROWDED_IDLE_S
            if now_s - session.active_s >= least_s:
                self.evict(session)
            elif number < crowded:
                self._crowded.set()  # check it again soon

    def evict(self, session: RunSession) -> None:
        """Remove a waiting run from memory, unless it has to stay; its task ends soon after."""
        run_id = session.run_id
        if self._staying[run_id]:
            return
        session.close()
        task = session.task
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
        self._evicted[run_id] = self._owner.clock.monotonic()
        del self._runs[run_id]
        self._owner.evicted(run_id)

    def adopt(self, run_ids: Iterable[str]) -> None:
        """Add open runs that were never loaded here."""
        self._evicted.update(dict.fromkeys(run_ids, float("-inf")))

    async def _sweep(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_S):
                    await self._crowded.wait()
                    await asyncio.sleep(CROWDED_IDLE_S)
            self._crowded.clear()
            self.evict_idle()

    # -- and back ------------------------------------------------------------------------------------

    @contextmanager
    def staying(self, run_ids: Collection[str]) -> Iterator[None]:
        """Keep these runs from being evicted inside the `with` block."""
        self._staying.update(run_ids)
        try:
            yield
        finally:
            self._staying.subtract(run_ids)
            for run_id in run_ids:
                if not self._staying[run_id]:
                    del self._staying[run_id]

    async def bring_back(self, run_ids: Collection[str]) -> None:
        """Return when each of these runs is loaded, or given up in the meantime.

        Raises the error by which a run could not be read.
        """
        while wanted := [run_id for run_id in run_ids if run_id in self._evicted]:
            loader = self.load(wanted)
            await asyncio.wait((loader,))
            if not loader.cancelled():
                loader.result()

    def load(self, run_ids: Collection[str]) -> asyncio.Task[None]:
        """Start to read evicted runs back; runs wanted at the same time share one pass over the journal."""
        self._wanted.update(run_ids)
        if self._loader is None or self._loader.done():
            self._loader = asyncio.create_task(self._load(), name="bring runs back")
            self._loader.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._loader

    async def _load(self) -> None:
        try:
            while self._wanted:
                wanted = sorted(self._wanted & self._evicted.keys())
                self._wanted.clear()
                if not wanted:
                    return
                found = await self._owner.read_runs(wanted)
                now_s = self._owner.clock.monotonic()
                for run_id in wanted:
                    since_s = self._evicted.pop(run_id)
                    session = self._owner.bring_back(run_id, found[run_id])
                    session.returned_soon = now_s - since_s < SOON_IDLE_S
        except Exception as error:
            self._on_failure(error)
            raise

    async def close(self) -> None:
        """Forget all entries: the partition goes on elsewhere or is read anew."""
        self._evicted.clear()
        tasks = [self._sweeper, *self._ending]
        if self._loader is not None:
            tasks.append(self._loader)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
