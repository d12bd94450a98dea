"""What came of calls outside that this process has made, and may not have recorded before it lost them."""

from __future__ import annotations

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel import RunHistory
from noesium_stream.worker.session import RunSession


class Unrecorded:
    """Outcomes of effects: recorded once their runs are back, if nothing else has been by then."""

    def __init__(self) -> None:
        self._outcomes: dict[str, EventEnvelope] = {}

    def keep(self, history: RunHistory) -> None:
        """A run is given up. Should its last records be lost, what was done outside is not forgotten."""
        self._outcomes.update(history.outcomes)

    def runs(self) -> set[str | None]:
        """Whose they are, by run id."""
        return {outcome.partition_key for outcome in self._outcomes.values()}

    def record(self, session: RunSession) -> None:
        """Record now, for a run that is back, what its journal does not have."""
        history = session.history
        for effect_id, requested in history.requested.items():
            outcome = self._outcomes.pop(effect_id, None)
            if outcome is None or effect_id in history.outcomes:
                continue
            if outcome.causation_id == requested.event_id:  # not of a call that was made again elsewhere
                session.restage(outcome)
        session.flush()
