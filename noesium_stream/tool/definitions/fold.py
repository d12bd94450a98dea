"""The registered tools as a pure fold over the registry topic.

The first definition of a tool is accepted. One that replaces it is accepted at once if the operator has
deployed it; if it comes from a server or from a description of others, it is pending until a `tool.accepted`
names its hash. Whether a change is foreign is judged by both definitions, so that no definition talks itself
out of being looked at. An event that was folded before, by its id, changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from noesium_stream.errors import ConfigError, EventValidationError, brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.standard import ToolAccepted, ToolRegistered
from noesium_stream.projection.base import BaseProjection
from noesium_stream.tool.definitions.reading import tool_of_definition
from noesium_stream.tool.definitions.state import Definition, DefinitionsState, RegisteredTool, is_foreign

_DEFINITION: Final = "payload.definition"


class DefinitionsProjection(BaseProjection[DefinitionsState]):
    """All registered tools.

    Only an agent itself registers its tools; it does not accept their definitions.
    """

    name = "tools"
    in_place = True
    event_types = (ToolAccepted.TYPE, ToolRegistered.TYPE)

    def initial_state(self) -> DefinitionsState:
        """No tools."""
        return DefinitionsState()

    def apply(self, state: DefinitionsState, event: EventEnvelope) -> DefinitionsState:
        """Fold a registration, or an acceptance.

        Raises:
            EventValidationError: the definition is not valid, or is not what the event says that it is. The
                state is unchanged.
        """
        if event.event_id not in state.spent:
            (_register if event.event_type == ToolRegistered.TYPE else _accept)(state, event)
        return state


def _register(state: DefinitionsState, event: EventEnvelope) -> None:
    payload, agent_type = event.payload, event.payload.get("agent_type")
    if agent_type is None or payload.get("definition") is None or event.producer.agent_type != agent_type:
        return
    found, tool_id = _sound(event), payload["tool_id"]
    state.spent.add(event.event_id)
    known = state.get(agent_type, tool_id)
    if known is None:
        state.put(RegisteredTool(agent_type, tool_id, found))
    elif found.hash == known.current.hash:
        return
    elif found.hash in known.former or not (is_foreign(found.value) or is_foreign(known.current.value)):
        state.put(_in_use(known, found)._replace(pending=known.pending))
    elif known.pending is None or known.pending.hash != found.hash:
        state.put(known._replace(pending=found))


def _accept(state: DefinitionsState, event: EventEnvelope) -> None:
    payload = event.payload
    known = state.get(payload["agent_type"], payload["tool_id"])
    if event.producer.agent_type == payload["agent_type"]:
        return
    state.spent.add(event.event_id)
    if known is None or known.pending is None or known.pending.hash != payload["definition_hash"]:
        return
    accepted = known.pending._replace(since_ms=event.timestamp_ms, accepted_by=payload["accepted_by"])
    state.put(_in_use(known, accepted))


def _in_use(known: RegisteredTool, definition: Definition) -> RegisteredTool:
    """The tool with another definition in use, and none that waits."""
    return known._replace(
        current=definition, pending=None, former=(known.former | {known.current.hash}) - {definition.hash}
    )


def _sound(event: EventEnvelope) -> Definition:
    """The definition that an event registers.

    Raises:
        EventValidationError: it is no definition of a tool, or not the one that the event names.
    """
    payload: dict[str, Any] = event.payload
    raw = canonical_json(payload["definition"], _DEFINITION)
    try:
        tool = tool_of_definition(payload["definition"])
    except ConfigError as error:
        raise EventValidationError(_DEFINITION, brief(error, 300)) from None
    digest = hashlib.sha256(raw).hexdigest()
    if tool.definition != payload["definition"]:
        raise EventValidationError(_DEFINITION, "is not in the form in which definitions are registered")
    for name, said, found in (
        ("tool_id", payload["tool_id"], tool.tool_id),
        ("definition_hash", payload.get("definition_hash"), digest),
    ):
        if said != found:
            raise EventValidationError(f"payload.{name}", f"is not that of the definition, {found[:200]}")
    return Definition(digest, raw, event.event_id, event.timestamp_ms)
