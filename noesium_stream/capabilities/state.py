"""The registry as a pure fold over its topic (RFC-0005)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from noesium_stream.capabilities.version import check_version
from noesium_stream.errors import ConfigError, EventValidationError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import Capability
from noesium_stream.log.topics import agent_name
from noesium_stream.projection.base import BaseProjection


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a capability as one agent offers it; `order` counts registrations."""

    agent_id: str
    agent_type: str
    capability: Capability
    order: int
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class RegistryState:
    """Entries by (agent id, capability id, version); `count` is the total number of registrations."""

    entries: dict[tuple[str, str, str], Entry] = field(default_factory=dict)
    count: int = 0


class CapabilityProjection(BaseProjection[RegistryState]):
    """All capability offers.

    An agent cannot change another's entry: the envelope's producer must be the agent, of the type that is
    called.
    """

    name = "capabilities"
    event_types = ("capability.registered", "capability.updated", "capability.deprecated")

    def initial_state(self) -> RegistryState:
        """A registry without offers."""
        return RegistryState()

    def apply(self, state: RegistryState, event: EventEnvelope) -> RegistryState:
        """Fold a registration, a new version or a deprecation.

        Raises:
            EventValidationError: nobody could call what is offered there.
        """
        payload: dict[str, Any] = event.payload
        agent_id = payload["agent_id"]
        if event.producer.agent_id != agent_id:
            return state
        if event.producer.agent_type != payload.get("agent_type", event.producer.agent_type):
            return state
        if event.event_type == "capability.deprecated":
            key = (agent_id, payload["capability_id"], payload["version"])
            entry = state.entries.get(key)
            if entry is None:
                return state
            return replace(state, entries={**state.entries, key: replace(entry, deprecated=True)})
        agent_type, capability = payload["agent_type"], _sound(payload)
        key = (agent_id, capability.id, capability.version)
        known = state.entries.get(key)
        if known is not None and not known.deprecated:
            return state
        new = Entry(agent_id, agent_type, capability, state.count)
        return RegistryState({**state.entries, key: new}, state.count + 1)


def _sound(payload: dict[str, Any]) -> Capability:
    """The capability that is offered; whoever resolves it parses its version and names the agent's topics.

    Raises:
        EventValidationError: it, its version or the agent's type has not the form for that.
    """
    try:
        capability = Capability.model_validate(payload["capability"])
    except ValidationError as error:
        raise EventValidationError("payload.capability", brief(error, 300)) from None
    for name, check, text in (
        ("payload.agent_type", agent_name, payload["agent_type"]),
        ("payload.capability.version", check_version, capability.version),
    ):
        try:
            check(text)
        except ConfigError as error:
            raise EventValidationError(name, brief(error, 300)) from None
    return capability
