"""The registry as a pure fold over its topic (RFC-0005): registrations, deprecations, health, circuits.

Decision record: what is registered under a version of an agent's capability never changes, not even when it
was deprecated in between: a caller that has pinned the version gets what it has checked. The first
registration counts, a registration with other metadata is passed over, and a deprecated version that is
registered again is live again with the metadata that it always had, at a new place in the order. An event
that was folded before, by its id, changes nothing. An agent that is unavailable is available again when one
of its processes starts: nobody has to wait for a heartbeat then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from noesium_stream.capabilities.state import Circuit, Entry, Health, RegistryState, canonical
from noesium_stream.capabilities.version import check_version
from noesium_stream.errors import ConfigError, EventValidationError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import Capability
from noesium_stream.log.topics import agent_name
from noesium_stream.projection.base import BaseProjection

_REASON: Final = 300
"""Characters of a reason that are kept with a circuit."""


class CapabilityProjection(BaseProjection[RegistryState]):
    """All capability offers.

    An agent cannot change another's entry: the envelope's producer must be the agent, of the type that is
    called.
    """

    name = "capabilities"
    in_place = True
    event_types = (
        "agent.recovered",
        "agent.started",
        "agent.unavailable",
        "capability.circuit.closed",
        "capability.circuit.opened",
        "capability.circuit.probed",
        "capability.deprecated",
        "capability.registered",
        "capability.updated",
    )

    def initial_state(self) -> RegistryState:
        """A registry without offers."""
        return RegistryState()

    def apply(self, state: RegistryState, event: EventEnvelope) -> RegistryState:
        """Fold a registration, a new version, a deprecation, or an agent's health.

        Raises:
            EventValidationError: nobody could call what is offered there. The state is unchanged.
        """
        kind, payload = event.event_type, event.payload
        if kind in ("agent.unavailable", "agent.recovered"):
            _judge(state, event, payload)
        elif kind == "agent.started":
            if _is_own(event, payload):
                _judge(state, event, payload)
        elif event.event_id in state.spent:
            return state
        elif kind.startswith("capability.circuit."):
            _switch(state, event, payload)
        elif not _is_own(event, payload):
            return state
        elif kind == "capability.deprecated":
            _deprecate(state, event, payload)
        else:
            _register(state, event, payload)
        return state


def _is_own(event: EventEnvelope, payload: dict[str, Any]) -> bool:
    producer = event.producer
    agent_type: str = payload.get("agent_type", producer.agent_type)
    return bool(producer.agent_id == payload["agent_id"]) and agent_type == producer.agent_type


def _register(state: RegistryState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    capability, raw = _sound(payload)
    known = state.entry(payload["agent_id"], capability.id, capability.version)
    if known is None:
        agent_id, agent_type = payload["agent_id"], payload["agent_type"]
        id, version = capability.id, capability.version
        made = Entry(agent_id, agent_type, id, version, state.count, event.event_id, None, None, raw)
    elif known.deprecated_by is None:
        _spend(state, event, known.event_id)
        return
    elif event.event_id == known.event_id or raw != known.raw:
        return
    else:
        state.spent.update((known.event_id, known.deprecated_by))
        made = known._replace(
            order=state.count, event_id=event.event_id, deprecation=None, deprecated_by=None
        )
    state.put(made)
    state.count += 1


def _deprecate(state: RegistryState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    known = state.entry(payload["agent_id"], payload["capability_id"], payload["version"])
    if known is not None and known.deprecated_by is None:
        state.put(known._replace(deprecation=payload["reason"], deprecated_by=event.event_id))
    else:
        _spend(state, event, None if known is None else known.deprecated_by)


def _spend(state: RegistryState, event: EventEnvelope, effective: str | None) -> None:
    """Remember an event that says what is so already: if it comes again later, it may no longer be so."""
    if event.event_id != effective:
        state.spent.add(event.event_id)


def _judge(state: RegistryState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    agent_id, known = payload["agent_id"], state.health.get(payload["agent_id"])
    if event.event_type != "agent.unavailable":
        if known is None or known.reason is None or known.recovered_by == event.event_id:
            return
        new = Health(None, event.timestamp_ms, known.unavailable_by, event.event_id)
    elif known is None:
        new = Health(payload["reason"], event.timestamp_ms, event.event_id)
    elif known.reason is not None:
        new = replace(known, unavailable_by=event.event_id)
    elif known.unavailable_by == event.event_id:
        return
    else:
        new = Health(payload["reason"], event.timestamp_ms, event.event_id, known.recovered_by)
    state.put_health(agent_id, new)


def _switch(state: RegistryState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    """Fold what was said of a circuit; of an agent that does not offer the capability nothing is said."""
    state.spent.add(event.event_id)  # if it comes again, it may no longer be so
    key = agent_id, capability_id = payload["agent_id"], payload["capability_id"]
    offers, known = state.offers(capability_id), state.circuits.get(key)
    if offers is None or not any(
        one.agent_id == agent_id and one.agent_type == payload["agent_type"]
        for one in offers.entries.values()
    ):
        return
    if event.event_type == "capability.circuit.opened":
        if known is None or known.probing:
            reason = f"{payload['failures']} calls in a row have failed: {payload['reason'][:_REASON]}"
            state.circuits[key] = Circuit(reason, event.timestamp_ms, event.event_id)
    elif known is None:
        return
    elif event.event_type == "capability.circuit.probed":
        state.circuits[key] = replace(known, probing=True)
    else:
        del state.circuits[key]


def _sound(payload: dict[str, Any]) -> tuple[Capability, bytes]:
    """The capability that is offered, also as canonical JSON.

    Whoever resolves it parses its version and names the agent's topics.

    Raises:
        EventValidationError: it, its version or the agent's type has not the form for that.
    """
    try:
        capability = Capability.model_validate(payload["capability"])
        raw = canonical(capability)
    except (ValidationError, TypeError, ValueError) as error:
        raise EventValidationError("payload.capability", brief(error, 300)) from None
    for name, check, text in (
        ("payload.agent_type", agent_name, payload["agent_type"]),
        ("payload.capability.version", check_version, capability.version),
    ):
        try:
            check(text)
        except ConfigError as error:
            raise EventValidationError(name, brief(error, 300)) from None
    return capability, raw
