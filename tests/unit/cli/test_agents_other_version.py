"""`--also`: which agent of a worker another version belongs to."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from noesium_stream.cli.agents import AgentCommand, find_agent, other_version
from noesium_stream.errors import AgentLoadError

GRAPH = """
from typing import TypedDict
from langgraph.graph import START, StateGraph
State = TypedDict("State", {"said": str})
VERSION = "%s"
graph = StateGraph(State).add_node("say", lambda state: {}).add_edge(START, "say")
"""
CLASS = """
from noesium_stream import agent_from_graph
from also_orders import graph
AGENT = agent_from_graph(graph, "parcels", version="%s")
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "also_orders": GRAPH % "2.0.0",
        "also_orders_v1": GRAPH % "1.0.0",
        "also_parcels": CLASS % "2.0.0",
        "also_parcels_v1": CLASS % "1.0.0",
    }.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return


def test_a_graph_of_another_module_is_a_version_of_the_only_agent_with_a_graph() -> None:
    found = other_version("also_orders_v1:graph", [find_agent("also_orders:graph")])
    assert (found.agent_type, found.version) == ("also_orders", "1.0.0")


def test_among_several_agents_a_graph_says_whose_version_it_is() -> None:
    agents = [find_agent("also_orders:graph"), find_agent("also_parcels")]
    found = other_version("also_orders=also_orders_v1:graph", agents)
    assert (found.agent_type, found.version) == ("also_orders", "1.0.0")
    with pytest.raises(AgentLoadError, match="a version of also_orders_v1, which this worker") as refused:
        other_version("also_orders_v1:graph", agents)
    assert "--also TYPE=also_orders_v1:graph" in str(refused.value.hint)


def test_a_class_says_its_own_type() -> None:
    agents = [find_agent("also_orders:graph"), find_agent("also_parcels")]
    assert other_version("also_parcels_v1", agents).version == "1.0.0"
    with pytest.raises(AgentLoadError, match="no version of also_orders"):
        other_version("also_orders=also_parcels_v1", agents)


def test_without_an_agent_that_has_a_graph_there_is_no_other_version() -> None:
    with pytest.raises(AgentLoadError, match="which this worker does not run"):
        other_version("also_orders_v1:graph", [])


@pytest.mark.parametrize("args", [["--also", "also_orders_v1:graph"], ["--also=also_orders_v1:graph"]])
def test_the_command_line_takes_it_before_and_behind_the_agents(args: list[str]) -> None:
    command = AgentCommand(
        "x", params=[click.Argument(["agent"], nargs=-1), click.Option(["--also"], multiple=True)]
    )
    for line in ([*args, "also_orders:graph"], ["also_orders:graph", *args]):
        choice = command.make_context("x", list(line)).obj
        assert [kind.version for kind in choice.also] == ["1.0.0"]
        assert list(choice.agents) == ["also_orders:graph"]


def test_a_command_that_takes_one_agent_knows_no_other_version() -> None:
    command = AgentCommand("x", params=[click.Argument(["agent"])])
    with pytest.raises(click.NoSuchOption):
        command.make_context("x", ["also_orders:graph", "--also", "also_orders_v1:graph"])
