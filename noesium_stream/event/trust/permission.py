"""Permissions of tools: `domain:action`, or `domain:action:pattern` (RFC-2003 §10.1).

    fs:read                        every file of the workspace
    fs:write:reports/**            files below reports/
    net:outbound:*.example.com     hosts below example.com; `:443` at the end bounds the port
    env:read:HOME, mcp:connect:github, sql:read:orders, shell:execute, and any other of one's own

A grant without a pattern covers all patterns. A need is written the same way; one without a pattern needs
all. Patterns of `fs` are globs over paths relative to the workspace; `..`, an absolute path or a NUL leads
out of it, and no grant covers that. Elsewhere `*` is any text; in a pattern of `shell` it is any text that
cannot begin another command.

Everything here is pure, and takes texts from models: it raises nothing for these, and covers nothing that it
cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.trust.host_pattern import HostPattern, host_pattern
from noesium_stream.event.trust.wildcards import DEEP, covers_parts, covers_text

ModeName = Literal["ask", "plan", "act", "auto"]
MODES: Final[tuple[ModeName, ...]] = get_args(ModeName)
"""What an agent may do with its tools, from the least to the most; see `tool.Mode`."""

MAX_PERMISSION: Final = 1_024
"""Characters of a permission."""
MAX_GRANTS: Final = 1_000
"""Permissions of one agent or call."""
MAX_LIMITS: Final = 200
"""Permissions that one run, or one call of another agent, is limited to."""
READING: Final = frozenset(
    {"fs:read", "env:read", "sql:read", "net:outbound", "mcp:connect", "documents:read"}
)
"""The permissions that modes which only read leave to an agent."""

_HEAD: Final = re.compile(r"([a-z][a-z0-9_-]{0,62}):([a-z][a-z0-9_-]{0,62})(?::(.+))?", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SHELL_SYNTAX: Final = "\n\r;&|<>`$(){}\\"
_ANY_HOST: Final = HostPattern("*", None)
_CACHED: Final = 4_096


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission that was read.

    Attributes:
        kind: domain and action, such as `fs:write`.
        pattern: of what, in its canonical form; None: of everything.
        outside: whether it leads out of the workspace: nothing covers it then.
    """

    kind: str
    pattern: tuple[str, ...] | HostPattern | str | None = None
    outside: bool = False

    @property
    def domain(self) -> str:
        """The part before the first colon."""
        return self.kind.partition(":")[0]

    def covers(self, need: Permission) -> bool:
        """Whether a grant of this is enough for a need of that."""
        if self.kind != need.kind or self.outside or need.outside:
            return False
        own, other = self.pattern, need.pattern
        if own is None or other is None:
            return own is None
        if isinstance(own, HostPattern) and isinstance(other, HostPattern):
            return own.covers(other)
        if isinstance(own, str) and isinstance(other, str):
            return covers_text(own, other, forbidden=_SHELL_SYNTAX if self.domain == "shell" else "")
        return isinstance(own, tuple) and isinstance(other, tuple) and covers_parts(own, other)


@lru_cache(_CACHED)
def permission_in(text: str) -> Permission | None:
    """Read a permission; None: it is none."""
    if len(text) > MAX_PERMISSION or (match := _HEAD.fullmatch(text)) is None:
        return None
    domain, action, pattern = match.groups()
    kind = f"{domain}:{action}"
    if pattern is None:
        return Permission(kind)
    if domain == "fs":
        return _of_files(kind, pattern)
    if _CONTROL.search(pattern) is not None and domain != "shell":
        return None
    if domain == "net":
        host = host_pattern(pattern)
        return None if host is None else Permission(kind, None if host == _ANY_HOST else host)
    return Permission(kind, None if pattern == "*" else re.sub(r"\*+", "*", pattern))


def _of_files(kind: str, pattern: str) -> Permission:
    parts = tuple(part for part in pattern.split("/") if part not in ("", "."))
    outside = (
        pattern.startswith(("/", "~"))
        or ".." in parts
        or _CONTROL.search(pattern) is not None
        or any(DEEP in part and part != DEEP for part in parts)
    )
    parts = tuple(part for at, part in enumerate(parts) if part != DEEP or parts[at - 1 : at] != (DEEP,))
    return Permission(kind, None if parts == (DEEP,) else parts, outside)


def check_permission(text: str) -> None:
    """Check a permission that somebody grants, or says that a tool needs.

    Raises:
        ConfigError: it is none, or leads out of the workspace.
    """
    problem = permission_problem(text)
    if problem is not None:
        raise ConfigError(
            f"{short(text)} is no permission: {problem}.",
            hint="Write domain:action or domain:action:pattern, such as fs:write:reports/** "
            "(`noesium guide permission`).",
        )


def check_limits(permissions: Collection[str] | None, mode: str | None) -> None:
    """Check what limits a run, or a call of another agent.

    Raises:
        ConfigError: one of the permissions is none, there are too many, or there is no such mode.
    """
    if isinstance(permissions, str):
        raise ConfigError("permissions is one text.", hint="Give a list of permissions.")
    if permissions is not None and len(permissions) > MAX_LIMITS:
        raise ConfigError(f"There are {len(permissions):,} permissions.", hint=f"Give up to {MAX_LIMITS}.")
    for permission in permissions or ():
        check_permission(permission)
    if mode is not None and mode not in MODES:
        raise ConfigError(f"{short(mode)} is no mode.", hint=f"Give one of {', '.join(MODES)}.")


def permission_problem(text: str) -> str | None:
    """What is wrong with a permission; None: nothing."""
    found = permission_in(text)
    if found is None:
        if len(text) > MAX_PERMISSION:
            return f"it has over {MAX_PERMISSION} characters"
        host = text.startswith("net:") and _HEAD.fullmatch(text) is not None
        return "what follows the action is no host" if host else "it has not the form domain:action:pattern"
    if found.outside:
        return "its path is not one within the workspace, or `**` is not a whole part of it"
    return None


@lru_cache(_CACHED)
def covers(grant: str, need: str) -> bool:
    """Whether a grant is enough for a need; False where one of them is no permission."""
    granted, needed = permission_in(grant), permission_in(need)
    return granted is not None and needed is not None and granted.covers(needed)


def covering(grants: Iterable[str], need: str) -> str | None:
    """The first of the grants that covers a need; None: none does."""
    for grant in grants:
        if covers(grant, need):
            return grant
    return None


def uncovered(grants: Collection[str], needs: Iterable[str]) -> list[str]:
    """The needs that none of the grants covers, in order."""
    return [need for need in needs if covering(grants, need) is None]


def intersection(grants: Iterable[str], others: Collection[str]) -> tuple[str, ...]:
    """What both sets of grants cover, in the order of the first: of two that overlap, the narrower one.

    Two patterns of which neither covers the other have no common part here, even if some names match both.
    """
    found: dict[str, None] = {}
    for grant in grants:
        for other in others:
            if covers(grant, other):
                found[other] = None
            elif covers(other, grant):
                found[grant] = None
    return tuple(found)


def lesser_mode(*modes: str | None) -> ModeName:
    """The mode that allows least; None is no limit. An unknown mode is the least one; without any: `auto`."""
    lowest = len(MODES) - 1
    for mode in modes:
        if mode is not None:
            lowest = min(lowest, MODES.index(mode) if mode in MODES else 0)
    return MODES[lowest]
