"""The schedules of a log as a projection: the scheduler's state, and what people are shown."""

from __future__ import annotations

from typing import Final

from noesium_stream.agent.schedules.decider import INPUTS, NONE, decide
from noesium_stream.agent.schedules.state import Schedule
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection

SCHEDULES: Final = "events.schedule"
"""The topic of schedules, without the namespace."""


class Schedules(BaseProjection[Schedule]):
    """Schedules by name."""

    name = "schedules"
    topics = (SCHEDULES,)
    event_types = INPUTS

    def key(self, event: EventEnvelope) -> str | None:
        """The name; an event under another key belongs to no schedule."""
        name = event.payload.get("schedule")
        return name if isinstance(name, str) and name == event.partition_key else None

    def initial_state(self) -> Schedule:
        """The state of a name that no schedule has."""
        return NONE

    def apply(self, state: Schedule, event: EventEnvelope) -> Schedule | None:
        """See `decide`."""
        return decide(state, event).state
