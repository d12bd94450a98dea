"""The fold of the events of goals into a tree: pure, and the same for every order of parallel nodes.

Nodes of one superstep run at the same time and do not see each other, so the order in which their commits
come to lie in the journal is chance. The fold does not depend on it: events are ordered by superstep, task
and number within the task, which their idempotency keys name. That order is also the one in which a replay
has them.

An event that cannot be changes nothing: of an unknown goal, of a closed one, a dependency that closes a
cycle, a level that is too deep. The tree names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.goal_tree import Goal, GoalStatus, GoalTree, Refused
from noesium_stream.event.standard.segment import MAX_GOALS, MAX_REFUSED

PREFIX: Final = "goal."
TYPES: Final = (
    "goal.added",
    "goal.revised",
    "goal.dependency.added",
    "goal.dependency.removed",
    "goal.started",
    "goal.blocked",
    "goal.unblocked",
    "goal.completed",
    "goal.failed",
    "goal.abandoned",
)
MAX_DEPTH: Final = 16
"""Levels of a tree."""
MAX_DEPENDENCIES: Final = 2_000
"""Dependencies of all goals of a run."""
MAX_LATEST: Final = 2_000
"""Events of one superstep that a projection orders; further ones follow in the order of the journal."""

Payload = Mapping[str, Any]


class Order(NamedTuple):
    """Where an event stands in its run: superstep, path of the task, number within the task."""

    superstep: int
    task: str
    number: int


@dataclass(frozen=True, slots=True)
class GoalEvent:
    """An event of a run's goals; `at_ms` is its time, 0 in the node that makes it."""

    order: Order
    event_type: str
    payload: dict[str, Any]
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class RunGoals:
    """The goals of a run as a projection keeps them.

    Attributes:
        settled: the tree without the events of the latest superstep.
        superstep: the latest superstep.
        latest: its events, in the order in which they were read.
    """

    settled: GoalTree = field(default_factory=GoalTree)
    superstep: int = 0
    latest: tuple[GoalEvent, ...] = ()

    @property
    def tree(self) -> GoalTree:
        """The tree with all events."""
        return folded(self.settled, self.latest)


def order_of(event: EventEnvelope) -> Order | None:
    """Where an event stands in its run, by its idempotency key; None: no step has made it."""
    _, _, rest = (event.idempotency_key or "").partition("/")
    step, _, rest = rest.partition("/")
    task, _, number = rest.rpartition("/")
    if not (_is_number(step) and _is_number(number) and task):
        return None
    return Order(_superstep(int(step), task), f"{step}/{task}", int(number))


def goal_event(event: EventEnvelope) -> GoalEvent | None:
    """An event of goals, for the fold; None: it is not of a step, or of no type that is known here."""
    order = order_of(event)
    if order is None or event.event_type not in TYPES:
        return None
    return GoalEvent(order, event.event_type, event.payload, event.timestamp_ms)


def told(goals: RunGoals, event: GoalEvent) -> RunGoals:
    """The goals of a run after one more event of its journal."""
    number = event.order.superstep
    if number > goals.superstep or len(goals.latest) >= MAX_LATEST:
        return RunGoals(goals.tree, max(number, goals.superstep), (event,))
    return RunGoals(goals.settled, goals.superstep, (*goals.latest, event))


def folded(tree: GoalTree, events: Iterable[GoalEvent]) -> GoalTree:
    """The tree after some more events, whatever the order in which they are given."""
    in_order = sorted(events, key=lambda one: one.order)
    if not in_order:
        return tree
    building = _Building(dict(tree.goals), list(tree.refused), tree.refusals)
    for event in in_order:
        building.apply(event)
    return GoalTree(building.goals, tuple(building.refused), building.refusals)


