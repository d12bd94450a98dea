"""The time within each layer, from a profile."""

from __future__ import annotations

import cProfile

from noesium_stream.clock import SystemClock
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import RunCompleted
from tests.bench.worker_profile import by_layer


def test_time_counts_for_the_layer_that_spends_it_and_not_for_its_callers() -> None:
    clock, agent, trace = SystemClock(), AgentRef("a", "a", "1"), TraceContext("1" * 32, "2" * 16)
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    for _ in range(100):
        RunCompleted(run_id="r", result=1, duration_ms=1).to_envelope(agent, trace, None, "r", clock=clock)
    profile.disable()
    found = by_layer(profile)
    assert found["event"] > 0 < found["clock"]
    assert not found.keys() - {"event", "clock", "other"}, found.keys()
