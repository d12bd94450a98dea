"""`Goals`: what a node does with the goals of its run (RFC-1001 §5, `goalith`).

Every change is an event that commits with the step. A node reads what the supersteps before its own have
done, and what it has done itself, so it is the same after a crash and in a replay; nodes that run at the same
time do not see each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from noesium_stream.errors import GoalError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.goal_fold import PREFIX, GoalEvent, Order, folded, goal_event, why_not
from noesium_stream.event.rules.goal_tree import Goal, GoalTree
from noesium_stream.event.standard import (
    GoalAbandoned,
    GoalAdded,
    GoalBlocked,
    GoalCompleted,
    GoalDependencyAdded,
    GoalDependencyRemoved,
    GoalFailed,
    GoalRevised,
    GoalStarted,
    GoalUnblocked,
)
from noesium_stream.kernel.run_history import superstep
from noesium_stream.kernel.step.position import Place, this_step

GoalOrId = Goal | str
_SHOWN: Final = 80
MAX_NEEDED: Final = 100
"""Goals on which a new one depends."""


class Goals:
    """The goals of the run whose node calls: `BaseAgent.goals`, or `Goals()` in any node.

    Methods that change a goal return it as it is then, and raise `GoalError` if that is not possible, and
    `KernelError` outside a node. A goal is given as an object or by its id.
    """

    def tree(self) -> GoalTree:
        """All goals of the run."""
        return _tree(this_step())

    def get(self, goal: GoalOrId) -> Goal | None:
        """A goal as it is now; None: there is none of this id."""
        return self.tree().get(_id(goal))

    def ready(self) -> list[Goal]:
        """See `GoalTree.ready`."""
        return self.tree().ready()

    def add(
        self,
        title: str,
        *,
        parent: GoalOrId | None = None,
        depends_on: Iterable[GoalOrId] = (),
        detail: str | None = None,
        id: str | None = None,
    ) -> Goal:
        """Set a goal.

        Args:
            title: 1 to 1,000 characters.
            parent: the open goal of which it is a part.
            depends_on: goals that have to be completed before this one is started, 100 at most.
            detail: more about it.
            id: its name within the run; None: a new one, the same in a replay.
        """
        place = this_step()
        needed = list(dict.fromkeys(map(_id, depends_on)))
        goal_id = place.uuid() if id is None else id
        parent_id = None if parent is None else _id(parent)
        event = GoalAdded(
            goal_id=goal_id, title=title, detail=detail, parent_id=parent_id, depends_on=needed or None
        )
        return self._emit(place, event)

    def revise(
        self,
        goal: GoalOrId,
        *,
        title: str | None = None,
        detail: str | None = None,
        reason: str | None = None,
    ) -> Goal:
        """Put a goal differently; what is not given stays."""
        event = GoalRevised(goal_id=_id(goal), title=title, detail=detail, reason=reason)
        return self._emit(this_step(), event)

    def depend(self, goal: GoalOrId, on: GoalOrId) -> Goal:
        """Let a goal wait until another one is completed."""
        return self._emit(this_step(), GoalDependencyAdded(goal_id=_id(goal), depends_on=_id(on)))

    def release(self, goal: GoalOrId, of: GoalOrId) -> Goal:
        """Do not let a goal wait for another one any more."""
        return self._emit(this_step(), GoalDependencyRemoved(goal_id=_id(goal), depends_on=_id(of)))

    def start(self, goal: GoalOrId) -> Goal:
        """Say that work on a goal begins; one that waits for others cannot be started."""
        place, goal_id = this_step(), _id(goal)
        tree = _tree(place)
        if goal_id in tree.goals and tree.status(goal_id) == "waiting":
            held = tree.waits_for(goal_id) or tree.above(goal_id)
            raise GoalError(
                f"{_shown(tree, goal_id)} cannot be started: it waits for {_shown(tree, held[0].id)}.",
                hint="Start one of `ready()`, or release the goal of the other one.",
            )
        return self._emit(place, GoalStarted(goal_id=goal_id))

    def block(self, goal: GoalOrId, reason: str) -> Goal:
        """Say that a goal cannot go on, and why; its parts wait, too."""
        return self._emit(this_step(), GoalBlocked(goal_id=_id(goal), reason=reason))

    def unblock(self, goal: GoalOrId, reason: str | None = None) -> Goal:
        """Let a blocked goal go on."""
        return self._emit(this_step(), GoalUnblocked(goal_id=_id(goal), reason=reason))

    def complete(self, goal: GoalOrId, result: Any = None) -> Goal:
        """Say that a goal is reached; it must have no open parts, and `result` a JSON form.

        Raises `StateError` if it has none.
        """
        kept = to_json(result, "the result of a goal")
        return self._emit(this_step(), GoalCompleted(goal_id=_id(goal), result=kept))

    def fail(self, goal: GoalOrId, reason: str) -> Goal:
        """Say that a goal cannot be reached; its open parts are given up."""
        return self._close(goal, reason, GoalFailed)

    def abandon(self, goal: GoalOrId, reason: str) -> Goal:
        """Give up a goal, and its open parts."""
        return self._close(goal, reason, GoalAbandoned)

    def _close(self, goal: GoalOrId, reason: str, how: type[GoalFailed | GoalAbandoned]) -> Goal:
        place, goal_id = this_step(), _id(goal)
        event = how(goal_id=goal_id, reason=reason)
        _check(_tree(place), event)
        for part in reversed(_tree(place).below(goal_id)):
            if part.open:
                self._emit(place, GoalAbandoned(goal_id=part.id, reason=reason))
        return self._emit(place, event)

    def _emit(self, place: Place, event: DomainEvent) -> Goal:
        place.check_open()
        tree = _tree(place)
        _check(tree, event)
        payload = event.payload()
        here = GoalEvent(Order(0, "", 0), event.event_type(), payload)
        after = folded(tree, [here]).goals[payload["goal_id"]]
        place.emitted.append(event)
        return after


def _tree(place: Place) -> GoalTree:
    now = superstep(place.key)
    before = (goal_event(event) for event in place.history.goals)
    earlier = [event for event in before if event is not None and event.order.superstep < now]
    own = [event for event in place.emitted if event.event_type().startswith(PREFIX)]
    here = [
        GoalEvent(Order(now, "", number), event.event_type(), event.payload())
        for number, event in enumerate(own)
    ]
    # Times differ between an execution and its replay, so that no node may see them.
    plain = [GoalEvent(event.order, event.event_type, event.payload) for event in earlier]
    return folded(place.history.goals_before, [*plain, *here])


def _check(tree: GoalTree, event: DomainEvent) -> None:
    payload = event.payload()
    _check_texts(payload)
    why = why_not(tree, event.event_type(), payload)
    if why is not None:
        raise GoalError(
            f"{event.event_type()} is not possible for {_shown(tree, payload['goal_id'])}: {why}.",
            hint="`goals.tree()` has the goals as they are.",
        )


_LONGEST: Final = {"goal_id": 256, "title": 1_000, "reason": 10_000, "parent_id": 256}


def _check_texts(payload: dict[str, Any]) -> None:
    """Refuse a text that the event's schema refuses, where the call stands and not at the end of the node."""
    for name, longest in _LONGEST.items():
        text = payload.get(name)
        if text is not None and not 0 < len(text) <= longest:
            raise GoalError(
                f"The {name} of a goal has {len(text):,} characters.", hint=f"Give 1 to {longest:,}."
            )
    needed = payload.get("depends_on")
    if isinstance(needed, list) and len(needed) > MAX_NEEDED:
        raise GoalError(
            f"A goal depends on more than {MAX_NEEDED} others.", hint="Make some of them parts of one goal."
        )


def _shown(tree: GoalTree, goal_id: str) -> str:
    goal = tree.get(goal_id)
    return repr((goal_id if goal is None else goal.title)[:_SHOWN])


def _id(goal: GoalOrId) -> str:
    return goal.id if isinstance(goal, Goal) else goal
