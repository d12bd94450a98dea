"""From a reference to an agent, or to one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.agent import catalogue_of, load_agent
from noesium_stream.errors import AgentLoadError
from tests.support.sample_agents import Asker


def test_a_class_and_a_module_s_agent_are_found() -> None:
    assert load_agent("tests.support.sample_agents:Asker") is Asker


def test_a_module_that_does_not_exist_is_named() -> None:
    with pytest.raises(AgentLoadError, match=r"no agent module 'agents\.nobody'"):
        load_agent("agents.nobody")


def test_a_module_without_an_agent_says_how_to_name_one() -> None:
    with pytest.raises(AgentLoadError, match="AGENT = MyAgent"):
        load_agent("json")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
    ],
)
def test_a_module_that_fails_to_import_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    name = f"broken_{reason.lower()}"
    (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AgentLoadError, match=f"cannot be imported: {reason}"):
        load_agent(name)


def test_a_catalogue_has_the_agents_own_events() -> None:
    assert "note.taken" in catalogue_of([Asker]).types()


GRAPHS = """
from langgraph.graph import START, StateGraph



def node(state: dict) -> dict:
    return state


def made():
    return StateGraph(dict).add_node(node).add_edge(START, "node").compile()


"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module with these lines, in the current folder."""
    name = f"graphs_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(GRAPHS + request.param)
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize(
    "module", ["graph = made()", "graph = made()\ninner = made()\napp = graph"], indirect=True
)
def test_a_module_with_a_graph_called_graph_is_that_agent(module: str) -> None:
    assert load_agent(module).agent_type == module


@pytest.mark.parametrize("module", ["triage = made()", "triage = made()\nsame = triage"], indirect=True)
def test_the_only_graph_of_a_module_is_its_agent(module: str) -> None:
    assert load_agent(module).agent_type in ("triage", "same")


@pytest.mark.parametrize("module", ["one = made()\ntwo = made()"], indirect=True)
def test_a_module_with_several_graphs_asks_which(module: str) -> None:
    with pytest.raises(AgentLoadError, match=f"{module} has several agents") as refused:
        load_agent(module)
    assert refused.value.hint == f"Say which: {module}:one, {module}:two."


@pytest.mark.parametrize("module", ["graph = made()"], indirect=True)
@pytest.mark.parametrize("name", ["grahp", "node"])
def test_a_name_that_is_no_agent_says_what_there_is(module: str, name: str) -> None:
    with pytest.raises(AgentLoadError, match=rf"{module} has no (agent )?{name}\.") as refused:
        load_agent(f"{module}:{name}")
    assert refused.value.hint == f"Say which: {module}:graph."


@pytest.mark.parametrize("module", ["graph = StateGraph(dict).add_node(node)"], indirect=True)
def test_a_graph_that_does_not_compile_is_refused_before_anything_runs(module: str) -> None:
    with pytest.raises(AgentLoadError, match=f"The graph {module}:graph does not compile"):
        load_agent(module)
