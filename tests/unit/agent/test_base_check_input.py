"""An input with keys that the state does not have is refused, whatever kind of state it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from noesium_stream.agent import BaseGraphicAgent, agent_from_graph
from noesium_stream.errors import ConfigError


class Typed(TypedDict, total=False):
    text: str


@dataclass
class Data:
    text: str = ""


class Model(BaseModel):
    text: str = ""


class Asked(TypedDict):
    question: str


def builder(state: Any, **options: Any) -> Any:
    return StateGraph(state, **options).add_node("node", lambda _: None).add_edge(START, "node")


@pytest.mark.parametrize("state", [Typed, Data, Model])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_key_that_a_state_does_not_have_is_named(state: Any, compiled: bool) -> None:
    graph = builder(state)
    agent = agent_from_graph(graph.compile() if compiled else graph)
    agent.check_input({"text": "a"})
    with pytest.raises(ConfigError, match=f"'txt', which the state {state.__name__} does not have") as told:
        agent.check_input({"text": "a", "txt": "b"})
    assert told.value.hint == "Did you mean 'text'?"


def test_the_input_s_own_schema_counts() -> None:
    agent = agent_from_graph(builder(Typed, input_schema=Asked))
    agent.check_input({"question": "a"})
    with pytest.raises(ConfigError, match="'text', which the state Asked does not have"):
        agent.check_input({"text": "a"})


def test_a_state_without_declared_keys_takes_all() -> None:
    agent_from_graph(builder(dict)).check_input({"whatever": 1})


class Plain(BaseGraphicAgent):
    agent_type = "plain"

    def get_state_class(self) -> type[Any]:
        return Typed

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        built: StateGraph[Any, Any, Any, Any] = builder(Typed)
        return built


class Turned(Plain):
    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        return {"text": input["letter"]}


def test_an_agent_s_class_refuses_too_unless_it_makes_its_state_itself() -> None:
    with pytest.raises(ConfigError, match="'letter', which the state Typed does not have"):
        Plain.check_input({"letter": "a"})
    Turned.check_input({"letter": "a"})
