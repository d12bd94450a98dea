"""A graph that is an agent, asked from the command line."""

from __future__ import annotations

from typing import TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import NoOptions, agent_from_graph
from noesium_stream.errors import ConfigError


class Letter(TypedDict):
    question: str


class Ticket(TypedDict):
    text: str
    amount: int


def graph_of(state: type) -> StateGraph[Letter]:
    builder: StateGraph[Letter] = StateGraph(state)
    builder.add_node("read", lambda state: {})
    builder.add_edge(START, "read")
    return builder


@pytest.mark.parametrize("compiled", [False, True])
def test_a_graph_whose_state_has_a_question_takes_one(compiled: bool) -> None:
    graph = graph_of(Letter)
    agent = agent_from_graph(graph.compile() if compiled else graph, "letters")
    assert agent.input_from_question("Why?", NoOptions()) == {"question": "Why?"}


@pytest.mark.parametrize("compiled", [False, True])
def test_another_one_refuses_it_and_says_what_it_takes(compiled: bool) -> None:
    graph = graph_of(Ticket)
    agent = agent_from_graph(graph.compile() if compiled else graph, "tickets")
    with pytest.raises(ConfigError, match="tickets takes no question: its state has amount, text") as caught:
        agent.input_from_question("Why?", NoOptions())
    assert caught.value.hint == "Give its first state: --input JSON"
