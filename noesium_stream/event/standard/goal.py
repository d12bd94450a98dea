"""Goals (RFC-1001 §5, `goalith`): what a run has set out to do, and how far it has come.

Each event is about one goal of the run whose journal has it, and commits with the step that made it. What
follows from them is a pure function of these events (`event/rules/goal_fold.py`): one that is not possible,
such as a dependency that closes a cycle, changes nothing and is named beside the tree.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from noesium_stream.event.domain_event import Form
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Text

Title = Annotated[str, Form(minLength=1, maxLength=1_000)]
Reason = Annotated[str, Form(minLength=1, maxLength=10_000)]
Goals = Annotated[list[Identifier], Form(maxItems=100)]


class GoalAdded(StandardEvent, event_type="goal.added"):
    """A goal, or with `parent_id` a subgoal; it waits until the goals of `depends_on` are completed."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("detail", "parent_id", "depends_on")

    goal_id: Identifier
    title: Title
    detail: Text | None = None
    parent_id: Identifier | None = None
    depends_on: Goals | None = None


class GoalRevised(StandardEvent, event_type="goal.revised"):
    """A goal is put differently; what is left out stays."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("title", "detail", "reason")

    goal_id: Identifier
    title: Title | None = None
    detail: Text | None = None
    reason: Reason | None = None


class GoalDependencyAdded(StandardEvent, event_type="goal.dependency.added"):
    """A goal waits until another one is completed."""

    goal_id: Identifier
    depends_on: Identifier


class GoalDependencyRemoved(StandardEvent, event_type="goal.dependency.removed"):
    """A goal does not wait for another one any more."""

    goal_id: Identifier
    depends_on: Identifier


class GoalStarted(StandardEvent, event_type="goal.started"):
    """Work on a goal has begun."""

    goal_id: Identifier


class GoalBlocked(StandardEvent, event_type="goal.blocked"):
    """A goal cannot go on, for a reason outside the plan."""

    goal_id: Identifier
    reason: Reason


class GoalUnblocked(StandardEvent, event_type="goal.unblocked"):
    """A blocked goal can go on."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("reason",)

    goal_id: Identifier
    reason: Reason | None = None


class GoalCompleted(StandardEvent, event_type="goal.completed"):
    """A goal is reached, and so are its subgoals or they were given up."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("result",)

    goal_id: Identifier
    result: Any = None


class GoalFailed(StandardEvent, event_type="goal.failed"):
    """A goal cannot be reached."""

    goal_id: Identifier
    reason: Reason


class GoalAbandoned(StandardEvent, event_type="goal.abandoned"):
    """A goal is given up."""

    goal_id: Identifier
    reason: Reason
