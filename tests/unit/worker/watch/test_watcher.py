"""Watchers on a log: one of them writes, the next one takes over, and one that was cut off is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.clock import SystemClock
from noesium_stream.errors import CapabilityNotFoundError
from noesium_stream.event import AgentRef
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import AgentHeartbeat, Capability
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import WATCHER
from noesium_stream.worker.watch.watcher import Watcher
from tests.support.backends import Backend
from tests.support.reading import eventually, stored

CLOCK = SystemClock()
OFFERED = Capability(id="c", input_schema={}, output_schema={})
PERIOD_S = 0.02


def agent(name: str) -> AgentRef:
    return AgentRef(name, name)


async def beat(log: EventLog, name: str, interval_ms: int) -> None:
    """Write a heartbeat."""
    said = AgentHeartbeat(
        agent_id=name, agent_type=name, instance_id="i", sequence=0, open_runs=0, interval_ms=interval_ms
    )
    await log.append([root_event(said, agent(name), CLOCK)], topic=log.topology.heartbeat)


async def said(log: EventLog) -> list[tuple[str, str]]:
    """What the watchers have said, and who."""
    records = await stored(log, log.topology.registry, types=("agent.",))
    return [(record.envelope.event_type, record.envelope.producer.agent_id) for record in records]


@asynccontextmanager
async def watching(log: EventLog, name: str) -> AsyncIterator[None]:
    """A member of the watchers; at the end it leaves."""
    task = asyncio.create_task(Watcher(log, agent(name), CLOCK, period_s=PERIOD_S).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_watcher_that_is_fenced_in_its_own_partition_watches_on(backend: Backend) -> None:
    log, other = await backend.open(), await backend.open()
    registry = CapabilityRegistry(log)
    await registry.register(agent("a"), OFFERED)
    await log.ensure_topics([log.topology.spec(log.topology.heartbeat)])

    async def has_said(kind: str) -> bool:
        await beat(log, "a", 1 if kind == "agent.unavailable" else 3_600_000)
        found = await said(log)
        return bool(found) and found[-1][0] == kind

    async with watching(log, "first"):
        await eventually(lambda: has_said("agent.unavailable"))
        thief = await other.writer(WATCHER)
        try:
            await eventually(lambda: has_said("agent.recovered"))
        finally:
            await thief.close()


async def test_one_watcher_speaks_and_the_next_one_takes_over(backend: Backend) -> None:
    logs = [await backend.open() for _ in range(3)]
    registry = CapabilityRegistry(logs[2])
    await registry.register(agent("a"), OFFERED)
    await logs[2].ensure_topics([logs[2].topology.spec(logs[2].topology.heartbeat)])

    async def is_offered() -> bool:
        try:
            return bool(await registry.resolve("c"))
        except CapabilityNotFoundError:
            return False

    async def beaten(interval_ms: int) -> bool:
        """Beat, and say whether the agent is offered; until somebody hears it, it beats again."""
        await beat(logs[2], "a", interval_ms)
        return await is_offered()

    async def silent() -> bool:
        # An interval of a millisecond: a look finds the agent silent, soon.
        return not await beaten(1)

    async def there() -> bool:
        return await beaten(3_600_000)

    async with watching(logs[1], "second"), watching(logs[0], "first"):
        await eventually(silent)
        await eventually(there)
        speakers = {who for _, who in await said(logs[2])}
        assert len(speakers) == 1
    assert {kind for kind, _ in await said(logs[2])} == {"agent.unavailable", "agent.recovered"}
    before = len(await said(logs[2]))
    async with watching(logs[1], "third"):
        await eventually(silent)
    assert {who for _, who in (await said(logs[2]))[before:]} == {"third"}
