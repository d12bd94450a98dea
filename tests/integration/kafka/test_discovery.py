"""The registry on a real Kafka: it is followed, read as of a position, and restarted from its snapshot."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noesium_stream import AgentRef, Capability, CapabilityRegistry, DiscoveryService
from noesium_stream.capabilities.registry_bytes import registry_bytes
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.kafka import KafkaServer

A, B = AgentRef("a", "worker-a"), AgentRef("b", "worker-b")


@pytest.fixture
async def log(kafka: KafkaServer) -> AsyncIterator[EventLog]:
    log = await open_log(kafka.url("r" + secrets.token_hex(4)))
    yield log
    await log.close()


def offer(version: str) -> Capability:
    return Capability(id="text.echo", version=version, input_schema={}, output_schema={})


async def test_a_copy_follows_and_equals_one_that_reads_later(log: EventLog, tmp_path: Path) -> None:
    writer = CapabilityRegistry(log)
    async with DiscoveryService(log, folder=tmp_path) as discovery:
        await writer.register(A, offer("1.0.0"))
        first = await discovery.changed(after=0)
        waiting = [asyncio.create_task(discovery.changed(after=first)) for _ in range(9)]
        await writer.register(B, offer("1.1.0"))
        assert len(set(await asyncio.gather(*waiting))) == 1
        await writer.deprecate(A, "text.echo", "1.0.0", "old")
        await discovery.changed(after=discovery.position)
        chosen = discovery.resolve("text.echo", "^1").chosen
        assert chosen is not None
        assert chosen.agent_id == "b"
        followed = registry_bytes(discovery.state)
    late = CapabilityRegistry(log)
    assert registry_bytes(await late.refresh()) == followed
    assert registry_bytes(await CapabilityRegistry(log, folder=tmp_path).refresh()) == followed
    assert list(tmp_path.glob("*.snapshot"))
    past = await late.resolve("text.echo", at=first)
    assert (past.agent_id, past.version) == ("a", "1.0.0")
