"""What toolkits that start programs in the sandbox have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from noesium_stream.tool.atomic import TIME_LIMIT, ToolSource
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.sandbox.find import find_sandbox
from noesium_stream.tool.sandbox.walls import MIB, Limits, walls_of
from noesium_stream.tool.toolkit import BaseToolkit, ToolkitConfig

MAX_COMMAND: Final = 100_000
"""Characters of a command; the kernel takes 131,071 bytes in an argument."""
Command = Annotated[str, Field(min_length=1, max_length=MAX_COMMAND, pattern=r"^[^\x00]*$")]
Seconds = Annotated[float, Field(gt=0, le=3_600, json_schema_extra={TIME_LIMIT: True})]


class SandboxConfig(ToolkitConfig):
    """Limits of programs that a toolkit starts, set by an operator (see `Limits`).

    Attributes:
        sandbox: the provider, `bubblewrap`; None: the first that works here.
        programs: folders and files outside the workspace that programs can read.
    """

    sandbox: str | None = None
    programs: tuple[Path, ...] = ()
    cpu_s: float = Field(30.0, gt=0)
    memory_bytes: int = Field(512 * MIB, ge=16 * MIB)
    processes: int = Field(64, ge=1, le=10_000)
    output_bytes: int = Field(256 * 1024, ge=1, le=16 * MIB)
    file_bytes: int = Field(64 * MIB, ge=1)
    disk_bytes: int = Field(256 * MIB, ge=1)
    scratch_bytes: int = Field(64 * MIB, ge=4096)

    def limits(self, wall_s: float) -> Limits:
        """The limits of one program."""
        own = self.model_dump(exclude={"sandbox", "programs"})
        return Limits(wall_s=wall_s, **{name: own[name] for name in own if name in Limits.__slots__})


class SandboxedToolkit(BaseToolkit):
    """A toolkit whose programs run in a sandbox, with walls that are what the call was granted."""

    Config: ClassVar[type[ToolkitConfig]] = SandboxConfig
    source: ClassVar[ToolSource] = ToolSource.BUILTIN
    config: SandboxConfig

    def prepare(self, working_directory: Path) -> None:
        """See `BaseToolkit.prepare`.

        Raises:
            SandboxError: there is no sandbox on this machine.
        """
        find_sandbox(self.config.sandbox)

    async def run(
        self,
        command: Sequence[str],
        context: ToolContext,
        timeout_s: float,
        *,
        programs: Sequence[Path] = (),
        stdin: str = "",
    ) -> dict[str, Any]:
        """Run a program, and give its result as JSON.

        Args:
            command: the program and its arguments.
            context: of the call; the walls are built from what it was granted.
            timeout_s: seconds until it is killed.
            programs: folders and files that it can read beside those of the settings.
            stdin: its standard input.

        Raises:
            SandboxError: there is no sandbox on this machine.
        """
        programs = (*programs, *self.config.programs)
        walls = walls_of(context, limits=self.config.limits(timeout_s), programs=programs)
        sandbox = find_sandbox(self.config.sandbox)
        return (await sandbox.run(list(command), walls, stdin=stdin.encode())).as_json()
