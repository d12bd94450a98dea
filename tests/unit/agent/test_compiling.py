"""A graph that cannot be compiled is an error of its author's, and says which graph."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent.compiling import compiled
from noesium_stream.errors import AgentLoadError, ConfigError


def graph() -> StateGraph[Any, Any, Any, Any]:
    return StateGraph(dict).add_node("a", lambda state: state)


def test_a_graph_is_built_and_compiled() -> None:
    assert "a" in compiled("triage", lambda: graph().add_edge(START, "a")).nodes


def test_a_graph_without_a_beginning_does_not_compile() -> None:
    with pytest.raises(AgentLoadError, match=r"^The graph triage does not compile: .*entrypoint"):
        compiled("triage", graph)


def test_what_fails_while_a_graph_is_built_says_where() -> None:
    def build() -> StateGraph[Any, Any, Any, Any]:
        return graph().add_nodes("b")  # type: ignore[attr-defined]

    with pytest.raises(
        AgentLoadError, match=r"^The graph of triage cannot be built: AttributeError"
    ) as failed:
        compiled("triage", build)
    assert "test_compiling.py" in str(failed.value.hint)
    assert "in build" in str(failed.value.hint)


def test_the_package_s_own_errors_stay_what_they_are() -> None:
    def build() -> StateGraph[Any, Any, Any, Any]:
        raise ConfigError("Give a folder.")

    with pytest.raises(ConfigError, match="Give a folder"):
        compiled("triage", build)
