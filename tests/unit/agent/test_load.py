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
