"""The beginning of a segment of a long run: its whole state, so that nothing before it is read."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field

from noesium_stream.event.domain_event import Form
from noesium_stream.event.standard.agent import GraphRef
from noesium_stream.event.standard.attributes import Attributes
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Names, Object, Text, Version, Whole

MAX_HEARD: Final = 2_000
"""Marks of signals that a segment begins with; see `RunHistory.heard`."""


class CarriedSignals(BaseModel, defer_build=True):
    """Signals of one name: how many steps have taken, and those that came and no step has taken, in order."""

    taken: Whole = Field(ge=0)
    left: Annotated[list[Object], Form(maxItems=100_000)] = Field(default_factory=list)


class CarriedSpending(BaseModel, defer_build=True):
    """What the run has spent of its budget: see `event/rules/budget.py`."""

    added: dict[Name, Whole] = Field(default_factory=dict)
    spent: dict[Name, Whole] = Field(default_factory=dict)
    unpriced: Whole = Field(default=0, ge=0)


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
