"""Any graph as an agent, run on `memory://` by a real worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph.graph import StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.worker import Worker


@asynccontextmanager
async def running(graph: StateGraph[Any, Any, Any, Any], home: Path) -> AsyncIterator[Client]:
    """A client of a log on which a worker runs `graph` as the agent type `sample`."""
    log = await open_log("memory://")
    try:
        async with Worker(log, [agent_from_graph(graph)], home=home), Client(log) as client:
            yield client
    finally:
        await log.close()
