"""What models have cost: a fold over the events of a tree of runs."""

from __future__ import annotations

from typing import Any

from noesium_stream.client.views.costs import CostFold, total
from noesium_stream.clock import VirtualClock
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import (
    GraphRef,
    ModelCompleted,
    ModelDenied,
    ModelFailed,
    ModelInvoked,
    ReplyTo,
    RunStarted,
)

CLOCK = VirtualClock()
WHO = AgentRef("a", "a")


def event(made: Any) -> EventEnvelope:
    trace = TraceContext("1" * 32, "2" * 16)
    envelope: EventEnvelope = made.to_envelope(WHO, trace, None, clock=CLOCK)
    return envelope


def started(run_id: str, agent_type: str, parent: str | None = None) -> EventEnvelope:
    reply_to = None if parent is None else ReplyTo(agent_type="a", run_id=parent, call_id=run_id)
    graph = GraphRef(graph_id="g", version="1.0.0", fingerprint="f")
    return event(
        RunStarted(
            run_id=run_id, agent_type=agent_type, agent_version="1.0.0", graph=graph, reply_to=reply_to
        )
    )


def answered(run_id: str, model: str, cost: int | None, call: str) -> list[EventEnvelope]:
    done = ModelCompleted(
        call_id=call,
        run_id=run_id,
        model=model,
        input_tokens=10,
        output_tokens=5,
        estimated=cost is None,
        cost_nano_usd=cost,
        duration_ms=1,
    )
    return [event(ModelInvoked(call_id=call, run_id=run_id, model=model)), event(done)]


def test_costs_by_agent_run_model_and_branch() -> None:
    fold = CostFold()
    failed = ModelFailed(
        call_id="4", run_id="r1", model="m", error_type="E", error="e", charged=False, duration_ms=1
    )
    events = [
        started("r1", "boss"),
        started("r2", "clerk", "r1"),
        started("r3", "clerk"),
        *answered("r1", "m:dear", 900, "1"),
        *answered("r2", "m:cheap", 100, "2"),
        *answered("r3", "m:own", None, "3"),
        event(ModelInvoked(call_id="4", run_id="r1", model="m:dear")),
        event(failed),
        event(ModelDenied(call_id="5", run_id="r2", model="m:dear", kind="budget", reason="no room")),
    ]
    for one in [*events, *events]:  # copies change nothing
        fold.apply(one)
    by_agent = {row.name: row for row in fold.costs("agent")}
    assert (by_agent["boss"].calls, by_agent["boss"].failed, by_agent["boss"].nano_usd) == (2, 1, 900)
    assert (by_agent["clerk"].nano_usd, by_agent["clerk"].unpriced, by_agent["clerk"].denied) == (100, 1, 1)
    assert [row.name for row in fold.costs("branch")] == ["boss", "boss › clerk", "clerk"]
    assert {row.name for row in fold.costs("run", "r1")} == {"r1", "r2"}
    assert total(fold.costs("model", "r1")).nano_usd == 1_000
    assert total(fold.costs("run")).unpriced == 1


def test_an_answer_from_a_cache_is_no_call_and_costs_nothing() -> None:
    fold = CostFold()
    again = ModelCompleted(
        call_id="2",
        run_id="r1",
        model="m",
        input_tokens=0,
        output_tokens=0,
        estimated=False,
        cost_nano_usd=0,
        duration_ms=0,
        repeats="1",
    )
    asked = event(ModelInvoked(call_id="2", run_id="r1", model="m"))
    for one in [started("r1", "boss"), *answered("r1", "m", 100, "1"), asked, event(again)]:
        fold.apply(one)
    [row] = fold.costs("model")
    assert (row.calls, row.cached, row.nano_usd, row.input_tokens) == (1, 1, 100, 10)
