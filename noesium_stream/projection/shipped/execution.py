"""What runs and agents do, and how they stand (RFC-0004 §4.3.1): workflow state, task graph, retries.

Every run has a row in the partition of its journal, a fold over that journal with the copies of what the run
received; every agent one (`agent/ID`), a fold over the registry. Commands that wait in an inbox are in no
journal yet, and in no row: an inbox is transport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.headers import EventHeaders
from noesium_stream.projection.shipped import execution_agents, execution_run, execution_use
from noesium_stream.projection.shipped.execution_state import AgentState, ExecutionState, RunState

AGENT: Final = "agent/"
"""What the keys of agents' rows begin with."""

_RUN: Final[Mapping[str, Callable[[RunState, EventEnvelope, dict[str, Any]], None]]] = {
    **execution_run.HANDLERS,
    **execution_use.HANDLERS,
}


class ExecutionProjection(BaseProjection[ExecutionState]):
    """A row per run (by its id) and per agent (`agent/ID`); see `execution_state`."""

    name = "execution"
    topics = ("agent.*.journal*", "registry")
    event_types = (*_RUN, *execution_agents.HANDLERS)
    decodes = False
    copies = True
    in_place = True
    on_error = "stop"

    def initial_state(self) -> ExecutionState:
        """A run of which nothing is known."""
        return RunState()

    def key(self, event: Any) -> str | None:
        """The run whose journal holds the event, or the agent that it is about."""
        if event.event_type in execution_agents.HANDLERS:
            return f"{AGENT}{envelope_of(event).payload['agent_id']}"
        found: str | None = event.run_id if isinstance(event, EventHeaders) else event.partition_key
        return found

    def apply(self, state: ExecutionState, event: Any) -> ExecutionState:
        """The row after one more event; takes envelopes as well, of one run's journal in its order."""
        envelope = envelope_of(event)
        of_agent = execution_agents.HANDLERS.get(envelope.event_type)
        if of_agent is not None:
            agent = state if isinstance(state, AgentState) else AgentState()
            of_agent(agent, envelope, envelope.payload)
            return agent
        assert isinstance(state, RunState)
        if not state.run_id:
            state.run_id = self.key(event) or ""
        if state.ended_ms is None:  # the first terminal record wins (law 3)
            execution_run.follow_owner(state, envelope)
            _RUN[envelope.event_type](state, envelope, envelope.payload)
            execution_run.settle_status(state)
        return state


def envelope_of(event: EventHeaders | EventEnvelope) -> EventEnvelope:
    """The event itself, whichever of the two a projection is given."""
    return event.envelope if isinstance(event, EventHeaders) else event