def carried_tree(carried: Mapping[str, Any]) -> GoalTree:
    """The tree that a segment of a run begins with, from a payload's `CarriedGoals`.

    A goal that cannot be, because its parent does not come before it or lies too deep, is named in the tree
    and left out; so is a dependency on a goal that there is not.
    """
    refused = [Refused(one["event_type"], one["goal_id"], one["why"]) for one in carried["refused"]]
    building = _Building({}, refused, carried["refusals"])
    for one in carried["goals"]:
        goal, goals = Goal(**{**one, "depends_on": tuple(one["depends_on"])}), building.goals
        parent_id = goal.parent_id
        if parent_id is not None and parent_id not in goals:
            building.refuse("goal.added", goal.id, "there is no goal before it of which it could be a part")
        elif parent_id is not None and len(_with_above(goals, parent_id)) >= MAX_DEPTH:
            building.refuse("goal.added", goal.id, f"it would lie more than {MAX_DEPTH} levels deep")
        else:
            goals[goal.id] = goal
    known = building.goals
    found = {
        goal.id: replace(goal, depends_on=tuple(one for one in goal.depends_on if one in known))
        for goal in known.values()
    }
    return GoalTree(found, tuple(building.refused), building.refusals)


def why_not(tree: GoalTree, event_type: str, payload: Payload) -> str | None:
    """Why an event would change nothing; None: it would not be refused."""
    return _CHECKS[event_type](tree.goals, payload)


@dataclass(slots=True)
class _Building:
    goals: dict[str, Goal]
    refused: list[Refused]
    refusals: int

    def apply(self, event: GoalEvent) -> None:
        payload, goal_id = event.payload, event.payload["goal_id"]
        why = _CHECKS[event.event_type](self.goals, payload)
        if why is not None:
            return self.refuse(event.event_type, goal_id, why)
        before = self.goals.get(goal_id) or Goal(goal_id, "")
        after = _CHANGES[event.event_type](before, payload)
        self.goals[goal_id] = replace(after, changed_ms=event.at_ms)
        return None

    def refuse(self, event_type: str, goal_id: str, why: str) -> None:
        """Name an event that changes nothing."""
        self.refusals += 1
        if len(self.refused) < MAX_REFUSED:
            self.refused.append(Refused(event_type, goal_id, why))


def _check_added(goals: dict[str, Goal], payload: Payload) -> str | None:
    goal_id, parent_id = payload["goal_id"], payload.get("parent_id")
    needed = payload.get("depends_on") or ()
    if goal_id in goals:
        return "there is a goal of this id already"
    if len(goals) >= MAX_GOALS:
        return f"the run has {MAX_GOALS} goals"
    if parent_id is not None:
        parent = goals.get(parent_id)
        if parent is None or not parent.open:
            return "there is no open goal of which it could be a part"
        if len(_with_above(goals, parent_id)) >= MAX_DEPTH:
            return f"it would lie more than {MAX_DEPTH} levels deep"
    unknown = [one for one in needed if one not in goals]
    if unknown:
        return f"it depends on {unknown[0]}, which is no goal"
    if needed and _number_of_dependencies(goals) + len(needed) > MAX_DEPENDENCIES:
        return f"the run's goals have {MAX_DEPENDENCIES} dependencies"
    if needed and parent_id is not None and _any_waits_for(goals, needed, {parent_id}):
        return "what it depends on waits for it"
    return None


def _check_dependency(goals: dict[str, Goal], payload: Payload) -> str | None:
    goal_id, needed = payload["goal_id"], payload["depends_on"]
    why = _check_open(goals, payload)
    if why is not None:
        return why
    if needed not in goals:
        return f"it depends on {needed}, which is no goal"
    if needed in goals[goal_id].depends_on:
        return "it depends on that one already"
    if _number_of_dependencies(goals) >= MAX_DEPENDENCIES:
        return f"the run's goals have {MAX_DEPENDENCIES} dependencies"
    # The parts of a goal wait for what it waits for.
    if _any_waits_for(goals, [needed], {goal_id, *(one.id for one in GoalTree(goals).below(goal_id))}):
        return "what it depends on waits for it"
    return None


def _check_removed(goals: dict[str, Goal], payload: Payload) -> str | None:
    why = _check_open(goals, payload)
    if why is None and payload["depends_on"] not in goals[payload["goal_id"]].depends_on:
        return "it does not depend on that one"
    return why


def _check_open(goals: dict[str, Goal], payload: Payload) -> str | None:
    goal = goals.get(payload["goal_id"])
    if goal is None:
        return "there is no such goal"
    return None if goal.open else f"it is {goal.status} already"


def _check_started(goals: dict[str, Goal], payload: Payload) -> str | None:
    return _check_open(goals, payload) or _unless(goals, payload, "pending")


def _check_unblocked(goals: dict[str, Goal], payload: Payload) -> str | None:
    return _check_open(goals, payload) or _unless(goals, payload, "blocked")


