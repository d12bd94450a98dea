"""Status of runs and agents (RFC-0004 §4.3.1): workflow state, task graph, retries.

Every run has a row in the partition of its journal; the row is a fold over that journal, with the copies of
the events that the run received. Every agent has a row (`agent/ID`), a fold over the registry. A command that
still waits in an inbox is in no journal yet, so it has no row: an inbox is transport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.run_life import LIFE_TYPES
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.builtin import execution_agents, execution_run, execution_use
from noesium_stream.projection.builtin.execution_state import AgentState, ExecutionState, RunState
from noesium_stream.projection.event_headers import EventHeaders

AGENT: Final = "agent/"
"""Key prefix of agent rows."""

_RUN: Final[Mapping[str, Callable[[RunState, EventEnvelope, dict[str, Any]], None]]] = {
    **execution_run.HANDLERS,
    **execution_use.HANDLERS,
}
OF_RUNS: Final = frozenset((*LIFE_TYPES, *_RUN))
"""Types of the events of a run's journal that the projection folds."""


class ExecutionProjection(BaseProjection[ExecutionState]):
    """A row per run (by its id) and per agent (`agent/ID`); see `execution_state`."""

    name = "execution"
    takes_erased = True
    version = 4
    topics = ("agent.*.journal*", "registry")
    event_types = (*LIFE_TYPES, *_RUN, *execution_agents.HANDLERS)
    headers_only = True
    include_copies = True
    in_place = True
    on_error = "stop"

    def initial_state(self) -> ExecutionState:
        """The state of a run without events."""
        return RunState()

    def key(self, event: Any) -> str | None:
        """The run whose journal holds the event, or the agent that it concerns."""
        if event.event_type in execution_agents.HANDLERS:
            return f"{AGENT}{envelope_of(event).payload['agent_id']}"
        found: str | None = event.run_id if isinstance(event, EventHeaders) else event.partition_key
        return found

    def apply(self, state: ExecutionState, event: Any) -> ExecutionState:
        """The row after one more event. Also takes envelopes, in order, from one run's journal."""
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
            execution_run.fold_life(state, envelope)
            if envelope.event_type in _RUN:
                _RUN[envelope.event_type](state, envelope, envelope.payload)
            execution_run.settle_status(state)
        return state


def envelope_of(event: EventHeaders | EventEnvelope) -> EventEnvelope:
    """The event's envelope, decoded if only its headers were given."""
    return event.envelope if isinstance(event, EventHeaders) else event
