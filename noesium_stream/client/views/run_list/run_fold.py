"""Fold of the records of an agent type's runs: what they are, where they lie, and what their commands say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noesium_stream.client.views.runs import RunInfo, fold_record
from noesium_stream.client.views.waits import Place, place_of
from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.log.generations import Generation
from noesium_stream.log.record import Record


class RunFold:
    """Runs by id, each after the records that were taken.

    Args:
        agent_type: the agent type.
        note: what is noted of a run's first command, which is the one that counts; None: nothing.
        runs: runs that are known already.

    Attributes:
        runs: the runs.
        places: where they lie.
        noted: what `note` has returned.
    """

    def __init__(
        self,
        agent_type: str,
        note: Callable[[EventEnvelope], Any] | None,
        runs: dict[str, RunInfo] | None = None,
    ) -> None:
        self._agent_type = agent_type
        self._note = note
        self.runs: dict[str, RunInfo] = {} if runs is None else runs
        self.places: dict[str, Place] = {}
        self.noted: dict[str, Any] = {}

    def take(self, record: Record, generation: Generation) -> bool:
        """Fold the next record of an inbox or journal; return whether it could be read."""
        is_read = fold_record(self.runs, record, self._agent_type)
        key = record.key
        self.places[key] = place_of(self.places.get(key), generation, record)
        if self._note is not None and key not in self.noted and key in self.runs:
            try:
                if record.event_type in COMMANDS and record.unchecked.payload.get("run_id") == key:
                    self.noted[key] = self._note(record.unchecked)
            except CorruptRecordError:
                return False  # the fold of the run has passed it over, too
        return is_read
