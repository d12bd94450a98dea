"""Outcomes of effects that this process knows and may not have recorded before it lost the partition.

It has called them, or knows that it never will.
"""

from __future__ import annotations

from collections.abc import Mapping

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.worker.runs.run_session import RunSession


class UnrecordedOutcomes:
    """Keeps outcomes of effects until their runs are back; records those that the journal lacks."""

    def __init__(self) -> None:
        self._outcomes: dict[str, EventEnvelope] = {}

    def keep(self, outcomes: Mapping[str, EventEnvelope]) -> None:
        """Keep the outcomes of a run that is given up, by effect id, in case its last records are lost."""
        self._outcomes.update(outcomes)

    def runs(self) -> set[str | None]:
        """Return the ids of the runs that the outcomes belong to."""
        return {outcome.partition_key for outcome in self._outcomes.values()}

    def record(self, session: RunSession) -> None:
        """Record the outcomes of a run that is back, if its journal does not have them."""
        history = session.history
        for effect_id, requested in history.requested.items():
            outcome = self._outcomes.pop(effect_id, None)
            if outcome is None or effect_id in history.outcomes:
                continue
            if outcome.causation_id == requested.event_id:  # else another owner has made the call again
                session.restage(outcome)
        session.flush()
