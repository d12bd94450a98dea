"""The built-in toolkit `shell`: commands of `/bin/sh` in a sandbox."""

from __future__ import annotations

from typing import Any, ClassVar

from noesium_stream.tool.builtin.sandboxed import Command, SandboxedToolkit, Seconds
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.function import tool
from noesium_stream.tool.toolkit import register_toolkit


@register_toolkit("shell")
class ShellToolkit(SandboxedToolkit):
    """Commands of a shell, in a sandbox whose walls are what the call was granted."""

    name: ClassVar[str] = "shell"

    @tool(permissions=("shell:execute",), timeout=3_600, tags=("category:shell",))
    async def shell(
        self, command: Command, context: ToolContext, timeout_s: Seconds = 30.0
    ) -> dict[str, Any]:
        """Run a command of /bin/sh in the workspace.

        The result has exit_code, stdout, stderr and ended: exit, signal, or the limit at which it was
        killed (timeout, memory, processes, cpu, disk, output). stdout_cut and stderr_cut count bytes that
        were left out. Nothing that the command starts runs on after it.
        """
        return await self.run(["/bin/sh", "-c", command], context, timeout_s)
