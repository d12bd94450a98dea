"""Agents as others see them: their instances by heartbeats, their offers and health by the registry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.client.views.workers import live_heartbeats
from noesium_stream.clock import Clock
from noesium_stream.log.port import EventLog, process_of


@dataclass(frozen=True, slots=True)
class AgentInstance:
    """A process that works for an agent, by its last heartbeat.

    Attributes:
        process: `host/pid`; None: an old worker, which does not say.
        instance_id: the id of the instance.
        open_runs: number of open runs, including those that only wait.
        versions: the graphs that it carries, with the one for new runs first.
    """

    process: str | None
    instance_id: str
    open_runs: int
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent type.

    Attributes:
        instances: members of its consumer group that sent a heartbeat within three intervals, by process.
        health: why the agent is unavailable, as a watcher says; None: nobody says so.
        capabilities: its live offers, `ID VERSION`, in the order of registration.
        open_runs: of all instances together.
        versions: the graphs that its instances carry, each once.
    """

    agent_type: str
    instances: tuple[AgentInstance, ...]
    health: str | None
    capabilities: tuple[str, ...]

    @property
    def open_runs(self) -> int:
        """The number of open runs of all instances."""
        return sum(one.open_runs for one in self.instances)

    @property
    def versions(self) -> tuple[str, ...]:
        """The graphs that its instances carry, each once."""
        return tuple(dict.fromkeys(version for one in self.instances for version in one.versions))

    @property
    def status(self) -> str:
        """`unavailable`, `ready`, or `stopped`: no process works for it."""
        if self.health is not None:
            return "unavailable"
        return "ready" if self.instances else "stopped"


async def known_agents(
    log: EventLog, clock: Clock, registry: CapabilityRegistry, agent_types: Iterable[str]
) -> list[AgentInfo]:
    """Describe these agent types, and those that offer something or send heartbeats, by type.

    Raises:
        LogUnavailableError: the log does not answer.
    """
    state = await registry.refresh()
    beats = await live_heartbeats(log, clock.now_ms())
    offers: dict[str, list[str]] = {}
    health: dict[str, str] = {}
    for entry in state.entries():
        offers.setdefault(entry.agent_type, [])
        if not entry.deprecated:
            offers[entry.agent_type].append(f"{entry.capability_id} {entry.version}")
        reason = state.unavailable(entry.agent_id)
        if reason is not None:
            health[entry.agent_type] = reason
    kinds = sorted({*agent_types, *offers, *(beat["agent_type"] for beat in beats)})
    members = {kind: await _members(log, kind) for kind in kinds}
    instances: dict[str, dict[str, AgentInstance]] = {}
    for beat in beats:
        if beat.get("process") not in (None, *members[beat["agent_type"]]):
            continue  # it has stopped
        one = AgentInstance(
            beat.get("process"), beat["instance_id"], beat["open_runs"], tuple(beat.get("versions") or ())
        )
        # The newest heartbeat of a process comes last.
        instances.setdefault(beat["agent_type"], {})[one.process or one.instance_id] = one
        reason = state.unavailable(beat["agent_id"])
        if reason is not None:
            health[beat["agent_type"]] = reason
    return [
        AgentInfo(
            kind,
            tuple(one for _, one in sorted(instances.get(kind, {}).items())),
            health.get(kind),
            tuple(offers.get(kind, ())),
        )
        for kind in kinds
    ]


async def _members(log: EventLog, agent_type: str) -> set[str]:
    """The processes in the consumer group of an agent type's workers."""
    return {process_of(share.member) for share in await log.members(log.topology.workers(agent_type))}
