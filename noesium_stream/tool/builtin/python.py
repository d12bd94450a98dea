"""The built-in toolkit `python`: programs of this Python in a sandbox, with its standard library alone."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from noesium_stream.tool.builtin.sandboxed import Command, SandboxedToolkit, Seconds
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.function import tool
from noesium_stream.tool.sandbox.python import interpreter_folders
from noesium_stream.tool.toolkit import register_toolkit

_PYTHON: Final = os.path.realpath(sys.executable)


@register_toolkit("python")
class PythonToolkit(SandboxedToolkit):
    """Python programs, in a sandbox whose walls are what the call was granted."""

    name: ClassVar[str] = "python"

    @tool(permissions=("python:execute",), timeout=3_600, tags=("category:code",))
    async def python(
        self,
        code: Command,
        context: ToolContext,
        stdin: Annotated[str, Field(max_length=1_000_000)] = "",
        timeout_s: Seconds = 30.0,
    ) -> dict[str, Any]:
        """Run a Python program in the workspace; what it prints is the result.

        It has the standard library. The result has exit_code, stdout, stderr and ended: exit, signal, or
        the limit at which it was killed (timeout, memory, processes, cpu, disk, output).
        """
        command = [_PYTHON, "-I", "-c", code]
        return await self.run(command, context, timeout_s, programs=interpreter_folders(), stdin=stdin)
