"""Goals of a run, and the tree that they form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

GoalStatus = Literal["pending", "waiting", "active", "blocked", "completed", "failed", "abandoned"]
"""Where a goal stands. `waiting` is one that was not started and has to wait, for a goal that it depends on
or for one above it; `pending` is one that could be started."""
STATUSES: Final[tuple[GoalStatus, ...]] = get_args(GoalStatus)
OPEN: Final = frozenset({"pending", "waiting", "active", "blocked"})
"""The states of a goal that is not closed."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal.

    Attributes:
        id: names it within its run.
        title: a line of text.
        detail: more of it.
        parent_id: the goal of which it is a part; None: it stands by itself.
        depends_on: goals that have to be completed before it is started, in the order in which they were
            named.
        status: what was told of it last; it is never `waiting`, which `GoalTree.status` finds out.
        started: whether work on it had begun.
        reason: why it is blocked, has failed or was given up.
        result: any JSON value.
        revision: how often it was revised.
        changed_ms: when it changed last, in milliseconds since the epoch; 0: in the node's own step.
    """

    id: str
    title: str
    detail: str | None = None
    parent_id: str | None = None
    depends_on: tuple[str, ...] = ()
    status: GoalStatus = "pending"
    started: bool = False
    reason: str | None = None
    result: Any = None
    revision: int = 0
    changed_ms: int = 0

    @property
    def open(self) -> bool:
        """Whether it is neither completed, nor failed, nor given up."""
        return self.status in OPEN


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that could not be: it has changed nothing."""

    event_type: str
    goal_id: str
    why: str


@dataclass(frozen=True, slots=True)
class GoalTree:
    """The goals of a run.

    Attributes:
        goals: by id, in the order in which they were added.
        refused: the first events that could not be, at most 20.
        refusals: how many there are.
    """

    goals: dict[str, Goal] = field(default_factory=dict)
    refused: tuple[Refused, ...] = ()
    refusals: int = 0

    def __len__(self) -> int:
        return len(self.goals)

    def __iter__(self) -> Iterator[Goal]:
        return iter(self.goals.values())

    def get(self, goal_id: str) -> Goal | None:
        """The goal of this id; None: there is none."""
        return self.goals.get(goal_id)

    def roots(self) -> list[Goal]:
        """The goals that are no part of another one."""
        return [goal for goal in self if goal.parent_id is None]

    def subgoals(self, goal_id: str) -> list[Goal]:
        """The parts of a goal, in the order in which they were added."""
        return [goal for goal in self if goal.parent_id == goal_id]

    def below(self, goal_id: str) -> list[Goal]:
        """The parts of a goal and theirs; each comes after the goal of which it is a part."""
        inside = {goal_id}
        found = []
        for goal in self:  # a part was added after the goal that it belongs to
            if goal.parent_id in inside:
                inside.add(goal.id)
                found.append(goal)
        return found

    def above(self, goal_id: str) -> list[Goal]:
        """The goals of which a goal is a part, the nearest first."""
        found = []
        goal = self.goals[goal_id]
        while goal.parent_id is not None:
            goal = self.goals[goal.parent_id]
            found.append(goal)
        return found

    def waits_for(self, goal_id: str) -> list[Goal]:
        """The goals that are not completed and that it, or one above it, depends on."""
        chain = [self.goals[goal_id], *self.above(goal_id)]
        needed = dict.fromkeys(one for goal in chain for one in goal.depends_on)
        return [self.goals[one] for one in needed if self.goals[one].status != "completed"]

    def status(self, goal_id: str) -> GoalStatus:
        """Where a goal stands, with what it waits for."""
        goal = self.goals[goal_id]
        if goal.status != "pending":
            return goal.status
        held = any(one.status == "blocked" for one in self.above(goal_id))
        return "waiting" if held or self.waits_for(goal_id) else "pending"

    def ready(self) -> list[Goal]:
        """The goals that can be started now: they wait for nothing, and have no open parts."""
        with_parts = {goal.parent_id for goal in self if goal.open}
        return [goal for goal in self if goal.id not in with_parts and self.status(goal.id) == "pending"]

    def stuck(self) -> list[Goal]:
        """The open goals that depend on one that has failed or was given up: a plan has to change."""
        lost = {goal.id for goal in self if not goal.open and goal.status != "completed"}
        return [goal for goal in self if goal.open and not lost.isdisjoint(goal.depends_on)]
