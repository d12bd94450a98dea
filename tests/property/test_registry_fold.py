"""The registry is a pure fold: what it says depends on the events so far, and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.capabilities.fold import CapabilityProjection
from noesium_stream.capabilities.registry_bytes import registry_bytes, registry_from
from noesium_stream.capabilities.resolution import DeterministicResolver, Wanted
from noesium_stream.capabilities.state import RegistryState
from noesium_stream.clock import VirtualClock
from noesium_stream.event import AgentRef, EventEnvelope
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.standard import (
    AgentRecovered,
    AgentStarted,
    AgentUnavailable,
    Capability,
    CapabilityCircuitClosed,
    CapabilityCircuitOpened,
    CapabilityCircuitProbed,
    CapabilityDeprecated,
    CapabilityRegistered,
    CapabilityUpdated,
)

CLOCK = VirtualClock()
AGENTS = ("a", "b", "c")
IDS = ("text.echo", "text.shout")
VERSIONS = ("1.0.0", "1.1.0", "2.0.0-rc.1", "2.0.0")
RANGES = (None, "^1", "2.0.0", ">=1.1 <3", "*")


@st.composite
def events(draw: st.DrawFn) -> EventEnvelope:
    """An event of the registry; now and then by somebody whom it does not concern."""
    owner = draw(st.sampled_from(AGENTS))
    writer = owner if draw(st.integers(0, 5)) else draw(st.sampled_from(AGENTS))
    id, version = draw(st.sampled_from(IDS)), draw(st.sampled_from(VERSIONS))
    offered = Capability(
        id=id,
        version=version,
        input_schema={},
        output_schema={},
        priority=draw(st.integers(0, 1)),
        weight=draw(st.integers(0, 3)),
        tags=draw(st.lists(st.sampled_from(["x", "y"]), unique=True)),
    )
    kind = f"type-{owner}"
    event: DomainEvent = draw(
        st.sampled_from(
            [
                CapabilityRegistered(agent_id=owner, agent_type=kind, capability=offered),
                CapabilityUpdated(
                    agent_id=owner, agent_type=kind, capability=offered, previous_version="1.0.0"
                ),
                CapabilityDeprecated(agent_id=owner, capability_id=id, version=version, reason="old"),
                AgentUnavailable(agent_id=owner, agent_type=kind, reason="silent"),
                AgentRecovered(agent_id=owner, agent_type=kind),
                AgentStarted(agent_id=owner, agent_type=kind, agent_version="1.0.0", instance_id="i"),
                CapabilityCircuitOpened(
                    agent_id=owner, agent_type=kind, capability_id=id, failures=5, reason="no"
                ),
                CapabilityCircuitProbed(agent_id=owner, agent_type=kind, capability_id=id),
                CapabilityCircuitClosed(agent_id=owner, agent_type=kind, capability_id=id),
            ]
        )
    )
    return root_event(event, AgentRef(writer, f"type-{writer}"), CLOCK)


logs = st.lists(events(), max_size=40)


def folded(given_events: Sequence[EventEnvelope], state: RegistryState | None = None) -> RegistryState:
    projection = CapabilityProjection()
    state = projection.initial_state() if state is None else state
    for event in given_events:
        state = projection.apply(state, event)
    return state


@given(logs, st.data())
def test_a_prefix_gives_the_same_bytes_in_whatever_batches(
    log: list[EventEnvelope], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=4)))
    state, begin = RegistryState(), 0
    for end in [*cuts, len(log)]:
        state = registry_from(registry_bytes(folded(log[begin:end], state)))
        assert registry_bytes(state) == registry_bytes(folded(log[:end]))
        assert state == folded(log[:end])
        begin = end


@given(logs, st.data())
def test_a_choice_depends_on_the_state_alone(log: list[EventEnvelope], data: st.DataObject) -> None:
    wanted = Wanted(
        data.draw(st.sampled_from(IDS)),
        data.draw(st.sampled_from(RANGES)),
        data.draw(st.none() | st.text(max_size=9)),
        without=data.draw(st.lists(st.sampled_from(AGENTS), max_size=1)),
    )
    first, second = folded(log), registry_from(registry_bytes(folded(log)))
    resolver = DeterministicResolver()
    for other in IDS:  # whatever was asked before
        resolver.select(second, Wanted(other, "^1", "another run"))
    chosen = resolver.select(first, wanted)
    assert chosen == resolver.select(second, wanted)
    explained = resolver.explain(first, wanted, 7)
    assert explained.chosen == chosen
    assert [one.entry for one in explained.candidates if one.taken] == ([] if chosen is None else [chosen])
    if chosen is not None:
        assert not chosen.deprecated
        assert first.unavailable(chosen.agent_id) is None
        assert first.broken(chosen.agent_id, chosen.capability_id) is None
        assert chosen.agent_id not in wanted.without


@given(logs, st.data())
def test_an_event_that_comes_again_changes_nothing(log: list[EventEnvelope], data: st.DataObject) -> None:
    state = folded(log)
    before = registry_bytes(state)
    registry = [event for event in log if not event.event_type.startswith("agent.")]
    again = data.draw(st.lists(st.sampled_from(registry), max_size=9)) if registry else []
    assert registry_bytes(folded(again, state)) == before


@given(logs)
def test_nobody_touches_the_entry_of_another(log: list[EventEnvelope]) -> None:
    state = folded(log)
    for agent in AGENTS:
        own = folded([event for event in log if event.producer.agent_id == agent])
        mine = [one._replace(order=0) for one in state.entries() if one.agent_id == agent]
        assert mine == [one._replace(order=0) for one in own.entries() if one.agent_id == agent]


@given(logs)
def test_metadata_of_a_version_never_changes(log: list[EventEnvelope]) -> None:
    first: dict[tuple[str, str, str], bytes] = {}
    state = RegistryState()
    for event in log:
        state = folded([event], state)
        for one in state.entries():
            assert first.setdefault((one.agent_id, one.capability_id, one.version), one.raw) == one.raw


@given(logs)
def test_a_copy_stays_as_it_is(log: list[EventEnvelope]) -> None:
    half = folded(log[: len(log) // 2])
    copy, before = half.copy(), registry_bytes(half)
    folded(log[len(log) // 2 :], half)
    assert registry_bytes(copy) == before
