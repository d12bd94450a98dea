"""Loads the code that `verify`, `replay` and `fork` use, from the options of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from noesium_stream.cli.agents import agents_here, find_agent, shipped_agents, with_runs
from noesium_stream.client import operate
from noesium_stream.config import load_all
from noesium_stream.errors import AgentLoadError, ConfigError
from noesium_stream.log import EventLog

if TYPE_CHECKING:
    from noesium_stream.kernel.verify.verifier import ReplayTarget

graph_option: Final = click.option(
    "-g",
    "--graph",
    metavar="MODULE[:NAME]",
    help="The code: an agent (agents.researcher), a graph or a function that returns one. By default the "
    "agent of this type in the folder agents.",
)
options_option: Final = click.option(
    "-o", "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the agent."
)


def target_for(log: EventLog, graph: str | None, options: Sequence[str], agent_type: str) -> ReplayTarget:
    """Load the code of `--graph`, or of the agent of this type in the current folder.

    Raises:
        AgentLoadError: the code cannot be imported or cannot be replayed.
        ConfigError: there is no agent of this type here, or an option is not valid.
    """
    given: dict[str, Any] = dict(operate.fork.parse_setting(text) for text in options)
    loaded = load_all({})
    home, llm_config = loaded.noesium.home, loaded.agent.llm_config
    if graph is not None:
        return operate.replay_target.load_target(graph, log, given, home, llm_config)
    for reference in dict.fromkeys([*agents_here(Path.cwd()), *shipped_agents()]):
        try:
            kind = with_runs(reference, find_agent(reference))
        except AgentLoadError:
            continue  # an error of another agent's module
        if kind.agent_type == agent_type:
            return operate.replay_target.agent_target(kind, log, given, home, reference, llm_config)
    raise ConfigError(
        f"There is no agent of type {agent_type} in the folder agents here.",
        hint="Say where its code is: --graph MODULE[:NAME]",
    )
