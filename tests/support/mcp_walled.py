"""The MCP server of tests in a sandbox; `python -m tests.support.mcp_walled FOLDER PROVIDER MARK`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from noesium_stream.tool.mcp import McpToolkit, ServerSandbox, mcp
from tests.support.mcp import SERVER
from tests.support.sandboxes import PYTHON

WHOLE = ("fs:read", "fs:write")


@asynccontextmanager
async def walled(
    folder: Path, *how: str, env: tuple[str, ...] = (), **sandbox: Any
) -> AsyncIterator[McpToolkit]:
    """A started server whose folder is `/workspace`, which it may read and write if nothing else is said."""
    walls = ServerSandbox(**{"permissions": WHOLE, "programs": (SERVER,), **sandbox})
    command = [PYTHON, "-I", "-S", str(SERVER), "/workspace", *how]
    kit = mcp(command, name="crm", folder=folder, env=env, sandbox=walls)
    await kit.start()
    try:
        yield kit
    finally:
        await kit.stop()


async def main(folder: Path, provider: str, mark: str) -> None:
    async with walled(folder, "flood", mark, provider=provider):
        print("started", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
