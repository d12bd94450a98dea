"""The beginning of a segment of a long run: its whole state, so that nothing before it is read."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from noesium_stream.event.domain_event import Form
from noesium_stream.event.limits import MAX_LISTED
from noesium_stream.event.standard.agent import GraphRef
from noesium_stream.event.standard.attributes import Attributes
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Names, Object, Text, Version, Whole
from noesium_stream.event.standard.goal import Reason, Title

MAX_HEARD: Final = 2_000
"""Marks of signals that a segment begins with; see `RunHistory.heard`."""
MAX_GOALS: Final = 1_000
"""Goals of one run, closed ones included."""
MAX_REFUSED: Final = 20
"""Events of goals that could not be, and that a tree names."""
MAX_KINDS: Final = 16
"""Kinds of amounts that accounts count."""


class CarriedSignals(BaseModel, defer_build=True):
    """Signals of one name: how many steps have taken, and those that came and no step has taken, in order."""

    taken: Whole = Field(ge=0)
    left: Annotated[list[Object], Form(maxItems=100_000)] = Field(default_factory=list)


class CarriedSlices(BaseModel, defer_build=True):
    """What the run has been granted of an account, by kind, and how often it has asked."""

    granted: Annotated[dict[Name, Whole | None], Form(maxProperties=MAX_KINDS)] | None = None
    asked: Whole = Field(default=0, ge=0)


class CarriedSpending(BaseModel, defer_build=True):
    """What the run has spent of its budget: see `event/rules/budget.py`."""

    added: dict[Name, Whole] = Field(default_factory=dict)
    spent: dict[Name, Whole] = Field(default_factory=dict)
    unpriced: Whole = Field(default=0, ge=0)
    own: Annotated[dict[Name, Whole], Form(maxProperties=MAX_KINDS)] = Field(default_factory=dict)
    slices: Annotated[dict[Name, CarriedSlices], Form(maxProperties=MAX_LISTED)] = Field(default_factory=dict)


class CarriedGoal(BaseModel, defer_build=True):
    """A goal: see `Goal` in `event/rules/goal_tree.py`."""

    id: Identifier
    title: Title
    detail: Text | None = None
    parent_id: Identifier | None = None
    depends_on: Annotated[list[Identifier], Form(maxItems=MAX_GOALS)] = Field(default_factory=list)
    status: Literal["pending", "active", "blocked", "completed", "failed", "abandoned"] = "pending"
    started: bool = False
    reason: Reason | None = None
    result: Any = None
    revision: Whole = Field(default=0, ge=0)


class CarriedRefused(BaseModel, defer_build=True):
    """An event of goals that has changed nothing, and why."""

    event_type: Name
    goal_id: Identifier
    why: Text


class CarriedGoals(BaseModel, defer_build=True):
    """The run's tree of goals: see `GoalTree` in `event/rules/goal_tree.py`."""

    goals: Annotated[list[CarriedGoal], Form(maxItems=MAX_GOALS)] = Field(default_factory=list)
    refused: Annotated[list[CarriedRefused], Form(maxItems=MAX_REFUSED)] = Field(default_factory=list)
    refusals: Whole = Field(default=0, ge=0)


class Carried(BaseModel, defer_build=True):
    """What a run knows beside its graph's state.

    Attributes:
        signals: by name.
        heard: marks of the last signals, which tell a repeated one.
        spending: what is spent.
        labels: the provenance of its data (`event/rules/provenance.py`).
        said: the end of what people have said.
        allowed: hashes of tool calls that a person has allowed for good.
        calls: how many other runs it has called.
        notes: its working memory by key, in the order of writing.
        attributes: its search attributes.
        goals: its goals; an earlier release has not carried them over.
    """

    signals: dict[Name, CarriedSignals] = Field(default_factory=dict)
    heard: Annotated[list[Name], Form(maxItems=MAX_HEARD)] = Field(default_factory=list)
    spending: CarriedSpending = Field(default_factory=CarriedSpending)
    labels: Names = Field(default_factory=list)
    said: Text = ""
    allowed: Names = Field(default_factory=list)
    calls: Whole = Field(default=0, ge=0)
    notes: Object = Field(default_factory=dict)
    attributes: Attributes = Field(default_factory=dict)
    goals: CarriedGoals = Field(default_factory=CarriedGoals)


class RunSegmentStarted(StandardEvent, event_type="run.segment.started"):
    """An open run goes on in a new segment, from superstep `step` on: what came before is not read again.

    Attributes:
        segment: its number; the run begins with 1, which has no event.
        graph: the graph that the run is pinned to.
        step, state, next, joins, deferred: as in `run.migrated`.
        carried: what the run knows beside the state.
    """

    run_id: Identifier
    segment: Whole = Field(ge=2)
    agent_version: Version
    graph: GraphRef
    step: Whole = Field(ge=1)
    state: Object
    next: Names
    joins: dict[Name, Names] = Field(default_factory=dict)
    deferred: Names = Field(default_factory=list)
    carried: Carried = Field(default_factory=Carried)
