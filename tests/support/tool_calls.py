"""Tools as an executor calls them: checked arguments, a context with grants, checked results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.toolkit import BaseToolkit


class Calls:
    """Calls the tools of a toolkit by name, in a workspace, with what was granted."""

    def __init__(self, toolkit: BaseToolkit, workspace: Path, *granted: str, call_id: str = "call-1") -> None:
        self.tools = {one.name: one for one in toolkit.tools()}
        self.context = ToolContext("clerk", workspace, granted, call_id=call_id)

    async def __call__(self, name: str, **arguments: Any) -> Any:
        found = self.tools[name]
        found.check_input(arguments)
        result = await found.execute(arguments, self.context)
        found.check_output(result)
        return result
