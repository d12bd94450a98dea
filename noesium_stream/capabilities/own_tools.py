"""Capabilities that are an agent's own tools (RFC-2003 §8): all find them, only their agent calls them.

Their ids are those of the tools, `SOURCE:TOOLKIT.NAME`. No call of another agent is ever resolved to one,
whoever registers it. `agent_from_tools` offers tools to other agents, under the ids `tool.TOOLKIT.NAME`.
"""

from __future__ import annotations

from typing import Final

from noesium_stream.capabilities.version import check_version

SOURCES: Final = ("builtin", "langchain", "mcp", "user")
"""Where tools come from (RFC-2003 §5)."""
OWN_TOOL: Final = "it is a tool of its agent alone"
"""Why such a capability is passed over."""

_PREFIXES: Final = tuple(f"{source}:" for source in SOURCES)
_DIGITS: Final = 12


def is_own_tool(capability_id: str) -> bool:
    """Whether a capability is a tool that only its agent calls."""
    return capability_id.startswith(_PREFIXES)


def definition_version(version: str, definition_hash: str) -> str:
    """The version of the capability: the tool's, with its definition's hash as build metadata.

    Raises:
        ConfigError: it is no semantic version.
    """
    check_version(version)
    return f"{version}{'.' if '+' in version else '+'}{definition_hash[:_DIGITS]}"
