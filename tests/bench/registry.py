"""The registry of capabilities: how long folding, choosing and restarting take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from noesium_stream.capabilities.fold import CapabilityProjection
from noesium_stream.capabilities.resolution import DeterministicResolver, Wanted
from noesium_stream.capabilities.snapshot import identity_of, read_snapshot, write_snapshot
from noesium_stream.capabilities.state import RegistryState
from noesium_stream.capabilities.version import in_range
from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef, EventEnvelope
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import Capability, CapabilityDeprecated, CapabilityRegistered
from tests.bench.harness import Figure, Side, interleave, percentile

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"question": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
    "required": ["question"],
    "additionalProperties": False,
}
CHOICES = 2_000


@dataclass(frozen=True)
class RegistrySettings:
    """Sizes of the bench."""

    folder: Path
    events: int = 100_000
    capabilities: int = 10_000
    repetitions: int = 5


def registrations(count: int) -> list[EventEnvelope]:
    """Ten agents for each capability, each with its own weight."""
    clock, found = SystemClock(), []
    for number in range(count):
        agent = AgentRef(f"agent-{number % 10}", "worker-a")
        capability = Capability(
            id=f"domain-{number // 10}.search",
            version=f"1.{number % 7}.0",
            input_schema=SCHEMA,
            output_schema={"type": "string"},
            weight=number % 5,
            tags=["search", f"tag-{number % 100}"],
        )
        event = CapabilityRegistered(
            agent_id=agent.agent_id, agent_type=agent.agent_type, capability=capability
        )
        found.append(root_event(event, agent, clock))
    return found


def events(count: int) -> list[EventEnvelope]:
    """Registrations; of every third one also its deprecation and a second registration."""
    clock, found = SystemClock(), []
    for event in registrations(count):
        found.append(event)
        if len(found) % 3 == 0:
            one = event.payload["capability"]
            gone = CapabilityDeprecated(
                agent_id=event.producer.agent_id, capability_id=one["id"], version=one["version"], reason="r"
            )
            found += [root_event(gone, event.producer, clock), event.replace(event_id=clock.uuid7())]
        if len(found) >= count:
            break
    return found[:count]


def folded(given: Sequence[EventEnvelope]) -> RegistryState:
    """The state after these events."""
    return CapabilityProjection().fold(given)


async def measure_fold(settings: RegistrySettings) -> list[Figure]:
    """Fold many events, beside only validating their capabilities."""
    given = events(settings.events)

    async def ours() -> float:
        begun = perf_counter()
        folded(given)
        return perf_counter() - begun

    async def theirs() -> float:
        begun = perf_counter()
        for event in given:
            if "capability" in event.payload:
                Capability.model_validate(event.payload["capability"])
        return perf_counter() - begun

    values = await interleave({"ours": ours, "theirs": theirs}, settings.repetitions)
    return [
        Figure(
            "registry",
            f"fold {settings.events:,} events",
            "s",
            Side("the fold", values["ours"]),
            Side("validate what is offered", values["theirs"]),
            target=5.0,
            at_least=False,
            absolute=True,
        )
    ]


async def measure_resolve(settings: RegistrySettings) -> list[Figure]:
    """Choose a provider, beside looking at every offer."""
    state, resolver = folded(registrations(settings.capabilities)), DeterministicResolver()
    ids = [f"domain-{(number * 7) % (settings.capabilities // 10)}.search" for number in range(CHOICES)]

    async def ours() -> float:
        took = []
        for number, id in enumerate(ids):
            wanted = Wanted(id, f"^1.{number % 3}", run_id=f"run-{number}")
            begun = perf_counter()
            resolver.select(state, wanted)
            took.append(perf_counter() - begun)
        return percentile(took, 0.5) * 1e6

    async def theirs() -> float:
        took = []
        for id in ids[:10]:
            begun = perf_counter()
            sorted(
                (one for one in state.entries() if one.capability_id == id and in_range(one.version, "^1")),
                key=lambda one: one.order,
            )
            took.append(perf_counter() - begun)
        return percentile(took, 0.5) * 1e6

    values = await interleave({"ours": ours, "theirs": theirs}, settings.repetitions)
    return [
        Figure(
            "registry",
            f"choose among {settings.capabilities:,} offers, p50",
            "µs",
            Side("by capability id", values["ours"]),
            Side("over all offers", values["theirs"]),
            target=100.0,
            at_least=False,
            absolute=True,
        )
    ]


async def measure_restart(settings: RegistrySettings) -> list[Figure]:
    """Read a snapshot, beside folding again."""
    given = registrations(settings.capabilities)
    path, identity = settings.folder / "snapshot", identity_of("bench", "topic", None)
    write_snapshot(path, identity, folded(given), settings.capabilities)

    async def ours() -> float:
        begun = perf_counter()
        read_snapshot(path, identity)
        return (perf_counter() - begun) * 1e3

    async def theirs() -> float:
        begun = perf_counter()
        folded(given)
        return (perf_counter() - begun) * 1e3

    values = await interleave({"ours": ours, "theirs": theirs}, settings.repetitions)
    return [
        Figure(
            "registry",
            f"restart with {settings.capabilities:,} offers",
            "ms",
            Side("from the snapshot", values["ours"]),
            Side("fold decoded events", values["theirs"]),
            target=100.0,
            at_least=False,
            absolute=True,
        )
    ]
