"""`ExecutionProjection` against what `noesium runs`, `show`, `approvals` and `effects` say of a log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.cli.commands.runs.show import collect
from noesium_stream.client import Client, Run
from noesium_stream.client.views.causal_tree import RunTree, causal_tree
from noesium_stream.client.views.waits import waits_of
from noesium_stream.clock import VirtualClock
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import (
    AgentRecovered,
    AgentStarted,
    AgentStopped,
    AgentUnavailable,
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalRequested,
    CompensationStarted,
    EffectCompleted,
    EffectFailed,
    EffectRequested,
    GraphRef,
    NodeCompleted,
    NodeEntered,
    NodeFailed,
    NodeRetried,
    RunMigrated,
    RunStarted,
    TimerFired,
    TimerStarted,
    ToolCompleted,
    ToolFailed,
)
from noesium_stream.projection.builtin.execution import ExecutionProjection
from noesium_stream.projection.builtin.execution_state import AgentState, RunState
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.state.codec import StateCodec
from tests.support.many_runs import many_runs

SHOWN = ("agent_type", "agent_version", "label", "requested_ms", "started_ms", "ended_ms", "error", "result")
KIN = ("parent_run_id", "root_run_id", "reason")


async def test_it_says_of_every_run_what_the_other_readers_of_the_log_say(tmp_path: Path) -> None:
    async with many_runs("memory://", tmp_path) as (log, client, runs):
        with ProjectionEngine(log, tmp_path / "state") as engine:
            engine.register("execution", ExecutionProjection())
            state: dict[str, Any] = await engine.get_state("execution")
        rows = {key: row for key, row in state.items() if isinstance(row, RunState)}
        infos = {info.run_id: info for info in await client.list_runs()}
        assert rows.keys() == infos.keys()
        for run_id, info in infos.items():
            row = rows[run_id]
            assert {name: getattr(row, name) for name in (*SHOWN, *KIN)} == {
                name: getattr(info, name) for name in (*SHOWN, *KIN)
            }
            kinds = {wait.kind for wait in info.waits_for}
            if row.status in ("running", "waiting"):  # nobody has its partition any more
                assert (info.status, kinds) == ("waiting", {*row.waits_for, "worker"})
            else:
                assert (info.status, kinds) == (row.status, set())
        for run_id, row in rows.items():
            found = Run(log, row.agent_type, run_id, client._producer, client._clock)
            assert_same_as_shown(row, causal_tree(run_id, *await collect(found)))
        await assert_same_questions(client, rows)
        await assert_same_effects(client, rows)
        assert_every_kind_is_there(rows, runs)
        agents = {row.agent_id: row for row in state.values() if isinstance(row, AgentState)}
        assert {name: (one.status, one.starts, one.stops) for name, one in agents.items()} == {
            "doer": ("stopped", 2, 2),
            "mover": ("stopped", 2, 2),
            "stayer": ("stopped", 2, 2),
            "traveller": ("stopped", 2, 2),
            "calculator": ("stopped", 1, 1),
            "asker": ("stopped", 1, 1),
            "echo": ("stopped", 1, 1),
        }


def assert_same_as_shown(row: RunState, tree: RunTree) -> None:
    steps = Counter(step.node for step in tree.steps)
    completed = Counter(step.node for step in tree.steps if step.status == "completed")
    assert {name: counts.entered for name, counts in row.nodes.items()} == steps
    assert {name: counts.completed for name, counts in row.nodes.items() if counts.completed} == completed
    took = {
        name: sum(step.duration_ms or 0 for step in tree.steps if step.node == name) for name in completed
    }
    assert {name: row.nodes[name].duration_ms for name in completed} == took
    assert row.retries == sum(step.attempt - 1 for step in tree.steps)
    # What is answered after the caller's end is in the provider's journal alone.
    late = {key for key, call in row.calls.items() if call.status == "asked" and row.ended_ms is not None}
    assert len(late) == (row.status == "cancelled" and row.parent_run_id is None)
    calls = {call.call_id: call for call in tree.calls}
    assert row.calls.keys() == calls.keys()
    for call_id, call in calls.items():
        found = row.calls[call_id]
        assert (found.capability_id, found.invoked_ms) == (call.capability_id, call.invoked_ms)
        if call_id not in late:
            assert (found.error, found.answered_ms) == (call.error, call.answered_ms)
    assert row.takeovers == len(tree.takeovers)
    assert row.moves == [f"{move.source} → {move.target}" for move in tree.moves]
    assert row.signals == len(tree.signals)
    if row.ended_ms is None:
        unfinished = {(step.step, step.task_path) for step in tree.steps if step.status != "completed"}
        open_tasks = {(task.step, task.task_path) for task in row.tasks.values()}
        assert open_tasks == (set() if row.status == "compensating" else unfinished)


async def assert_same_questions(client: Client, rows: dict[str, RunState]) -> None:
    asked = {(one.run_id, one.approval_id, one.question, one.asked_ms) for one in await client.approvals()}
    pending = {
        (row.run_id, approval_id, one.question, one.asked_ms)
        for row in rows.values()
        for approval_id, one in row.approvals.items()
    }
    assert pending == asked
    assert len(asked) == 3


async def assert_same_effects(client: Client, rows: dict[str, RunState]) -> None:
    waiting = {
        (one.run_id, one.effect_id, one.since_ms, one.reason) for one in await client.unresolved_effects()
    }
    undecided = {
        (row.run_id, effect_id, one.since_ms, one.reason)
        for row in rows.values()
        for effect_id, one in row.open_effects.items()
        if one.status == "undecided"
    }
    assert undecided == waiting
    assert len(waiting) == 2


def assert_every_kind_is_there(rows: dict[str, RunState], runs: dict[str, Run]) -> None:
    named = {name: rows[run.id] for name, run in runs.items()}
    kinds = {name: (row.status, row.waits_for) for name, row in named.items() if row.ended_ms is None}
    assert kinds == {
        "question": ("waiting", ["approval"]),
        "question to ann": ("waiting", ["approval"]),
        "signal": ("waiting", ["signal"]),
        "long sleep": ("waiting", ["timer"]),
        "effect of unknown outcome": ("waiting", ["effect"]),
        "child that sleeps": ("waiting", ["call"]),
        "parked": ("stranded", []),
        "undone": ("compensating", []),
    }
    assert Counter(row.status for row in named.values() if row.ended_ms is not None) == {
        "completed": 12,
        "failed": 6,
        "cancelled": 1,
        "expired": 1,
    }
    tools = named["tools"].tools["find"]
    assert (tools.begun, tools.completed, tools.failed, tools.duration_ms) == (2, 1, 1, 3)
    assert named["tools"].circuits["tool:find"].failures == 1
    assert named["short sleep"].timers_fired == 1
    circuits = {
        name: (row.effects["broken"].failed, row.circuits["effect:broken"].open)
        for name, row in named.items()
        if "broken" in row.effects
    }
    assert circuits == {"effect that is retried": (9, True), "effect that fails": (3, False)}


CLOCK = VirtualClock()


def events(*given: tuple[DomainEvent, str]) -> list[EventEnvelope]:
    """Events by the process of this name, a second apart."""
    found = []
    for event, instance in given:
        CLOCK.advance(1.0)
        trace = TraceContext("1" * 32, "2" * 16)
        ref = AgentRef("doer", "doer", "local", instance)
        found.append(event.to_envelope(ref, trace, partition_key="run", clock=CLOCK))
    return found


def agent(*given: tuple[DomainEvent, str]) -> AgentState:
    state = ExecutionProjection().fold(events(*given))
    assert isinstance(state, AgentState)
    return state


def started(instance: str) -> tuple[DomainEvent, str]:
    shared = {"agent_id": "doer", "agent_type": "doer", "agent_version": "1.0.0"}
    return AgentStarted(**shared, instance_id=instance), instance


def stopped(instance: str) -> tuple[DomainEvent, str]:
    return AgentStopped(agent_id="doer", agent_type="doer", instance_id=instance, reason="closed"), instance


def test_an_agent_runs_as_long_as_a_process_of_it_has_not_stopped() -> None:
    two = agent(started("a"), started("b"), stopped("a"))
    assert (two.status, list(two.live), two.starts, two.stops) == ("running", ["b"], 2, 1)
    none = agent(started("a"), started("b"), stopped("a"), stopped("b"))
    assert (none.status, none.reason, none.live) == ("stopped", "closed", {})
    missing = AgentUnavailable(agent_id="doer", agent_type="doer", reason="3 heartbeats missed"), "watcher"
    back = AgentRecovered(agent_id="doer", agent_type="doer"), "watcher"
    away = agent(started("a"), missing)
    assert (away.status, away.reason, away.outages) == ("unavailable", "3 heartbeats missed", 1)
    assert agent(started("a"), missing, back).status == "running"
    many = agent(*(started(f"killed {number}") for number in range(250)))
    assert (len(many.live), many.starts, next(iter(many.live))) == (100, 250, "killed 150")


def test_a_circuit_opens_with_failures_in_a_row_and_closes_with_a_success() -> None:
    call = {"call_id": "c", "tool_id": "t", "tool_name": "find"}
    failed = ToolFailed(**call, error_type="KeyError", error="no", duration_ms=1), "a"
    done = ToolCompleted(**call, duration_ms=1), "a"
    for given, expected in (
        ([failed] * 4, {"tool:find": (4, False)}),
        ([failed] * 5, {"tool:find": (5, True)}),
        ([failed] * 5 + [done], {}),
        ([failed] * 4 + [done, failed], {"tool:find": (1, False)}),
    ):
        run = ExecutionProjection().fold(events(*given))
        assert isinstance(run, RunState)
        assert {name: (one.failures, one.open) for name, one in run.circuits.items()} == expected


def entered(node: str, step: int, task_path: str) -> tuple[DomainEvent, str]:
    shared = {"run_id": "run", "attempt": 1, "deterministic": True}
    return NodeEntered(node=node, step=step, task_path=task_path, **shared), "a"


def run_of(*given: tuple[DomainEvent, str]) -> RunState:
    """A run that has started, and what these events, each caused by the last node entered, make of it."""
    graph = GraphRef(graph_id="doer", version="1.0.0", fingerprint="0")
    begun = RunStarted(run_id="run", agent_type="doer", agent_version="1.0.0", graph=graph), "a"
    made, cause = [], None
    for event in events(begun, *given):
        made.append(event if cause is None else event.replace(causation_id=cause))
        cause = event.event_id if event.event_type == "kernel.node.entered" else cause
    run = ExecutionProjection().fold(made)
    assert isinstance(run, RunState)
    return run


def test_a_run_waits_where_all_of_its_tasks_do_also_those_of_a_graph_within_a_node() -> None:
    outer, inner = entered("outer", 1, "pull:outer"), entered("inner", 1, "1:pull:outer|0|pull:inner")
    other = entered("other", 1, "pull:other")
    sleeps = TimerStarted(run_id="run", timer_id="t", node="inner", due_ms=1), "a"
    wakes = TimerFired(run_id="run", timer_id="t", due_ms=1), "a"
    assert run_of(outer, inner).status == "running"
    asleep = run_of(outer, inner, sleeps)
    assert (asleep.status, asleep.waits_for) == ("waiting", ["timer"])
    assert run_of(outer, other, inner, sleeps).status == "running"
    awake = run_of(outer, inner, sleeps, wakes)
    assert (awake.status, awake.waits_for, awake.timers_fired) == ("running", [], 1)


def test_an_attempt_counts_once_also_where_a_process_that_took_over_says_it_again() -> None:
    task = {"run_id": "run", "node": "act", "step": 1, "task_path": "pull:act"}
    failed = NodeFailed(**task, attempt=1, error_type="E", message="no", duration_ms=1, retry_in_ms=500), "a"
    pauses = run_of(entered("act", 1, "pull:act"), failed)
    assert (pauses.status, pauses.waits_for) == ("waiting", ["retry"])
    [paused] = pauses.tasks.values()
    assert paused.due_ms == CLOCK.now_ms() + 500
    again = [(NodeRetried(**task, attempt=2, cause="E"), instance) for instance in ("a", "b")]
    run = run_of(entered("act", 1, "pull:act"), failed, *again)
    assert (run.status, run.retries, run.nodes["act"].retried, run.takeovers) == ("running", 1, 1, 1)


def answer(by: str, approved: bool = True) -> tuple[DomainEvent, str]:
    shared = {"run_id": "run", "approval_id": "q", "fingerprint": "f"}
    return ApprovalAnswered(**shared, approved=approved, answered_by=by), "a"


def test_a_question_to_several_people_is_open_until_enough_of_them_have_decided() -> None:
    asks = ApprovalRequested(
        run_id="run", approval_id="q", node="ask", question="?", fingerprint="f", minimum=2
    )
    asked = entered("ask", 1, "pull:ask"), (asks, "a")
    for answers in ([answer("ann")], [answer("ann"), answer("ann")]):
        run = run_of(*asked, *answers)
        assert (run.status, run.waits_for) == ("waiting", ["approval"])
        assert (run.approvals["q"].minimum, run.approvals["q"].approved_by) == (2, ["ann"])
    expired = ApprovalExpired(run_id="run", approval_id="q", deadline_ms=1), "a"
    for answers in (
        [answer("ann"), answer("bob")],
        [answer("bob", approved=False)],
        [answer("ann"), answer("bob", approved=False)],
        [answer("ann"), expired],
    ):
        run = run_of(*asked, *answers)
        assert (run.status, run.approvals) == ("running", {})


def attempt(number: int, base: str = "f", fails: bool = True) -> list[tuple[DomainEvent, str]]:
    """An attempt of the effect `base`, which fails and is tried again, or has not ended."""
    call = {"run_id": "run", "effect_id": f"{base}{number}"}
    requested = EffectRequested(
        **call,
        name="ask model",
        effect_class="idempotent",
        fingerprint=base,
        idempotency_key=f"{base}{number}",
    )
    failed = EffectFailed(**call, error_type="E", message="busy", duration_ms=1, retry_in_ms=500)
    return [(requested, "a"), (failed, "a")] if fails else [(requested, "a")]


ACT = entered("act", 1, "pull:act")


def test_an_effect_that_is_tried_again_waits_for_its_next_attempt_and_for_no_person() -> None:
    run = run_of(ACT, *attempt(0))
    assert (run.status, run.waits_for) == ("waiting", ["retry"])


def test_an_effect_waits_no_longer_once_its_next_attempt_is_requested() -> None:
    run = run_of(ACT, *attempt(0), *attempt(1, fails=False))
    assert (run.status, run.waits_for, list(run.open_effects)) == ("running", [], ["f1"])
    again = run_of(ACT, *attempt(0), *attempt(1))
    assert (again.waits_for, list(again.open_effects), waits_of(again)[0].until_ms) == (
        ["retry"],
        ["f1"],
        CLOCK.now_ms() + 500,
    )
    done = EffectCompleted(run_id="run", effect_id="f1", duration_ms=1), "a"
    ended = run_of(ACT, *attempt(0), *attempt(1, fails=False), done)
    assert (ended.status, ended.open_effects, waits_of(ended)) == ("running", {}, ())


def test_a_wait_ends_the_same_where_the_row_was_stored_meanwhile() -> None:
    projection, codec = ExecutionProjection(), StateCodec(ExecutionProjection())
    row = codec.decode(codec.encode(run_of(ACT, *attempt(0))))
    [(requested, _)] = attempt(1, fails=False)
    [event] = events((requested, "a"))
    after = projection.apply(row, event)
    assert isinstance(after, RunState)
    assert (after.status, list(after.open_effects)) == ("running", ["f1"])


def test_a_next_attempt_ends_the_wait_of_its_own_call_alone() -> None:
    run = run_of(ACT, *attempt(0), *attempt(0, "g"), *attempt(1, "g", fails=False))
    assert {key: one.status for key, one in run.open_effects.items()} == {"f0": "retrying", "g1": "running"}


OUTER = {
    "run_id": "run",
    "node": "outer",
    "step": 1,
    "task_path": "pull:outer",
    "attempt": 1,
    "duration_ms": 1,
}


@pytest.mark.parametrize(
    "end",
    [
        NodeCompleted(**OUTER),
        NodeFailed(**OUTER, error_type="E", message="no"),
        NodeFailed(**OUTER, error_type="E", message="no", retry_in_ms=500),
    ],
    ids=["completed", "failed", "retried"],
)
def test_an_effect_waits_no_longer_once_its_node_has_ended(end: DomainEvent) -> None:
    outer, inner = entered("outer", 1, "pull:outer"), entered("inner", 1, "1:pull:outer|0|pull:inner")
    other = entered("other", 1, "pull:outermost")
    waits = [outer, *attempt(0, "o"), inner, *attempt(0, "i"), other, *attempt(0, "f")]
    assert list(run_of(*waits).open_effects) == ["o0", "i0", "f0"]
    assert list(run_of(*waits, (end, "a")).open_effects) == ["f0"]


def test_a_run_that_is_undone_or_moved_past_a_node_has_no_effect_to_try_again() -> None:
    undone = CompensationStarted(run_id="run", cause="failed", error_type="E", message="no"), "a"
    assert run_of(ACT, *attempt(0), undone).open_effects == {}
    old, new = (GraphRef(graph_id="doer", version=version, fingerprint="0") for version in ("1.0.0", "2.0.0"))
    moved = RunMigrated(
        run_id="run", agent_version="2.0.0", from_graph=old, to_graph=new, step=1, state={}, next=["other"]
    )
    run = run_of(ACT, *attempt(0), (moved, "a"))
    assert (run.tasks, run.open_effects) == ({}, {})
