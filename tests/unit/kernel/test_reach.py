"""What a graph's code can name: a journal's names stand for nothing else."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from noesium_stream.agent import agent_from_graph
from noesium_stream.errors import KernelError, StateError
from noesium_stream.kernel.callable_reference import find
from noesium_stream.kernel.decorators import kernel_compensation
from noesium_stream.kernel.reach import Reach
from noesium_stream.kernel.state.typed_json import building, decode, encode, kernel_type


class Part(BaseModel):
    name: str


class Mark(Enum):
    GOOD = "good"


@dataclass
class Plan:
    parts: list[Part]
    mark: Mark | None = None


@dataclass
class Longer(Plan):
    pages: int = 0


@dataclass
class Elsewhere:
    """Loaded, and mentioned by no state."""

    made: int


class State(TypedDict, total=False):
    plan: Plan
    data: dict[str, Any]


def reach() -> Reach:
    graph = StateGraph(State)
    graph.add_node("a", lambda state: {})
    graph.add_edge(START, "a")
    return Reach(graph.compile())


@pytest.mark.parametrize("value", [Plan([Part(name="x")], Mark.GOOD), Longer([], pages=2), Part(name="y")])
def test_classes_of_the_state_and_those_derived_from_them_are_built(value: Any) -> None:
    with building(reach().builds):
        assert decode(encode(value, "plan")) == value


def test_a_class_that_no_state_mentions_is_neither_recorded_nor_built() -> None:
    forged = {"__type__": f"{__name__}:Elsewhere", "value": {"made": 1}}
    with building(reach().builds):
        with pytest.raises(StateError, match="state does not declare"):
            encode({"x": Elsewhere(1)}, "data")
        with pytest.raises(StateError, match="it is not built"):
            decode(forged)
    with pytest.raises(StateError, match="it is not built"):
        decode(forged)


def test_a_declared_class_is_built() -> None:
    @dataclass
    class Declared:
        made: int

    Declared.__qualname__ = "Declared"
    globals()["Declared"] = kernel_type(Declared)
    with building(reach().builds):
        assert decode(encode(Declared(1), "data")) == Declared(1)


def test_what_another_agent_declares_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("an_other_agent")

    @kernel_compensation()
    def pay_back(result: Any) -> None: ...

    other.__dict__["pay_back"] = pay_back
    monkeypatch.setitem(sys.modules, "an_other_agent", other)
    with pytest.raises(KernelError, match="Nothing of this agent declares"):
        find("an_other_agent:pay_back", object(), (reach(),))
    monkeypatch.setitem(globals(), "imported", other)  # as `import an_other_agent as imported` does
    assert find("an_other_agent:pay_back", object(), (reach(),)) is pay_back


def test_an_agent_names_what_the_module_declares_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes may lie in a module that does not import that one."""
    where = ModuleType("where_agents_are_made")
    where.__dict__.update(agent_from_graph=agent_from_graph, StateGraph=StateGraph, State=dict)
    where.__dict__["pay_back"] = kernel_compensation()(lambda result: None)
    monkeypatch.setitem(sys.modules, "where_agents_are_made", where)
    exec("made = agent_from_graph(StateGraph(State).add_node('a', len).set_entry_point('a'))", vars(where))
    made = Reach(StateGraph(State).add_node("a", len).set_entry_point("a").compile(), where.__dict__["made"])
    assert find("where_agents_are_made:pay_back", None, (made,)) is where.__dict__["pay_back"]
