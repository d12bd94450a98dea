"""`agent/base.py`: where the tools of an agent work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import AgentContext, BaseGraphicAgent
from noesium_stream.agent.base import NoOptions
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.tool import FilesToolkit


class Clerk(BaseGraphicAgent):
    agent_type = "clerk"
    tools = (FilesToolkit(),)

    def get_state_class(self) -> type:
        return dict

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        return StateGraph(dict).add_node("nothing", lambda state: {}).add_edge(START, "nothing")


def toolbox_folder(home: Path, workspace: str | None) -> Path:
    kind = type("Clerk", (Clerk,), {"workspace": workspace})
    ref = AgentRef("x", "clerk")
    agent = kind(NoOptions(), AgentContext(home, None, SystemClock(), ref, print))
    assert agent.toolbox is not None
    folder: Path = agent.toolbox.executor.working_directory
    return folder


def test_the_workspace_is_a_folder_of_its_own(tmp_path: Path) -> None:
    home = tmp_path / ".noesium"
    assert toolbox_folder(home, None) == home / "workspaces" / "clerk"
    assert toolbox_folder(home, str(tmp_path / "work")) == tmp_path / "work"
    assert toolbox_folder(home, str(home / "own")) == home / "own"


@pytest.mark.parametrize("workspace", [".", "link", ".noesium", "/"])
def test_a_workspace_with_the_log_in_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="has the home"):
        toolbox_folder(tmp_path / ".noesium", workspace)
