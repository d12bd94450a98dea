"""Waits for a run's result, and raises the reason if the run is stranded.

A run whose journal ends with `run.parked` may be about to go on: the worker in this process, or another one,
has yet to take the partition. So the reason is raised only if the record is written during the wait, if the
worker of this process has left the run stranded, or if it has been stranded for `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final, NoReturn

from noesium_stream.client.run import Run
from noesium_stream.client.views.runs import GOES_ON
from noesium_stream.clock import Clock
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import RunStrandedError, RunTimeoutError
from noesium_stream.log.generations import generations

PATIENCE_S: Final = 15.0
"""How long a run may stay stranded by another worker before the reason is raised, in seconds."""


class StrandedRuns:
    """Collects the runs that a worker in this process leaves stranded; pass `hear` as its `progress`."""

    def __init__(self) -> None:
        self._runs: set[str] = set()
        self._news = asyncio.Event()

    def hear(self, line: str) -> None:
        """Take a line for people; note the run if the line says that it is stranded."""
        first, _, rest = line.partition(" ")
        run_id, _, said = rest.partition(" ")
        if first == "run" and said.startswith("is stranded: "):
            self._runs.add(run_id)
            self._news.set()

    async def until(self, run_id: str) -> None:
        """Return when the worker has left this run stranded."""
        while run_id not in self._runs:
            self._news.clear()
            await self._news.wait()


async def result_of(
    run: Run, left: StrandedRuns, worker: asyncio.Future[None], clock: Clock, timeout: Duration | None = None
) -> Any:
    """Wait for a result as `Run.result` does, but raise if the run is stranded or the worker ends.

    Args:
        run: the run to wait for.
        left: the runs that this process's worker has left stranded.
        worker: task of `Worker.wait()`, done when the worker ends; it is not cancelled.
        clock: clock of the wait.
        timeout: a `timedelta`, or seconds; None waits for ever.

    Raises:
        RunStrandedError: the run waits for another worker; `reason` is that of its journal.
        RunFailedError, RunCancelledError, RunTimeoutError: as `Run.result`.
        NoesiumError: the error that ended the worker, such as a `ConfigError` of a migration.
    """
    timeout_s = None if timeout is None else in_seconds(timeout, "timeout")
    loop = asyncio.get_running_loop()
    reason: asyncio.Future[str] = loop.create_future()
    result = loop.create_task(run.result())
    watch = loop.create_task(_watch(run, left, clock, reason))
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.wait([result, worker, reason], return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
            if reason.done():
                _raise(run, reason.result())
            worker.result()
            return await result
    except TimeoutError:
        raise RunTimeoutError(
            f"Run {run.id} of {run.agent_type} has no outcome after {timeout_s:g} s.",
            hint="It goes on by itself once a worker has it; ask again with the same id.",
        ) from None
    finally:
        result.cancel()
        watch.cancel()
        await asyncio.gather(result, watch, return_exceptions=True)


async def _watch(run: Run, left: StrandedRuns, clock: Clock, found: asyncio.Future[str]) -> None:
    """Follow the run's journal; set `found` to the reason when the run stays stranded."""
    journals = [generation.journal for generation in await generations(run.log, run.agent_type)]
    until = {journal: await run.log.end(journal) for journal in journals}
    patience: asyncio.Task[None] | None = None
    try:
        async with aclosing(run.records()) as records:
            async for record in records:
                if patience is not None and record.event_type in ("run.parked", *GOES_ON):
                    patience.cancel()
                if record.event_type == "run.parked":
                    is_news = record.offset >= until.get(record.topic, {}).get(record.partition, 0)
                    reason = record.unchecked.payload["reason"]
                    patience = asyncio.create_task(_patience(run.id, left, clock, reason, found, is_news))
    finally:
        if patience is not None:
            patience.cancel()


async def _patience(
    run_id: str, left: StrandedRuns, clock: Clock, reason: str, found: asyncio.Future[str], is_news: bool
) -> None:
    if not is_news:
        told = asyncio.create_task(left.until(run_id))
        slept = asyncio.create_task(clock.sleep(PATIENCE_S))
        try:
            await asyncio.wait([told, slept], return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            slept.cancel()
    if not found.done():
        found.set_result(reason)


def _raise(run: Run, reason: str) -> NoReturn:
    raise RunStrandedError(
        f"Run {run.id} of {run.agent_type} is stranded: {reason}",
        reason=reason,
        hint="It stays on the log and goes on when a worker that carries its graph, or a migration from it, "
        "comes.",
    )
