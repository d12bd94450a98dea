"""Circuit breakers: failures in a row let others be chosen, and a success brings a provider back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from noesium_stream import BaseGraphicAgent, capability, current_step
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.errors import RunFailedError
from noesium_stream.event import AgentRef
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import Capability, CapabilityCircuitProbed
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker.circuits import OPENS_AFTER, Circuits
from tests.support.backends import Backend
from tests.support.reading import PATIENCE_S, eventually, stored


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


ANYTHING: dict[str, Any] = {"input_schema": {}, "output_schema": {}}


class First(BaseGraphicAgent):
    """Preferred, and broken as long as it is told."""

    agent_type = "first"
    broken: ClassVar[bool] = True

    @capability("word.find", priority=1)
    async def find(self, word: str) -> str:
        if First.broken:
            raise ValueError("out of order")
        return f"first {word}"


class Second(BaseGraphicAgent):
    """Works always."""

    agent_type = "second"

    @capability("word.find")
    async def find(self, word: str) -> str:
        return f"second {word}"


class Asker(BaseGraphicAgent):
    """Asks once."""

    agent_type = "asker"

    @capability("word.ask")
    async def ask(self, word: str) -> str:
        return str(await current_step().invoke("word.find", {"word": word}))


async def said(log: EventLog) -> list[str]:
    """What was said of circuits."""
    records = await stored(log, log.topology.registry, types=("capability.circuit.",))
    return [record.event_type.rpartition(".")[2] for record in records]


def so_far(log: EventLog, *kinds: str) -> Callable[[], Awaitable[bool]]:
    """Whether just this was said."""

    async def is_so() -> bool:
        return await said(log) == list(kinds)

    return is_so


async def test_five_failures_open_a_circuit_and_a_probe_closes_it(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    First.broken = True
    async with Client(log) as client, Worker(log, [Asker, First, Second], home=tmp_path):

        async def ask() -> Any:
            return await (await client.start("asker", {"word": "x"})).result(timeout=PATIENCE_S)

        for number in range(OPENS_AFTER):
            assert await said(log) == [], number
            with pytest.raises(RunFailedError, match="out of order"):
                await ask()
        await eventually(so_far(log, "opened"))
        assert await ask() == "second x"
        explained = await CapabilityRegistry(log).resolve("word.find", explain=True)
        assert "its circuit is open: 5 calls in a row have failed" in str(explained.candidates[1])
        probed = CapabilityCircuitProbed(agent_id="first", agent_type="first", capability_id="word.find")
        await log.append([root_event(probed, AgentRef("second", "second"), SystemClock())])
        with pytest.raises(RunFailedError, match="out of order"):
            await ask()
        await eventually(so_far(log, "opened", "probed", "opened"))
        assert await ask() == "second x"
        await log.append([root_event(probed, AgentRef("second", "second"), SystemClock())])
        First.broken = False
        assert await ask() == "first x"
        await eventually(so_far(log, "opened", "probed", "opened", "probed", "closed"))
        assert await ask() == "first x"


async def test_many_failures_at_once_are_said_once(log: EventLog) -> None:
    registry = CapabilityRegistry(log)
    await registry.register(AgentRef("first", "first"), Capability(id="word.find", **ANYTHING))
    circuits = Circuits(log, registry, AgentRef("asker", "asker"), SystemClock())
    invoked = {"target_agent_id": "first", "target_agent_type": "first", "capability_id": "word.find"}
    for _ in range(100):
        circuits.failed(invoked, "out of order")
    await circuits.settled()
    assert await said(log) == ["opened"]
    for _ in range(100):
        circuits.answered(invoked, {"output": 1})
    await circuits.settled()
    assert await said(log) == ["opened", "closed"]
