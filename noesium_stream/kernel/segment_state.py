"""What a run carries over into a new segment beside its graph's state, and what then is its history.

The event says all that counts, so a history that has read a run from its beginning, and one that has read its
command, `run.started` and the event alone, are equal from there on.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.budget import Spending
from noesium_stream.event.rules.effect_ledger import undecided
from noesium_stream.event.rules.goal_fold import carried_tree, folded, goal_event
from noesium_stream.event.rules.goal_tree import GoalTree
from noesium_stream.event.sealing.seal import is_erased
from noesium_stream.event.standard import Carried, CarriedSignals, CarriedSpending
from noesium_stream.event.standard.segment import (
    MAX_HEARD,
    CarriedGoal,
    CarriedGoals,
    CarriedRefused,
    CarriedSlices,
)

STARTED: Final = "run.segment.started"
MOVES: Final = frozenset({"run.migrated", STARTED})
"""Types of events with which a graph begins anew, with the state that is in them."""

History = Any
"""A `RunHistory`, whose fold uses this module."""

_KEPT: Final = frozenset(
    {
        *("run_id", "agent_type", "agent_version", "status", "reason", "error", "result"),
        *("requested_ms", "started_ms", "ended_ms", "started", "pinned", "terminal", "stop"),
        *("last_event_id", "records", "requested_by"),
        "provenance",  # its own fold has read the event
    }
)


def is_quiet(history: History) -> bool:
    """Whether a run has nothing under way beside its graph, and nothing that would have to be undone."""
    return not (
        history.unanswered
        or history.stop is not None
        or history.terminal is not None
        or history.compensation is not None
        or history.undoable
        or any(effect_id not in history.outcomes for effect_id in history.requested)
        or any(undecided(history))
        or any(approval_id not in history.closed for approval_id in history.approvals)
        or history.spending.reserved
        or history.spending.shares
        or history.spending.pending
        or history.spending.slices.open
        or history.sought.keys() - history.invoked.keys() - history.unresolved.keys() - history.refused.keys()
    )


def carried(history: History) -> Carried:
    """What a new segment of the run begins with beside the state; the run is quiet."""
    return Carried(
        signals={
            name: CarriedSignals(
                taken=taken,
                left=[event.to_dict() for event in history.signals.get(name, ())[taken - before :]],
            )
            for name in sorted(history.signals.keys() | history.taken.keys())
            for before in [history.dropped.get(name, 0)]
            for taken in [max(history.taken.get(name, 0), before)]
        },
        heard=list(history.heard)[-MAX_HEARD:],
        spending=_spending(history.spending),
        labels=sorted(history.provenance.everywhere),
        said=history.provenance.said_until_now(),
        allowed=sorted(history.tools.allowed),
        calls=history.calls_made,
        notes=history.notes_now(),
        attributes=dict(sorted(history.attributes.items())),
        goals=_goals(history),
    )


def _spending(spending: Spending) -> CarriedSpending:
    slices = spending.slices
    return CarriedSpending(
        added=dict(sorted(spending.added.items())),
        spent=dict(sorted(spending.spent.items())),
        unpriced=spending.unpriced,
        own=dict(sorted(spending.own.items())),
        slices={
            account: CarriedSlices(granted=slices.granted.get(account), asked=slices.asked.get(account, 0))
            for account in sorted(slices.asked.keys() | slices.granted.keys())
        },
    )


def _goals(history: History) -> CarriedGoals:
    found = (goal_event(event) for event in history.goals)
    tree: GoalTree = folded(history.goals_before, (event for event in found if event is not None))
    return CarriedGoals(
        goals=[
            CarriedGoal(**{name: getattr(goal, name) for name in CarriedGoal.model_fields}) for goal in tree
        ],
        refused=[CarriedRefused(**dataclasses.asdict(one)) for one in tree.refused],
        refusals=tree.refusals,
    )


def begin(history: History, event: EventEnvelope) -> None:
    """Begin a segment of the run: forget all before it that the event does not carry over."""
    payload = event.payload
    fresh = type(history)()
    for field in dataclasses.fields(history):
        if field.name not in _KEPT:
            setattr(history, field.name, getattr(fresh, field.name))
    history.migrated, history.pinned = event, payload["graph"]
    history.agent_version = payload["agent_version"]
    history.segment = payload["segment"]
    history.last_checkpoint = f"{payload['run_id']}/{payload['step'] - 1}"
    if not is_erased(event):  # else there is nothing to go on with, and the run fails when it is executed
        _take(history, payload["carried"])


def _take(history: History, carried_over: dict[str, Any]) -> None:
    for name, found in carried_over["signals"].items():
        history.taken[name] = history.dropped[name] = found["taken"]
        history.signals[name] = [EventEnvelope.from_dict(one) for one in found["left"]]
        history.carried_ids.update(one.event_id for one in history.signals[name])
    history.heard = dict.fromkeys(carried_over["heard"])
    spending, started = carried_over["spending"], history.started
    if started is not None:
        history.spending.apply(started)
    history.spending.added.update(spending["added"])
    history.spending.spent.update(spending["spent"])
    history.spending.unpriced = spending["unpriced"]
    # An earlier release has carried over none of these three.
    history.spending.own.update(spending.get("own") or {})
    for account, slices in (spending.get("slices") or {}).items():
        history.spending.slices.carry(account, slices["granted"], slices["asked"])
    if "goals" in carried_over:
        history.goals_before = carried_tree(carried_over["goals"])
    history.tools.allowed = set(carried_over["allowed"])
    history.calls_before = carried_over["calls"]
    history.notes = dict(carried_over["notes"])
    history.attributes = dict(carried_over["attributes"])
