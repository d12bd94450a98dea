"""Shared parts of the commands that open agents to others: `noesium a2a serve`, `noesium mcp serve`."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Collection, Iterable
from pathlib import Path

from noesium_stream.cli.session import must_exist, settings
from noesium_stream.client import Client
from noesium_stream.config import Loaded
from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.policy import Policy, read_policy
from noesium_stream.log.port import EventLog


def require_modules(command: str, modules: Iterable[str], extra: str) -> None:
    """Check that the extra of a command is installed.

    Raises:
        ConfigError: it is not.
    """
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"`{command}` needs {name}, which is not installed.",
                hint=f"Install the extra: pip install 'noesium-stream[{extra}]'",
            )


def server_settings(log_url: str | None) -> Loaded:
    """The settings of a server: of a log that is there, and that workers in other processes see.

    Raises:
        ConfigError: the log is not such a one.
    """
    loaded = settings(log_url)
    if loaded.noesium.log.startswith("memory:"):
        raise ConfigError(
            "A log in memory is seen by its own process alone: no worker could answer.",
            hint="Give a log that several processes see with --log: sqlite:///PATH or kafka://HOST:PORT.",
        )
    must_exist(loaded)
    return loaded


async def policy_of(loaded: Loaded) -> Policy | None:
    """The policy that the settings name.

    Raises:
        ConfigError: it is not valid.
    """
    path: Path | None = loaded.noesium.policy
    return None if path is None else await asyncio.to_thread(read_policy, path)


async def check_agents(log: EventLog, agent_types: Iterable[str]) -> None:
    """Check that the log knows these agents.

    Raises:
        ConfigError: names the first that it does not.
    """
    async with Client(log) as client:
        known = await client.agent_types()
    for name in agent_types:
        if name not in known:
            raise ConfigError(
                f"There is no agent {name} on {log.url}.",
                hint=f"There are: {', '.join(known) or 'none yet'}. Start a worker of it first.",
            )


def who_may_ask(bearers: Collection[str] | None) -> str:
    """Who may ask a server, for people; `bearers` are the names of tokens, None: there are none."""
    return "everybody who reaches it" if bearers is None else f"{len(set(bearers))} bearers"
