"""A process that holds a session with an MCP server: `python -m tests.support.mcp_holding FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.mcp import started


async def main(folder: Path) -> None:
    async with started(folder, "flood"):
        print("started", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
