"""A watcher that is killed: another process watches on, and what was said is said once."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.clock import SystemClock
from noesium_stream.errors import CapabilityNotFoundError
from noesium_stream.event import AgentRef
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import AgentHeartbeat, Capability
from tests.support.backends import Backend
from tests.support.processes import Program
from tests.support.reading import eventually, stored

AGENT = AgentRef("a", "a")
HOUR_MS = 3_600_000


@pytest.mark.needs("several_processes")
async def test_another_process_watches_on_when_the_watcher_is_killed(backend: Backend) -> None:
    log = await backend.open()
    registry = CapabilityRegistry(log)
    await registry.register(AGENT, Capability(id="c", input_schema={}, output_schema={}))

    async def offered_after_a_beat(interval_ms: int) -> bool:
        beat = AgentHeartbeat(
            agent_id="a", agent_type="a", instance_id="i", sequence=0, open_runs=0, interval_ms=interval_ms
        )
        await log.append([root_event(beat, AGENT, SystemClock())], topic=log.topology.heartbeat)
        try:
            return bool(await registry.resolve("c"))
        except CapabilityNotFoundError:
            return False

    async def silent() -> bool:
        return not await offered_after_a_beat(1)  # after a millisecond it is late

    async def there() -> bool:
        return await offered_after_a_beat(HOUR_MS)

    async def speakers() -> list[str]:
        records = await stored(log, log.topology.registry, types=("agent.",))
        return [record.envelope.producer.agent_id for record in records]

    await log.ensure_topics([log.topology.spec(log.topology.heartbeat)])
    first = await Program.start("tests.support.watching_process", backend.url, Path("first"))
    try:
        await eventually(silent)
        await first.kill()
        second = await Program.start("tests.support.watching_process", backend.url, Path("second"))
        try:
            await eventually(there)
            await eventually(silent)
        finally:
            await second.kill()
    finally:
        await first.kill()
    said = await speakers()
    assert set(said) == {"first", "second"}
    assert said == sorted(said), "two processes spoke at one time"