def _unless(goals: dict[str, Goal], payload: Payload, status: GoalStatus) -> str | None:
    found = goals[payload["goal_id"]].status
    return None if found == status else f"it is {found}, not {status}"


def _check_completed(goals: dict[str, Goal], payload: Payload) -> str | None:
    why, goal_id = _check_open(goals, payload), payload["goal_id"]
    if why is not None:
        return why
    part = next((one for one in goals.values() if one.parent_id == goal_id and one.open), None)
    return None if part is None else f"its part {part.id} is open"


def _any_waits_for(goals: dict[str, Goal], first: Iterable[str], targets: set[str]) -> bool:
    """Whether one of these goals cannot be completed before one of `targets` is."""
    parts: dict[str, list[str]] = {}
    for goal in goals.values():
        if goal.parent_id is not None:
            parts.setdefault(goal.parent_id, []).append(goal.id)
    waiting, seen = list(first), set()
    while waiting:
        one = waiting.pop()
        if one in targets:
            return True
        if one not in seen:
            seen.add(one)
            waiting += parts.get(one, ())
            waiting += [needed for goal in _with_above(goals, one) for needed in goal.depends_on]
    return False


def _with_above(goals: dict[str, Goal], goal_id: str) -> list[Goal]:
    return [goals[goal_id], *GoalTree(goals).above(goal_id)]


def _number_of_dependencies(goals: dict[str, Goal]) -> int:
    return sum(len(goal.depends_on) for goal in goals.values())


def _added(goal: Goal, payload: Payload) -> Goal:
    needed = tuple(dict.fromkeys(payload.get("depends_on") or ()))
    return Goal(goal.id, payload["title"], payload.get("detail"), payload.get("parent_id"), needed)


def _revised(goal: Goal, payload: Payload) -> Goal:
    title, detail = payload.get("title"), payload.get("detail")
    return replace(
        goal,
        title=goal.title if title is None else title,
        detail=goal.detail if detail is None else detail,
        revision=goal.revision + 1,
    )


def _depends(goal: Goal, payload: Payload) -> Goal:
    return replace(goal, depends_on=(*goal.depends_on, payload["depends_on"]))


def _depends_not(goal: Goal, payload: Payload) -> Goal:
    return replace(goal, depends_on=tuple(one for one in goal.depends_on if one != payload["depends_on"]))


def _started(goal: Goal, payload: Payload) -> Goal:
    return replace(goal, status="active", started=True)


def _blocked(goal: Goal, payload: Payload) -> Goal:
    return replace(goal, status="blocked", reason=payload["reason"])


def _unblocked(goal: Goal, payload: Payload) -> Goal:
    return replace(goal, status="active" if goal.started else "pending", reason=None)


def _closed(status: GoalStatus) -> Callable[[Goal, Payload], Goal]:
    def close(goal: Goal, payload: Payload) -> Goal:
        return replace(goal, status=status, reason=payload.get("reason"), result=payload.get("result"))

    return close


_CHECKS: Final[Mapping[str, Callable[[dict[str, Goal], Payload], str | None]]] = {
    "goal.added": _check_added,
    "goal.revised": _check_open,
    "goal.dependency.added": _check_dependency,
    "goal.dependency.removed": _check_removed,
    "goal.started": _check_started,
    "goal.blocked": _check_open,
    "goal.unblocked": _check_unblocked,
    "goal.completed": _check_completed,
    "goal.failed": _check_open,
    "goal.abandoned": _check_open,
}
_CHANGES: Final[Mapping[str, Callable[[Goal, Payload], Goal]]] = {
    "goal.added": _added,
    "goal.revised": _revised,
    "goal.dependency.added": _depends,
    "goal.dependency.removed": _depends_not,
    "goal.started": _started,
    "goal.blocked": _blocked,
    "goal.unblocked": _unblocked,
    "goal.completed": _closed("completed"),
    "goal.failed": _closed("failed"),
    "goal.abandoned": _closed("abandoned"),
}


def _superstep(step: int, task: str) -> int:
    """The superstep of the run's own graph, also for a step within a subgraph; as `run_history.superstep`."""
    if "|" in task:
        for part in task.split(":"):
            if not _is_number(part):
                break
            step = int(part)
    return step


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15
