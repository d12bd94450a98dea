"""`allowed-tools` of a SKILL.md, as permissions of this package.

The open format calls them pre-approved tools, and leaves their names to each product. Here they approve
nothing: an agent's grant comes from its policy alone. They narrow what the skill's own scripts may do.

    Read, Glob, Grep, LS             fs:read         Read(data/**)                  fs:read:data/**
    Write, Edit                      fs:write        Write(reports/**)              fs:write:reports/**
    Bash, Shell, Python              shell:execute   Bash(git:*)                    shell:execute
    WebFetch, WebSearch              net:outbound    WebFetch(domain:example.com)   net:outbound:example.com
    mcp__crm__find, mcp:connect:crm  mcp:connect:crm

A permission of this package stands for itself. The pattern of `Bash(git:*)` is no wall: a shell that runs can
start whatever its sandbox has. What is not known gives nothing. In a sandbox a file that can be written has
to be readable, too: name both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_PARTS: Final = 100
_PART: Final = re.compile(r"([^\s()]+)(?:\(([^()]*)\))?(?:\s+|$)")
_PERMISSION: Final = re.compile(r"[a-z][a-z0-9_-]*:[a-z][a-z0-9_-]*(?::\S+)?")
_MCP: Final = re.compile(r"mcp__([A-Za-z0-9_.-]+?)(?:__.+)?")
_HOST: Final = "domain:"
_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class AllowedTools:
    """What `allowed-tools` says.

    Attributes:
        names: its parts as they are written.
        permissions: those that they stand for, without repetition.
        unknown: the parts that stand for nothing here.
    """

    names: tuple[str, ...]
    permissions: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def parse_allowed_tools(text: str) -> AllowedTools:
    """Read the value of `allowed-tools`: names between spaces, some with a pattern in brackets."""
    names: list[str] = []
    given: dict[str, None] = {}
    unknown: list[str] = []
    at = len(text) - len(text.lstrip())
    while at < len(text) and len(names) < MAX_PARTS:
        match = _PART.match(text, at)
        if match is None:
            unknown.append(text[at:])
            break
        at = match.end()
        name = match.group().strip()
        names.append(name)
        permission = _permission(match[1], match[2])
        if permission is None:
            unknown.append(name)
        else:
            given[permission] = None
    return AllowedTools(tuple(names), tuple(given), tuple(unknown))


def _permission(name: str, pattern: str | None) -> str | None:
    if name in _TOOLS:
        action, narrower_of = _TOOLS[name]
        if pattern is None:
            return action
        narrower = narrower_of(pattern.strip())
        return action if narrower == _ALL else f"{action}:{narrower}" if narrower else None
    if pattern is None and _PERMISSION.fullmatch(name) is not None:
        return name
    server = _MCP.fullmatch(name)
    return f"mcp:connect:{server[1]}" if server is not None and pattern is None else None


def _path(pattern: str) -> str:
    return pattern.removeprefix("./")


def _host(pattern: str) -> str:
    return pattern.removeprefix(_HOST) if pattern.startswith(_HOST) else ""


def _all(pattern: str) -> str:
    return _ALL


_TOOLS: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    **dict.fromkeys(("Read", "Glob", "Grep", "LS"), ("fs:read", _path)),
    **dict.fromkeys(("Write", "Edit", "MultiEdit", "NotebookEdit"), ("fs:write", _path)),
    **dict.fromkeys(("Bash", "Shell", "Python"), ("shell:execute", _all)),
    "WebFetch": ("net:outbound", _host),
    "WebSearch": ("net:outbound", _all),
}
"""What a name of a tool stands for, and how its pattern narrows that; empty: it is not understood."""
