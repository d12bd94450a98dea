"""Folds for agents' life cycles from the registry, used by `ExecutionProjection`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.builtin.execution_state import AgentState

_KEPT: Final = 100


def _started(agent: AgentState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    _named(agent, payload)
    agent.agent_version = payload["agent_version"]
    agent.starts += 1
    agent.live.pop(payload["instance_id"], None)
    agent.live[payload["instance_id"]] = event.timestamp_ms
    while len(agent.live) > _KEPT:
        del agent.live[next(iter(agent.live))]
    _changed(agent, event, "running", None)


def _stopped(agent: AgentState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    _named(agent, payload)
    agent.stops += 1
    agent.live.pop(payload["instance_id"], None)
    if not agent.live or agent.status == "unavailable":
        _changed(agent, event, "stopped", payload["reason"])


def _unavailable(agent: AgentState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    _named(agent, payload)
    agent.outages += 1
    _changed(agent, event, "unavailable", payload["reason"])


def _recovered(agent: AgentState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    _named(agent, payload)
    _changed(agent, event, "running", None)


def _named(agent: AgentState, payload: dict[str, Any]) -> None:
    agent.agent_id, agent.agent_type = payload["agent_id"], payload["agent_type"]


def _changed(agent: AgentState, event: EventEnvelope, status: str, reason: str | None) -> None:
    agent.status, agent.reason, agent.changed_ms = status, reason, event.timestamp_ms


HANDLERS: Final[Mapping[str, Callable[[AgentState, EventEnvelope, dict[str, Any]], None]]] = {
    "agent.started": _started,
    "agent.stopped": _stopped,
    "agent.unavailable": _unavailable,
    "agent.recovered": _recovered,
}
"""Folds of an agent's row by event type."""
