"""What a watcher says of agents and circuits: a pure function of what it has seen, and of a time (RFC-0005).

Decision record: who reads the registry needs no clock; who writes there needs one. The watcher counts the
time that *it* has waited, from when a heartbeat came to it: neither the clock of the agent's machine nor that
of the log matters. A watcher that has just begun, or that could not read, has seen nothing: it waits its time
before it calls anybody unavailable. An orderly stop is no special case: nobody is there to answer, and calls
go to others until somebody is. `agent.started` ends an absence in the registry itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from noesium_stream.capabilities.state import RegistryState
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import AgentRecovered, AgentUnavailable, CapabilityCircuitProbed

MISSED: Final = 3
"""Heartbeats that an agent may miss."""

INTERVAL_S: Final = 10.0
"""The time between two heartbeats of an agent of which none was seen, in seconds."""

MOST_INTERVAL_S: Final = 600.0
"""An agent that announces more is judged by this: it could hide for ever."""

COOLING_S: Final = 30.0
"""How long a circuit stays open before a call may try it, in seconds."""

MOST_AGENTS: Final = 10_000
"""Agents that are remembered; anybody may write heartbeats."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The last heartbeat of an agent: when it came (monotonic seconds), its interval, and its id."""

    at_s: float
    interval_s: float
    event_id: str


@dataclass(slots=True)
class Watched:
    """What a watcher has seen.

    Attributes:
        since_s: since when it sees heartbeats (monotonic seconds).
        beats: the last one of each agent, by agent id.
        open_since: when it first saw an open circuit, by the event that opened it.
    """

    since_s: float
    beats: dict[str, Beat] = field(default_factory=dict)
    open_since: dict[str, float] = field(default_factory=dict)

    def hear(self, event: EventEnvelope, now_s: float) -> None:
        """Take note of a heartbeat, if it is the agent's own."""
        agent_id, producer = event.payload["agent_id"], event.producer
        if (agent_id, event.payload["agent_type"]) != (producer.agent_id, producer.agent_type):
            return
        interval_s = min(event.payload["interval_ms"] / 1000, MOST_INTERVAL_S)
        self.beats.pop(agent_id, None)
        self.beats[agent_id] = Beat(now_s, interval_s, event.event_id)
        if len(self.beats) > MOST_AGENTS:
            del self.beats[next(iter(self.beats))]


def judge(state: RegistryState, watched: Watched, now_s: float) -> list[DomainEvent]:
    """What is to be said now of the agents that offer something, and of their circuits."""
    return [*_of_agents(state, watched, now_s), *_of_circuits(state, watched, now_s)]


def _of_agents(state: RegistryState, watched: Watched, now_s: float) -> Iterator[DomainEvent]:
    offering = {entry.agent_id: entry.agent_type for entry in state.entries() if not entry.deprecated}
    for agent_id, agent_type in offering.items():
        beat = watched.beats.get(agent_id)
        patience_s = MISSED * (INTERVAL_S if beat is None else beat.interval_s)
        heard_s = watched.since_s if beat is None else max(beat.at_s, watched.since_s)
        is_silent = now_s - heard_s > patience_s
        is_ill = agent_id in state.ill
        if is_silent and not is_ill:
            yield AgentUnavailable(
                agent_id=agent_id,
                agent_type=agent_type,
                reason=f"no heartbeat for {now_s - heard_s:.0f} s",
                last_heartbeat_id=None if beat is None else beat.event_id,
            )
        elif is_ill and beat is not None and now_s - beat.at_s <= patience_s:
            yield AgentRecovered(agent_id=agent_id, agent_type=agent_type)


def _of_circuits(state: RegistryState, watched: Watched, now_s: float) -> Iterator[DomainEvent]:
    opened = {one.event_id: key for key, one in state.circuits.items() if not one.probing}
    for event_id in [known for known in watched.open_since if known not in opened]:
        del watched.open_since[event_id]
    for event_id, (agent_id, capability_id) in opened.items():
        if now_s - watched.open_since.setdefault(event_id, now_s) < COOLING_S:
            continue
        agent_type = _type_of(state, agent_id, capability_id)
        if agent_type is not None:
            yield CapabilityCircuitProbed(
                agent_id=agent_id, agent_type=agent_type, capability_id=capability_id
            )


def _type_of(state: RegistryState, agent_id: str, capability_id: str) -> str | None:
    offers = state.offers(capability_id)
    entries = () if offers is None else offers.entries.values()
    return next((entry.agent_type for entry in entries if entry.agent_id == agent_id), None)
