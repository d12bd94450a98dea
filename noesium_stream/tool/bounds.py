"""How many calls of one tool, and of one toolkit or server, are under way in a process at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

from noesium_stream.tool.atomic import AtomicTool

DEFAULT_PER_SERVER: Final = 64
"""Calls at the same time of the tools of one MCP server."""


class Bounds:
    """The turns of calls; waiting ones go on in order."""

    def __init__(self, per_server: int = DEFAULT_PER_SERVER) -> None:
        self._per_server = per_server
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]]
        self._turns = WeakKeyDictionary()

    @asynccontextmanager
    async def turn(self, tool: AtomicTool) -> AsyncIterator[None]:
        """The turn of one call."""
        async with AsyncExitStack() as stack:
            if tool.max_concurrency is not None:
                await stack.enter_async_context(self._bound(tool.tool_id, tool.max_concurrency))
            if tool.source == "mcp" and tool.toolkit_name is not None:
                await stack.enter_async_context(self._bound(f"server:{tool.toolkit_name}", self._per_server))
            yield

    def _bound(self, name: str, most: int) -> asyncio.Semaphore:
        turns = self._turns.setdefault(asyncio.get_running_loop(), {})
        return turns.setdefault(name, asyncio.Semaphore(most))
