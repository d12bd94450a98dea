"""Progress of tools as a reader takes it: of this run's agent alone, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef, EventEnvelope
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.rules.stream_progress import MAX_MESSAGE, ProgressOrder
from noesium_stream.event.standard import ToolProgressed

AGENT = AgentRef("clerk-1", "clerk")


def told(agent: AgentRef = AGENT, **said: Any) -> EventEnvelope:
    fields: dict[str, Any] = {"run_id": "run", "node": "ask", "step": 1, "task_path": "pull:ask"}
    fields |= {"tool": "slow", "call_id": "call", "done": 1, "total": 9, "message": "part 1", **said}
    event = ToolProgressed(**fields)
    return root_event(event, agent, SystemClock())


def test_progress_of_the_run_is_taken_with_a_message_of_bounded_length() -> None:
    found = ProgressOrder("run", "clerk").take(told(message="x" * 2_000), 0)
    assert found is not None
    assert (found.tool, found.done, found.total, found.node) == ("slow", 1, 9, "ask")
    assert found.message == "x" * MAX_MESSAGE


@pytest.mark.parametrize(
    "event",
    [told(run_id="other"), told(AgentRef("clerk-1", "other")), told(AgentRef("clerk-2", "clerk"))],
)
def test_progress_of_others_is_dropped_and_counted(event: EventEnvelope) -> None:
    order = ProgressOrder("run", "clerk")
    order.agent_id = "clerk-1"
    assert order.take(event, 0) is None
    assert order.wrong().startswith("1 are")
