"""`Walls`: what a program in a sandbox may reach, made from what a call was granted (RFC-2003 §10).

A sandbox opens what a mount can express, and nothing else: the whole workspace (`fs:read`), a subtree
(`fs:read:reports/**`) or one existing file (`fs:read:notes.txt`). A grant of another form, such as
`fs:read:*.md`, opens nothing here; tools that open files themselves can use it. Write permission goes only as
far as read permission: what is mounted can be read. Hosts cannot be told apart by a mount either: only
`net:outbound` without a pattern opens the network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.permission import Permission, permission_in
from noesium_stream.tool.context import Mode, ToolContext

MIB: Final = 2**20
ALL: Final = "**"
_TREE: Final = "/**"
_READ_ONLY: Final = (Mode.ASK, Mode.PLAN)
_UNUSABLE: Final = re.compile(r"[*?\[\]\x00-\x1f\x7f\ud800-\udfff]")
_LOADER: Final = re.compile(r"LD_|GLIBC_TUNABLES$|PATH$|HOME$|TMPDIR$|[^A-Za-z_]|.*[^A-Za-z0-9_]")
"""Names of variables that no grant passes on: they change the programs of the sandbox itself."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one program and all that it starts, together if nothing else is said.

    Attributes:
        wall_s: seconds until it is killed.
        cpu_s: seconds of processor time.
        memory_bytes: memory in use.
        processes: processes and threads at the same time.
        output_bytes: bytes that are kept of each output stream; 16 times as many end the program.
        file_bytes: bytes of each file that it writes.
        disk_bytes: bytes written to disk.
        scratch_bytes: bytes in a `/tmp` that is gone afterwards.
        open_files: open files of each process.
    """

    wall_s: float = 30.0
    cpu_s: float = 30.0
    memory_bytes: int = 512 * MIB
    processes: int = 64
    output_bytes: int = 256 * 1024
    file_bytes: int = 64 * MIB
    disk_bytes: int = 256 * MIB
    scratch_bytes: int = 64 * MIB
    open_files: int = 256

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ConfigError(
                    f"The sandbox limit {name} is {getattr(self, name)!r}; it has to be over 0."
                )


@dataclass(frozen=True, slots=True)
class Walls:
    """What a program in a sandbox may reach.

    Attributes:
        workspace: the agent's folder, the program's working directory.
        readable: patterns of what it sees of the workspace, relative to it: `**`, `TREE/**` or a file.
        writable: the same of what it may change; always covered by `readable`.
        network: whether it has the network of this machine; else it has none at all.
        environment: variables beside PATH, HOME, TMPDIR and LANG.
        programs: folders and files outside the workspace that it can read, in the same place.
        scratch: the folder that is its `/tmp`, writable; None: an empty one that is gone afterwards.
        limits: see `Limits`.
    """

    workspace: Path
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: bool = False
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    programs: tuple[Path, ...] = ()
    scratch: Path | None = None
    limits: Limits = field(default_factory=Limits)


def walls_of(
    context: ToolContext,
    *,
    limits: Limits | None = None,
    programs: tuple[Path, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Walls:
    """The walls of a call, from `context.granted_permissions` alone.

    Args:
        context: of the call; the time limit is the shorter one of `timeout_ms` and `limits.wall_s`.
        limits: None: the default ones.
        programs: see `Walls`.
        environment: the worker's environment, of which `env:read` passes variables on; None: `os.environ`.
    """
    granted = [found for found in map(permission_in, context.granted_permissions) if found is not None]
    variables = os.environ if environment is None else environment
    passed = {
        name: value
        for name, value in variables.items()
        if is_passed_on(name) and _is_granted(granted, Permission("env:read", name))
    }
    return walls_from(
        context.granted_permissions,
        context.working_directory,
        read_only=context.mode in _READ_ONLY,
        environment=passed,
        programs=programs,
        limits=_within(limits or Limits(), context.timeout_ms / 1000),
    )


def walls_from(
    permissions: Iterable[str],
    workspace: Path,
    *,
    limits: Limits,
    read_only: bool = False,
    programs: tuple[Path, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Walls:
    """The walls that permissions make around a program that serves no single call.

    Args:
        permissions: what is granted; those that no wall can express open nothing.
        workspace: see `Walls`.
        limits: see `Limits`.
        read_only: nothing is writable.
        programs: see `Walls`.
        environment: the program's variables.
    """
    granted = [found for found in map(permission_in, permissions) if found is not None]
    readable = _paths(granted, "fs:read")
    writable = () if read_only else _paths(granted, "fs:write")
    return Walls(
        workspace=workspace,
        readable=readable,
        writable=_common(readable, writable),
        network=_is_granted(granted, Permission("net:outbound")),
        environment=environment or {},
        programs=programs,
        limits=limits,
    )


def is_passed_on(variable: str) -> bool:
    """Whether a variable may go to a program: others change the programs of the sandbox itself."""
    return _LOADER.match(variable) is None


def is_tree(pattern: str) -> bool:
    """Whether a pattern of `Walls` is a subtree, and not one file."""
    return pattern == ALL or pattern.endswith(_TREE)


def path_in(pattern: str) -> tuple[str, ...]:
    """The parts of a pattern's path, relative to the workspace; () is the workspace."""
    if pattern == ALL:
        return ()
    return tuple(pattern.removesuffix(_TREE).split("/"))


def _within(limits: Limits, seconds: float) -> Limits:
    if seconds >= limits.wall_s:
        return limits
    values = {name: getattr(limits, name) for name in limits.__slots__}
    return Limits(**{**values, "wall_s": seconds})


def _is_granted(granted: Iterable[Permission], need: Permission) -> bool:
    return any(grant.covers(need) for grant in granted)


def _paths(granted: Iterable[Permission], kind: str) -> tuple[str, ...]:
    """The patterns of a kind that a mount can express; those in others of them are left out."""
    found: dict[str, None] = {}
    for grant in granted:
        if grant.kind != kind or grant.outside:
            continue
        parts = (ALL,) if grant.pattern is None else grant.pattern
        if not isinstance(parts, tuple) or not parts:
            continue
        folders = parts[:-1] if parts[-1] == ALL else parts
        if not any(_UNUSABLE.search(part) for part in folders):
            found["/".join(parts)] = None
    kept = [one for one in found if not any(_covers(other, one) and other != one for other in found)]
    return tuple(sorted(kept))


def _covers(pattern: str, other: str) -> bool:
    if pattern in (ALL, other):
        return True
    return pattern.endswith(_TREE) and other.startswith(pattern.removesuffix(ALL))


def _common(readable: Iterable[str], writable: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for write in writable:
        for read in readable:
            if _covers(read, write):
                found[write] = None
            elif _covers(write, read):
                found[read] = None
    return tuple(sorted(found))
