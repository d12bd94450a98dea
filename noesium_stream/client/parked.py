"""Waiting for a run's result where nobody may be there to give it: who waits hears of a run that is parked.

A journal whose last word is `run.parked` may be that of a run which is about to go on: the worker in this
process, or another one, has yet to take the partition. So the reason counts when it is written while somebody
waits, when the worker of this process has left the run alone, or when it has stood there for `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final, NoReturn

from noesium_stream.client.run import Run
from noesium_stream.client.runs import GOES_ON
from noesium_stream.clock import Clock
from noesium_stream.errors import RunParkedError, RunTimeoutError
from noesium_stream.log.generations import generations

PATIENCE_S: Final = 15.0
"""How long a run may have been parked by somebody else before its reason is raised."""


class Left:
    """What a worker in this process says of the runs that it leaves alone; give `hear` as its `progress`."""

    def __init__(self) -> None:
        self._runs: set[str] = set()
        self._news = asyncio.Event()

    def hear(self, line: str) -> None:
        """Take a line for people; those of a run that is parked count."""
        first, _, rest = line.partition(" ")
        run_id, _, said = rest.partition(" ")
        if first == "run" and said.startswith("is parked: "):
            self._runs.add(run_id)
            self._news.set()

    async def until(self, run_id: str) -> None:
        """Return when the worker has left this run alone."""
        while run_id not in self._runs:
            self._news.clear()
            await self._news.wait()


async def result_of(
    run: Run, left: Left, worker: asyncio.Future[None], clock: Clock, timeout: float | None = None
) -> Any:
    """As `Run.result`, but raise the reason where nobody will give one.

    Args:
        run: whose result.
        left: what the worker of this process has left alone.
        worker: is done when the worker ends (`Worker.wait()`); it is left as it is.
        clock: time.
        timeout: seconds; None waits for ever.

    Raises:
        RunParkedError: the run waits for another worker; `reason` as its journal has it.
        RunFailedError, RunCancelledError, RunTimeoutError: as `Run.result`.
        NoesiumError: what ended the worker, such as a `ConfigError` of a migration.
    """
    loop = asyncio.get_running_loop()
    reason: asyncio.Future[str] = loop.create_future()
    result = loop.create_task(run.result())
    watch = loop.create_task(_watch(run, left, clock, reason))
    try:
        async with asyncio.timeout(timeout):
            await asyncio.wait([result, worker, reason], return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
            if reason.done():
                _raise(run, reason.result())
            worker.result()
            return await result
    except TimeoutError:
        raise RunTimeoutError(
            f"Run {run.id} of {run.agent_type} has no outcome after {timeout} s.",
            hint="It goes on by itself once a worker has it; ask again with the same id.",
        ) from None
    finally:
        result.cancel()
        watch.cancel()
        await asyncio.gather(result, watch, return_exceptions=True)


async def _watch(run: Run, left: Left, clock: Clock, found: asyncio.Future[str]) -> None:
    """Follow the run's journal; the reason why it is parked is `found` when it is so for good."""
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
    run_id: str, left: Left, clock: Clock, reason: str, found: asyncio.Future[str], is_news: bool
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
    raise RunParkedError(
        f"Run {run.id} of {run.agent_type} is parked: {reason}",
        reason=reason,
        hint="It stays on the log and goes on when a worker that carries its graph, or a migration from it, "
        "comes.",
    )
