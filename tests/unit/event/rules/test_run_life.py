"""The life of a run is folded once, whatever state holds it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from noesium_stream.client.views.causal_tree import RunTree
from noesium_stream.client.views.runs import RunInfo
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.rules.run_life import ENDINGS, RunLife, evolve, executor_of
from noesium_stream.kernel import RunHistory
from noesium_stream.projection.builtin.execution_state import RunState

STARTED = {"agent_type": "a", "agent_version": "1.0.0"}
STATES = (RunInfo("r", "a", "requested", "", 0), RunTree("r"), RunState(run_id="r"), RunHistory(run_id="r"))


def event(event_type: str, number: int, run_id: str = "r", **payload: Any) -> EventEnvelope:
    return EventEnvelope(
        event_id=f"00000000-0000-7000-8000-{number:012d}",
        event_type=event_type,
        event_version="1.0.0",
        timestamp_ms=number,
        producer=AgentRef("a-1", "a", instance_id=f"worker-{number}"),
        trace=TraceContext("ab" * 16, "cd" * 8),
        payload={"run_id": run_id, **payload},
    )


@pytest.mark.parametrize("life", STATES, ids=lambda life: type(life).__name__)
def test_every_state_of_a_run_has_the_same_life(life: RunLife) -> None:
    life, found = deepcopy(life), []
    for number, (event_type, payload) in enumerate(
        [
            ("run.started", STARTED),
            ("run.parked", {"reason": "no version"}),
            ("run.migrated", {"agent_version": "2.0.0"}),
            ("run.parked", {"reason": "none again"}),
            ("run.resumed", {}),
            ("run.compensation.started", {"message": "it broke"}),
            ("run.failed", {"message": "broken", "result": 1}),
            ("run.completed", {"result": 2}),
            ("run.resumed", {}),
        ],
        start=1,
    ):
        counts = evolve(life, event(event_type, number, **payload))
        found.append((counts, life.status, life.reason, life.error, life.agent_version))
    assert found == [
        (True, "running", None, None, "1.0.0"),
        (True, "stranded", "no version", None, "1.0.0"),
        (True, "running", None, None, "2.0.0"),
        (True, "stranded", "none again", None, "2.0.0"),
        (True, "running", None, None, "2.0.0"),
        (True, "compensating", None, "it broke", "2.0.0"),
        (True, "failed", None, "broken", "2.0.0"),
        (False, "failed", None, "broken", "2.0.0"),
        (False, "failed", None, "broken", "2.0.0"),
    ]
    assert (life.started_ms, life.ended_ms, life.result) == (1, 7, 1)


@pytest.mark.parametrize("ending", ENDINGS)
def test_only_the_first_end_of_the_own_run_counts(ending: str) -> None:
    run = RunState(run_id="r")
    assert not evolve(run, event(ending, 1, "another"))
    assert evolve(run, event(ending, 2))
    assert not evolve(run, event("run.completed", 3))
    assert (run.status, run.ended_ms) == (ENDINGS[ending], 2)


def test_a_call_by_a_run_is_not_its_command_and_a_late_command_counts_once() -> None:
    run = RunState(run_id="r")
    evolve(run, event("run.started", 1, **STARTED))
    assert not evolve(run, event("capability.invoked", 2, "child", reply_to={"run_id": "r"}))
    evolve(run, event("run.completed", 3))
    assert evolve(run, event("run.requested", 4, agent_type="a"))
    assert not evolve(run, event("run.requested", 5, agent_type="a"))
    assert (run.requested_ms, run.status) == (4, "completed")


def test_a_state_without_an_id_gets_that_of_the_first_start() -> None:
    history = RunHistory()
    assert evolve(history, event("run.started", 1, "own", **STARTED))
    assert not evolve(history, event("run.parked", 2, "parent", reason="no version"))
    assert (history.run_id, history.stranded) == ("own", None)


def test_an_answer_or_a_stranding_does_not_show_who_executes_a_run() -> None:
    run = RunState(run_id="r")
    started = event("run.started", 1, **STARTED)
    assert executor_of(run, started) is None
    evolve(run, started)
    assert executor_of(run, started) == "worker-1"
    assert executor_of(run, event("kernel.node.entered", 2)) == "worker-2"
    assert executor_of(run, event("run.parked", 3, reason="no version")) is None
    assert executor_of(run, event("capability.completed", 4)) is None
