"""The goals of all runs as a projection."""

from __future__ import annotations

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.goal_fold import TYPES, RunGoals, goal_event, told
from noesium_stream.projection.base import BaseProjection


class GoalProjection(BaseProjection[RunGoals]):
    """A row per run that has goals, by its id; `RunGoals.tree` is the tree."""

    name = "goals"
    topics = ("agent.*.journal*",)
    event_types = TYPES

    def key(self, event: EventEnvelope) -> str | None:
        """The run."""
        return event.partition_key

    def initial_state(self) -> RunGoals:
        """The goals of a run that has none."""
        return RunGoals()

    def apply(self, state: RunGoals, event: EventEnvelope) -> RunGoals:
        """The goals after one more event."""
        found = goal_event(event)
        return state if found is None else told(state, found)
