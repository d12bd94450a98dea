"""An event that starts a trace."""

from __future__ import annotations

from noesium_stream.clock import VirtualClock
from noesium_stream.event import AgentRef
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.standard import CapabilityDeprecated

PRODUCER = AgentRef("a", "worker-a")


def test_each_root_event_starts_a_trace_of_its_own_and_keeps_what_it_is_told() -> None:
    clock = VirtualClock()
    event = CapabilityDeprecated(agent_id="a", capability_id="corpus.search", version="1.0.0", reason="old")
    first = root_event(
        event, PRODUCER, clock, partition_key="k", idempotency_key="once", metadata={"to": "b"}
    )
    second = root_event(event, PRODUCER, clock)
    assert first.trace.trace_id != second.trace.trace_id
    assert (first.trace.parent_span_id, first.trace.depth, first.causation_id) == (None, 0, None)
    assert (first.partition_key, first.idempotency_key, first.metadata["to"]) == ("k", "once", "b")
    assert (first.payload["reason"], first.timestamp_ms) == ("old", clock.now_ms())
