"""Walls around MCP servers that are programs: their process is in a sandbox, and ends with the worker."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from noesium_stream.errors import ConfigError, SandboxError
from noesium_stream.event.trust.permission import permission_in
from noesium_stream.programs.program import Program
from noesium_stream.tool.sandbox.find import find_sandbox
from noesium_stream.tool.sandbox.port import Sandbox
from noesium_stream.tool.sandbox.walls import Limits, Walls, is_passed_on, walls_from

LOOK_S: Final = 0.2
"""Seconds between two looks at what a server uses."""
_SYSTEM: Final = ("/usr", "/bin", "/sbin")
_NO_FOLDER: Final = Path("/")
"""The workspace of a server without a folder: of which nothing is granted, and nothing mounted."""
_UNLIMITED: Final = 2**62
_KINDS: Final = ("fs:read", "fs:write", "net:outbound")


def _server_limits() -> Limits:
    return Limits(wall_s=math.inf, cpu_s=math.inf, disk_bytes=_UNLIMITED)


@dataclass(frozen=True, slots=True)
class ServerSandbox:
    """What a sandboxed server may reach; by default nothing but the system's programs.

    Attributes:
        permissions: `fs:read…` and `fs:write…` open the server's `folder`, which it sees as `/workspace`;
            `net:outbound` opens the network of this machine. A call's grants do not narrow them: one process
            serves all calls.
        programs: folders and files outside `/usr` that it can read, such as that of the server itself.
        limits: of the server and all that it starts; by default those of other programs, but for time and
            bytes written, which have none, because a server lives as long as the worker.
        provider: of the sandbox; None: the first that works here.
    """

    permissions: tuple[str, ...] = ()
    programs: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=_server_limits)
    provider: str | None = None

    def check(self, program: Program, who: str) -> None:
        """Refuse what no wall can express.

        Raises:
            ConfigError: names what.
        """
        if isinstance(self.permissions, str) or isinstance(self.programs, str | Path):
            raise ConfigError(f"The sandbox of {who}: `permissions` and `programs` are lists.")
        for said in self.permissions:
            _check_permission(said, program.folder, who)
        for said in program.environment:
            name = said.partition("=")[0]
            if said != "PATH" and not is_passed_on(name):
                raise ConfigError(f"The variable {name!r} of {who} cannot be passed into a sandbox.")

    def walls(self, program: Program, variables: Mapping[str, str]) -> Walls:
        """The walls of a server whose variables are `variables`."""
        return walls_from(
            self.permissions,
            (program.folder or _NO_FOLDER).absolute(),
            environment={name: value for name, value in variables.items() if is_passed_on(name)},
            programs=tuple(Path(one).absolute() for one in self.programs),
            limits=self.limits,
        )

    def find(self) -> Sandbox:
        """The sandbox.

        Raises:
            SandboxError: there is none here.
        """
        return find_sandbox(self.provider)

    def check_visible(self, path: str, who: str) -> None:
        """Refuse a program that cannot be seen inside.

        Raises:
            SandboxError: says what to add.
        """
        seen = (*map(Path, _SYSTEM), *(Path(one).absolute() for one in self.programs))
        if not any(Path(path).is_relative_to(one) for one in seen):
            raise SandboxError(
                f"{who} cannot be started: {path} cannot be seen in its sandbox.",
                hint="Add its folder to `programs` of the sandbox.",
            )


def _check_permission(said: str, folder: Path | None, who: str) -> None:
    permission = permission_in(said)
    if permission is None or permission.kind not in _KINDS:
        raise ConfigError(
            f"The sandbox of {who} cannot grant {said!r}.", hint=f"There are {', '.join(_KINDS)}."
        )
    if permission.kind == "net:outbound":
        if permission.pattern is not None:
            raise ConfigError(
                f"The sandbox of {who} cannot tell hosts apart: {said!r}.",
                hint="Grant net:outbound, or nothing.",
            )
        return
    if folder is None:
        raise ConfigError(f"The sandbox of {who} grants {said!r} of no folder.", hint="Give `folder`.")
    walls = walls_from((said, "fs:read"), folder, limits=Limits())
    alone = walls_from((said,), folder, limits=Limits())
    if not (walls.writable if permission.kind == "fs:write" else alone.readable):
        raise ConfigError(
            f"The sandbox of {who} cannot express {said!r}.", hint="Grant a subtree, `TREE/**`, or a file."
        )


def walled_program(
    sandbox: Sandbox, program: Program, path: str, walls: Walls, opened: ExitStack
) -> tuple[Program, str, tuple[int, ...]]:
    """A program in walls as a program that can be launched: it, its path, and what it has to inherit.

    Raises:
        SandboxError: the walls cannot be built.
    """
    walled = sandbox.walled([path, *program.command[1:]], walls, opened)
    variables = tuple(f"{name}={value}" for name, value in walled.environment.items())
    inside = Program(walled.words, variables, Path("/"), program.max_answer)
    return inside, walled.words[0], walled.fds
