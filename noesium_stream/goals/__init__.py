"""Goals of runs (RFC-1001 §5, `goalith`): set, revised, blocked and reached as events."""

from typing import TYPE_CHECKING

from noesium_stream.event.rules.goal_fold import RunGoals
from noesium_stream.event.rules.goal_tree import Goal, GoalTree
from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.goals.goals import Goals
    from noesium_stream.goals.projection import GoalProjection

__all__ = ["Goal", "GoalProjection", "GoalTree", "Goals", "RunGoals"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, {"GoalProjection": "projection", "Goals": "goals"})
