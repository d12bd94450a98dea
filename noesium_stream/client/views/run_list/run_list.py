"""The runs of some agent types, as the log has them now, and what the open ones wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from noesium_stream.client.views.run_list.run_file import RunFile
from noesium_stream.client.views.run_list.run_fold import RunFold
from noesium_stream.client.views.runs import RUN_TYPES, RunInfo
from noesium_stream.client.views.waits import Owners, Place, fold_runs_at, waits_of
from noesium_stream.client.views.where import (
    Conditions,
    asked_of,
    condition_of,
    from_command,
    fulfils,
    needs_status,
)
from noesium_stream.client.views.where_expression import ANY_RUN, Expression
from noesium_stream.errors import ProjectionError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog

OPEN: Final = ("requested", "running")
"""Statuses of runs that may wait for what `Wait` names; a deferred or stranded run has a reason."""

WAITING: Final = "waiting"


def is_status(run: RunInfo, status: str) -> bool:
    """Whether a run stands so; one that waits for its turn is `requested` and waits."""
    return run.status == status or (status == WAITING and bool(run.waits_for))


class RunList:
    """The runs of these agent types.

    Args:
        log: the log.
        agent_types: the agent types.
        where: a condition that a run has to fulfil (see `views.where`); to it a run whose command is not on
            the log any more has no input.
        folder: where projections keep their states of this log on this machine: the runs are then kept there,
            and later records alone are read. None: all are read.

    Raises:
        ConfigError: it is no condition.
    """

    def __init__(
        self,
        log: EventLog,
        agent_types: Iterable[str],
        where: Conditions | Expression | None = None,
        folder: Path | None = None,
    ) -> None:
        self._log = log
        self._agent_types = tuple(agent_types)
        self._where = condition_of(where)
        self._names = self._where.names
        self._folder = folder
        self._places: dict[tuple[str, str], Place] = {}
        self._of_command: dict[tuple[str, str], dict[str, Any]] = {}

    async def read(self, starts: Mapping[str, Mapping[int, int]] | None = None) -> list[RunInfo]:
        """Fold the runs whose commands are in an inbox, or in a journal from these offsets on.

        Raises:
            LogUnavailableError
        """
        found: list[RunInfo] = []
        for kind in self._agent_types:
            fold = None if starts is not None else await self._kept(kind)
            if fold is None:
                fold = await self._fold(kind, starts or {})
            found += fold.runs.values()
            self._places |= {(kind, run_id): place for run_id, place in fold.places.items()}
            self._of_command |= {(kind, run_id): noted for run_id, noted in fold.noted.items()}
        if self._where == ANY_RUN:
            return found
        if needs_status(self._where):
            await self.add_waits(found)
        return [run for run in found if self._is_wanted(run)]

    async def _kept(self, kind: str) -> RunFold | None:
        """The runs as they are kept on this machine; None: they are not, or the file cannot be used now."""
        if self._folder is None:
            return None
        generations = await open_generations(self._log, kind)
        try:
            fold = await RunFile(self._log, self._folder, kind).fold(generations, asked=bool(self._names))
        except (ProjectionError, OSError):
            return None  # the log says the same
        fold.noted = {
            run_id: from_command(self._names, asked) for run_id, asked in fold.noted.items() if self._names
        }
        return fold

    async def _fold(self, kind: str, starts: Mapping[str, Mapping[int, int]]) -> RunFold:
        fold = RunFold(kind, self._noted if self._names else None)
        for generation in await open_generations(self._log, kind):
            for topic in (generation.inbox, generation.journal):
                until, start = await self._log.end(topic), starts.get(topic, {})
                async for record in self._log.read(topic, start, until=until, types=RUN_TYPES):
                    fold.take(record, generation)
        return fold

    def _noted(self, command: EventEnvelope) -> dict[str, Any]:
        return from_command(self._names, asked_of(command))

    def _is_wanted(self, run: RunInfo) -> bool:
        return fulfils(self._where, run, self._of_command.get((run.agent_type, run.run_id), {}))

    async def add_waits(self, runs: Iterable[RunInfo]) -> None:
        """Set the status of these runs to `waiting`, and `waits_for`, where an open one waits.

        Raises:
            LogUnavailableError
        """
        by_type: dict[str, dict[str, RunInfo]] = {}
        for run in runs:
            if run.status in OPEN and (run.agent_type, run.run_id) in self._places:
                by_type.setdefault(run.agent_type, {})[run.run_id] = run
        for kind, found in by_type.items():
            places = {run_id: self._places[kind, run_id] for run_id in found}
            started = {run_id: places[run_id] for run_id, run in found.items() if run.status == "running"}
            states = await fold_runs_at(self._log, started) if started else {}
            owners = Owners(self._log, kind)
            for run_id, run in found.items():
                waits = waits_of(states[run_id]) if run_id in states else ()
                owner = await owners.wait(places[run_id], run.status == "running")
                run.waits_for = waits if owner is None else (*waits, owner)
                if run.waits_for and (owner is None or owner.kind == "worker"):
                    run.status = WAITING
