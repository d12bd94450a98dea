"""Toolkits over `tests/support/mcp_server.py`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.mcp import McpToolkit, mcp
from tests.support.reading import PATIENCE_S

SERVER = Path(__file__).with_name("mcp_server.py")


def command(folder: Path, *how: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(SERVER), str(folder), *how]


@asynccontextmanager
async def started(folder: Path, *how: str, **options: Any) -> AsyncIterator[McpToolkit]:
    kit = mcp(command(folder, *how), name="crm", **options)
    await kit.start()
    try:
        yield kit
    finally:
        await kit.stop()


def tool(kit: McpToolkit, name: str) -> AtomicTool:
    [found] = [one for one in kit.tools() if one.name == f"crm__{name}"]
    return found


def context(folder: Path, **said: Any) -> ToolContext:
    return ToolContext(
        "clerk", folder, **{"timeout_ms": round(PATIENCE_S * 1000), "call_id": "key-1", **said}
    )


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []
