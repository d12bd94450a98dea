"""The ends of runs: follows the journals of agent types, and tells of the runs that somebody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from noesium_stream.clock import Clock
from noesium_stream.errors import CorruptRecordError, EventStoreError
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard.schedule import LAST_MS, MAX_ERROR
from noesium_stream.log.generations import generations, open_generations
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record

_AGAIN_S: Final = 1.0
"""Pause before an unavailable log is asked again, in seconds."""
_GENERATIONS_S: Final = 30.0
"""How often new generations of an agent's journals are looked for, in seconds."""


class RunEnd(NamedTuple):
    """The end of a run; `status` as in a list of runs, `error` if it has no result."""

    run_id: str
    status: str
    ended_ms: int
    error: str | None


class RunEnds:
    """Follows the ends of runs.

    Args:
        log: an open log.
        clock: the source of time.
        on_end: called with each end of a run that is waited for; awaited before the next one.
        on_done: called with each task that has ended.
        progress: takes one line for people.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        on_end: Callable[[RunEnd], Awaitable[None]],
        on_done: Callable[[asyncio.Task[None]], None],
        progress: Callable[[str], None],
    ) -> None:
        self._log = log
        self._clock = clock
        self._on_end = on_end
        self._on_done = on_done
        self._progress = progress
        self._expected: set[str] = set()
        self._types: dict[str, asyncio.Task[None]] = {}

    async def follow(self, agent_type: str, *, from_beginning: bool) -> None:
        """Follow the runs of an agent type: those that end from now on, or all of them.

        Raises:
            LogUnavailableError, ConfigError: as `log.generations.generations`.
        """
        if agent_type in self._types:
            return
        starts: dict[str, Mapping[int, int]] = {}
        for generation in await generations(self._log, agent_type):
            at = self._log.beginning if from_beginning else self._log.end
            starts[generation.journal] = await at(generation.journal)
        if agent_type not in self._types:
            task = asyncio.create_task(self._follow(agent_type, starts), name=f"ends of {agent_type}")
            task.add_done_callback(self._on_done)
            self._types[agent_type] = task

    def expect(self, run_id: str) -> None:
        """Tell of the end of this run, once it comes."""
        self._expected.add(run_id)

    def forget(self, run_id: str) -> None:
        """Do not tell of it any more."""
        self._expected.discard(run_id)

    async def close(self) -> None:
        """Stop."""
        tasks = list(self._types.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, agent_type: str, starts: Mapping[str, Mapping[int, int]]) -> None:
        """Read the journals of all generations, also of those to come."""
        async with asyncio.TaskGroup() as group:
            followed = set(starts)
            for journal, start in starts.items():
                group.create_task(self._read(journal, dict(start)))
            while True:
                await self._clock.sleep(_GENERATIONS_S)
                try:
                    found = [one.journal for one in await open_generations(self._log, agent_type)]
                    for journal in found:
                        if journal not in followed:
                            first = await self._log.beginning(journal)
                            followed.add(journal)
                            group.create_task(self._read(journal, first))
                except EventStoreError:
                    continue  # it is asked again

    async def _read(self, journal: str, cursor: dict[int, int]) -> None:
        while True:
            try:
                await self._read_on(journal, cursor)
            except EventStoreError as error:
                self._progress(f"ends of runs are read from {journal} later: {error.message}")
                await self._clock.sleep(_AGAIN_S)

    async def _read_on(self, journal: str, cursor: dict[int, int]) -> None:
        source = self._log.read(journal, cursor, types=tuple(ENDINGS))
        try:
            async for record in source:
                end = _end_in(record) if record.key in self._expected else None
                if end is not None:
                    await self._on_end(end)
                cursor[record.partition] = record.offset + 1
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()


def _end_in(record: Record) -> RunEnd | None:
    """The end of a run in a record of its journal; None: it is not the run's own."""
    try:
        event = record.envelope
    except CorruptRecordError:
        return None
    status, payload = ENDINGS.get(event.event_type), event.payload
    if status is None or payload.get("run_id") != record.key:
        return None
    said = None if status == "completed" else payload.get("message") or payload.get("reason")
    error = None if said is None else str(said)[:MAX_ERROR]
    return RunEnd(record.key, status, min(max(event.timestamp_ms, 0), LAST_MS), error)
