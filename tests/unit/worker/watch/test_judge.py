"""What a watcher says, as a function of what it has seen and of the time."""

from __future__ import annotations

from noesium_stream.capabilities.fold import CapabilityProjection
from noesium_stream.capabilities.state import RegistryState
from noesium_stream.clock import VirtualClock
from noesium_stream.event import AgentRef, DomainEvent, EventEnvelope
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import (
    AgentHeartbeat,
    AgentStarted,
    Capability,
    CapabilityCircuitOpened,
    CapabilityRegistered,
)
from noesium_stream.worker.watch.judge import (
    COOLING_S,
    INTERVAL_S,
    MISSED,
    MOST_AGENTS,
    MOST_INTERVAL_S,
    Watched,
    judge,
)

CLOCK = VirtualClock()
PATIENCE_S = MISSED * INTERVAL_S


def event(said: DomainEvent, agent: str = "a") -> EventEnvelope:
    """As the agent says it."""
    return root_event(said, AgentRef(agent, agent), CLOCK)


def offering(*agents: str) -> RegistryState:
    """A registry in which each of these offers something."""
    state = CapabilityProjection().initial_state()
    for agent in agents:
        offered = Capability(id="c", input_schema={}, output_schema={})
        fold(state, CapabilityRegistered(agent_id=agent, agent_type=agent, capability=offered), agent)
    return state


def fold(state: RegistryState, said: DomainEvent, agent: str = "a") -> None:
    """Fold what an agent says."""
    CapabilityProjection().apply(state, event(said, agent))


def beat(agent: str = "a", interval_ms: int = 10_000, producer: str | None = None) -> EventEnvelope:
    """A heartbeat."""
    said = AgentHeartbeat(
        agent_id=agent, agent_type=agent, instance_id="i", sequence=0, open_runs=0, interval_ms=interval_ms
    )
    return event(said, producer or agent)


def test_an_agent_is_unavailable_after_three_intervals_and_again_there_with_a_heartbeat() -> None:
    state, watched = offering("a"), Watched(0.0)
    watched.hear(beat(), 5.0)
    assert judge(state, watched, 5.0 + PATIENCE_S) == []
    [said] = judge(state, watched, 6.0 + PATIENCE_S)
    assert (said.event_type(), said.payload()["reason"]) == ("agent.unavailable", "no heartbeat for 31 s")
    fold(state, said, "w")
    assert judge(state, watched, 7.0 + PATIENCE_S) == []
    watched.hear(beat(), 100.0)
    [said] = judge(state, watched, 101.0)
    assert said.event_type() == "agent.recovered"
    fold(state, said, "w")
    assert state.ill == set()
    assert judge(state, watched, 102.0) == []


def test_a_watcher_that_has_just_begun_calls_nobody_unavailable() -> None:
    state, watched = offering("a", "b"), Watched(1_000.0)
    assert judge(state, watched, 1_000.0 + PATIENCE_S) == []
    assert [one.payload()["agent_id"] for one in judge(state, watched, 1_001.0 + PATIENCE_S)] == ["a", "b"]


def test_each_agent_is_judged_by_the_interval_that_it_announces_within_bounds() -> None:
    state, watched = offering("a", "b"), Watched(0.0)
    watched.hear(beat("a", 1_000), 0.0)
    watched.hear(beat("b", 10**12), 0.0)
    assert [one.payload()["agent_id"] for one in judge(state, watched, 4.0)] == ["a"]
    late = MISSED * MOST_INTERVAL_S + 1
    assert [one.payload()["agent_id"] for one in judge(state, watched, late)] == ["a", "b"]


def test_nobody_keeps_another_alive() -> None:
    state, watched = offering("a"), Watched(0.0)
    watched.hear(beat("a", producer="b"), 30.0)
    assert [one.event_type() for one in judge(state, watched, 31.0)] == ["agent.unavailable"]


def test_a_start_ends_an_absence_without_a_watcher() -> None:
    state, watched = offering("a"), Watched(0.0)
    for said in judge(state, watched, 31.0):
        fold(state, said, "w")
    started = AgentStarted(agent_id="a", agent_type="a", agent_version="1.0.0", instance_id="i")
    fold(state, started, "b")
    assert state.ill == {"a"}
    fold(state, started, "a")
    assert state.ill == set()


def test_an_open_circuit_may_be_tried_after_a_while_once() -> None:
    state, watched = offering("a"), Watched(0.0)
    opened = CapabilityCircuitOpened(agent_id="a", agent_type="a", capability_id="c", failures=5, reason="no")
    fold(state, opened, "caller")
    assert state.broken("a", "c") == "5 calls in a row have failed: no"
    watched.hear(beat(), 0.0)
    assert judge(state, watched, 0.0) == []
    watched.hear(beat(), COOLING_S)
    [said] = judge(state, watched, COOLING_S)
    assert said.event_type() == "capability.circuit.probed"
    fold(state, said, "w")
    assert state.broken("a", "c") is None
    watched.hear(beat(), 2 * COOLING_S)
    assert judge(state, watched, 2 * COOLING_S) == []
    assert watched.open_since == {}


def test_what_is_remembered_is_bounded() -> None:
    watched = Watched(0.0)
    for number in range(MOST_AGENTS + 5):
        watched.hear(beat(f"a{number}"), 0.0)
    assert len(watched.beats) == MOST_AGENTS
    assert "a0" not in watched.beats
