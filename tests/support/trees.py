"""Trees of runs in tests: begun, looked at, and judged by the log alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from noesium_stream.client import Client, Run
from noesium_stream.event.rules.agent_calls import CALLS
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.log.port import EventLog
from tests.support.reading import eventually, stored
from tests.support.tree_agents import AGENTS, calling


def thirty(middles: int = 5, leaves: int = 5, **leaf: Any) -> dict[str, Any]:
    """The input of a root whose tree has `1 + middles * (1 + leaves)` runs on three levels."""
    return calling("middle", *[calling("leaf", *[leaf] * leaves) for _ in range(middles)])


async def at_work(log: EventLog, count: int, agent_type: str = "leaf") -> None:
    """Return when so many runs of this type have entered their node."""

    async def entered() -> bool:
        journal = await stored(log, log.topology.journal(agent_type), types=("kernel.node.entered",))
        return len({record.key for record in journal}) >= count

    await eventually(entered)


async def children(log: EventLog, run: Run) -> list[Run]:
    """The runs that it has called, in the order of the calls."""
    found = []
    async with Client(log) as client:
        for event in [event async for event in run.events(follow=False)]:
            if event.event_type in CALLS and event.payload["caller_run_id"] == run.id:
                found.append(client.run_handle(event.payload["target_agent_type"], event.payload["run_id"]))
    return found


async def endings(log: EventLog) -> dict[str, list[str]]:
    """The terminal events of each run on the log, by its id; every run that was called is there."""
    found: dict[str, list[str]] = {}
    for agent_type in [agent.agent_type for agent in AGENTS]:
        for record in await stored(log, log.topology.inbox(agent_type), types=("run.requested", *CALLS)):
            found.setdefault(record.key, [])
        for record in await stored(log, log.topology.journal(agent_type), types=tuple(ENDINGS)):
            if record.envelope.payload["run_id"] == record.key:
                found[record.key].append(record.event_type)
    return found


def counts(found: dict[str, list[str]]) -> Counter[tuple[str, ...]]:
    """How many runs have ended in each way."""
    return Counter(tuple(ends) for ends in found.values())


async def nothing_left(before: set[asyncio.Task[Any]]) -> None:
    """Return when no task is left of those begun since `before`."""
    await eventually(lambda: not asyncio.all_tasks() - before)
