"""The runs of some agent types, as the log has them now, and what the open ones wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from noesium_stream.client.views.runs import RUN_TYPES, RunInfo, fold_record
from noesium_stream.client.views.waits import Owners, Place, fold_runs_at, place_of, waits_of
from noesium_stream.client.views.where import Conditions, condition_of, from_command, fulfils, needs_status
from noesium_stream.client.views.where_expression import ANY_RUN, Expression
from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record

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

    Raises:
        ConfigError: it is no condition.
    """

    def __init__(
        self, log: EventLog, agent_types: Iterable[str], where: Conditions | Expression | None = None
    ) -> None:
        self._log = log
        self._agent_types = tuple(agent_types)
        self._where = condition_of(where)
        self._names = self._where.names
        self._places: dict[tuple[str, str], Place] = {}
        self._of_command: dict[tuple[str, str], dict[str, Any]] = {}

    async def read(self, starts: Mapping[str, Mapping[int, int]] | None = None) -> list[RunInfo]:
        """Fold the runs whose commands are in an inbox, or in a journal from these offsets on.

        Raises:
            LogUnavailableError
        """
        found: list[RunInfo] = []
        for kind in self._agent_types:
            runs: dict[str, RunInfo] = {}
            for generation in await open_generations(self._log, kind):
                for topic in (generation.inbox, generation.journal):
                    until, start = await self._log.end(topic), (starts or {}).get(topic, {})
                    async for record in self._log.read(topic, start, until=until, types=RUN_TYPES):
                        fold_record(runs, record, kind)
                        at = kind, record.key
                        self._places[at] = place_of(self._places.get(at), generation, record)
                        self._note_command(runs, record, kind)
            found += runs.values()
        if self._where == ANY_RUN:
            return found
        if needs_status(self._where):
            await self.add_waits(found)
        return [run for run in found if self._is_wanted(run)]

    def _note_command(self, runs: Mapping[str, RunInfo], record: Record, kind: str) -> None:
        """Keep what the condition asks of a run's first command, which is the one that counts."""
        at = kind, record.key
        if not self._names or at in self._of_command or record.key not in runs:
            return
        try:
            if record.event_type in COMMANDS and record.unchecked.payload.get("run_id") == record.key:
                self._of_command[at] = from_command(self._names, record.unchecked)
        except CorruptRecordError:
            return  # the fold of the run has passed it over, too

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
