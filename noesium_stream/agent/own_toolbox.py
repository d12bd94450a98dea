"""The toolbox of an agent, from what its class says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.policy import Policy
from noesium_stream.tool.content.set_aside import set_aside
from noesium_stream.tool.content.store import ContentStore
from noesium_stream.tool.content.toolkit import ContentToolkit
from noesium_stream.tool.executor import ToolExecutor
from noesium_stream.tool.skill.toolkit import skill_tools
from noesium_stream.tool.toolbox import AgentToolbox


def own_toolbox(
    kind: type[Any],
    tools: Sequence[Any],
    *,
    workspace: Path,
    contents: str | Path,
    policy: Policy | None,
) -> AgentToolbox:
    """The tools that an agent names, and its skills', with the executor that calls them.

    Args:
        kind: the agent's class; its type, mode, permissions and skills count.
        tools: what it names.
        workspace: the folder that its tools see.
        contents: where large results are set aside.
        policy: of this process.

    Raises:
        ConfigError: two tools have the same name, or one is no valid tool.
    """
    store = ContentStore(contents)
    executor = ToolExecutor(
        agent_type=kind.agent_type,
        working_directory=workspace,
        mode=kind.mode,
        permissions=None if kind.permissions is None else tuple(kind.permissions),
        policy=policy,
        set_aside=partial(set_aside, store=store),
        ask_before=tuple(kind.ask_before),
    )
    skills = skill_tools(kind.skills, _folder_of(kind)) if kind.skills else []
    return AgentToolbox((*tools, *skills, ContentToolkit(store)), executor)


def outside_home(workspace: str, home: Path, agent_type: str) -> Path:
    """The absolute path of a workspace.

    Raises:
        ConfigError: the home is in it.
    """
    folder, home = Path(workspace).absolute(), home.resolve()
    if home.is_relative_to(folder.resolve()):
        raise ConfigError(
            f"The workspace {folder} of {agent_type} has the home {home} in it, with the log and the results "
            "of all agents.",
            hint="Give it a folder of its own, or set NOESIUM_HOME to a folder outside it.",
        )
    return folder


def _folder_of(kind: type) -> Path:
    """The folder of the module that a class was written in; the working directory if it was made."""
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    own = kind.__module__.startswith(f"{__name__.partition('.')[0]}.")
    return Path.cwd() if path is None or own else Path(path).resolve().parent
