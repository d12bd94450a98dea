"""Cognitive state of agents: conversation, tools, plan, reasoning, memory (RFC-0004 §4.3.2, RFC-1001 §8.3).

Events by aspect:
- Conversation: the commands of a run (`run.requested`, …), `run.signalled`, `approval.*`, the end of the run.
- Tool use: `tool.*`, `effect.*` and `capability.*`.
- Plan as it evolved: `kernel.checkpoint.created`, `run.migrated` and `task.*`.
- Reasoning trace: effects named `model:…`, which a `JournaledLLM` writes.
- Durable memory: `memory.written`.

Payloads whose meaning the package does not know are not interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from noesium_stream.errors import ProjectionError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.sealing.seal import is_erased
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.builtin import cognitive_run
from noesium_stream.projection.builtin.cognitive_state import CognitiveState, MemoryItem, RunMind
from noesium_stream.projection.builtin.execution import envelope_of
from noesium_stream.projection.event_headers import EventHeaders

MEMORY: Final = "memory/"
"""Key prefix of memory rows: `memory/AGENT/KEY`."""
_WRITTEN: Final = "memory.written"

_RUN: Final[Mapping[str, Callable[[RunMind, EventEnvelope, dict[str, Any]], None]]] = cognitive_run.HANDLERS


class CognitiveProjection(BaseProjection[CognitiveState]):
    """A row per run (by its id) and per memory (`memory/AGENT/KEY`); see `cognitive_state`.

    Several runs, in several partitions, may write the same memory. The write with the latest event time wins;
    at equal times the one with the greater event id.
    """

    name = "cognitive"
    takes_erased = True
    topics = ("agent.*.journal*", "events.memory")
    event_types = (*_RUN, _WRITTEN)
    headers_only = True
    include_copies = True
    in_place = True

    def initial_state(self) -> CognitiveState:
        """The state of a run without events."""
        return RunMind()

    def key(self, event: Any) -> str | None:
        """The run whose journal holds the event, or the memory row that it writes."""
        if event.event_type == _WRITTEN:
            envelope = envelope_of(event)
            if is_erased(envelope):
                return None
            return memory_key(envelope.producer.agent_id, envelope.payload["key"])
        found: str | None = event.run_id if isinstance(event, EventHeaders) else event.partition_key
        return found

    def apply(self, state: CognitiveState, event: Any) -> CognitiveState:
        """The row after one more event. Also takes envelopes, in order, from one run's journal."""
        envelope = envelope_of(event)
        if envelope.event_type == _WRITTEN:
            run_id = event.run_id if isinstance(event, EventHeaders) else event.partition_key
            return _written(state, envelope, run_id)
        assert isinstance(state, RunMind)
        if not state.run_id:
            state.run_id = self.key(event) or ""
        if not state.ended:  # the first terminal record wins (law 3)
            _RUN[envelope.event_type](state, envelope, envelope.payload)
        return state

    def merge(self, a: CognitiveState, b: CognitiveState) -> CognitiveState:
        """One memory from the writes of two partitions.

        Raises:
            ProjectionError: the row is a run; a run has its journal in one partition.
        """
        if not (isinstance(a, MemoryItem) and isinstance(b, MemoryItem)):
            raise ProjectionError("A run has parts in several partitions: its journal was copied.")
        last = max(a, b, key=_when)
        return replace(last, writes=a.writes + b.writes)


def memory_key(agent_id: str, key: str) -> str:
    """The row key of an agent's memory."""
    return f"{MEMORY}{agent_id}/{key}"


def _written(state: CognitiveState, event: EventEnvelope, run_id: str | None) -> MemoryItem:
    payload = event.payload
    item = MemoryItem(
        agent_id=event.producer.agent_id,
        key=payload["key"],
        value=payload.get("value"),
        value_type=payload["value_type"],
        metadata=payload.get("metadata") or {},
        written_ms=event.timestamp_ms,
        event_id=event.event_id,
        run_id=run_id,
        writes=1,
    )
    if isinstance(state, MemoryItem):
        # The rule of `merge`: the result must not depend on how the writes are spread over partitions.
        return replace(max(state, item, key=_when), writes=state.writes + 1)
    return item


def _when(item: MemoryItem) -> tuple[int, str]:
    return item.written_ms, item.event_id
