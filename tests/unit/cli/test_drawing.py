"""The causal tree: delegation, retries, takeovers and open ends, from envelopes alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import click
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.cli.drawing import draw
from noesium_stream.cli.output import counts
from noesium_stream.client.views.causal_tree import RunTree, causal_tree
from noesium_stream.clock import VirtualClock, derived_id
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import (
    CapabilityCompleted,
    CapabilityInvoked,
    CapabilityUnresolved,
    CommandExpired,
    EffectCompleted,
    EffectFailed,
    EffectRequested,
    GraphRef,
    NodeCompleted,
    NodeEntered,
    NodeFailed,
    NodeRetried,
    ReplyTo,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRequested,
    RunStarted,
)

TRACE = TraceContext("ab" * 16, "cd" * 8)
GRAPH = GraphRef(graph_id="g", version="1.0.0", fingerprint="00")


class Weighed(DomainEvent, event_type="evidence.weighed"):
    thin: bool


class Journal:
    """Writes what a worker would have written, on a clock of its own."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = VirtualClock(seed=seed)
        self.events: list[EventEnvelope] = []
        self.instance = "worker-1"

    def put(
        self, agent: str, run_id: str, event: DomainEvent, cause: EventEnvelope | None = None
    ) -> EventEnvelope:
        producer = AgentRef(agent, agent, instance_id=self.instance)
        envelope = event.to_envelope(
            producer, TRACE, cause.event_id if cause else None, partition_key=run_id, clock=self.clock
        )
        self.events.append(envelope)
        return envelope

    def start(self, agent: str, run_id: str) -> None:
        started = RunStarted(run_id=run_id, agent_type=agent, agent_version="1.0.0", graph=GRAPH)
        self.put(agent, run_id, started)

    def enter(self, agent: str, run_id: str, node: str, step: int, attempt: int = 1) -> EventEnvelope:
        entered = NodeEntered(
            run_id=run_id, node=node, step=step, task_path=f"pull:{node}", attempt=attempt, deterministic=True
        )
        return self.put(agent, run_id, entered)

    def complete(
        self, agent: str, run_id: str, node: str, step: int, delta: Any = None, attempt: int = 1
    ) -> None:
        done = NodeCompleted(
            run_id=run_id,
            node=node,
            step=step,
            task_path=f"pull:{node}",
            attempt=attempt,
            delta=delta,
            duration_ms=12,
        )
        self.put(agent, run_id, done)

    def invoke(self, run_id: str, cause: EventEnvelope, number: int) -> tuple[str, EventEnvelope]:
        call = derived_id(run_id, str(number))
        invoked = CapabilityInvoked(
            run_id=call,
            capability_id="corpus.search",
            version="1.0.0",
            caller_agent_id="researcher",
            caller_run_id=run_id,
            target_agent_id="librarian",
            target_agent_type="librarian",
            registry_offset=0,
            input={"query": "q"},
            reply_to=ReplyTo(agent_type="researcher", run_id=run_id, call_id=call),
        )
        return call, self.put("researcher", call, invoked, cause)

    def answer(self, run_id: str, call: str, **outcome: Any) -> None:
        completed = CapabilityCompleted(
            run_id=call,
            call_id=call,
            caller_run_id=run_id,
            capability_id="corpus.search",
            provider_agent_id="librarian",
            **outcome,
        )
        self.put("librarian", run_id, completed)


def researched(seed: int = 0) -> tuple[str, Journal]:
    """A researcher's run that asked the librarian twice."""
    log = Journal(seed)
    run_id = log.clock.uuid7()
    log.put("cli", run_id, RunRequested(run_id=run_id, agent_type="researcher", input={"question": "Why?"}))
    log.start("researcher", run_id)
    log.enter("researcher", run_id, "plan", 1)
    log.complete("researcher", run_id, "plan", 1, {"queries": ["a", "b", "c"]})
    gather = log.enter("researcher", run_id, "gather", 2)
    calls = [log.invoke(run_id, gather, number) for number in range(2)]
    for call, invoked in calls:
        log.events.append(invoked)  # the provider's journal holds a copy
        log.start("librarian", call)
        log.enter("librarian", call, "search", 1)
        log.clock.advance(0.64)
        log.complete("librarian", call, "search", 1, {"passages": [1] * 12})
        log.put("librarian", call, RunCompleted(run_id=call, result={}, duration_ms=640))
        log.answer(run_id, call, output={"passages": [1] * 12})
    log.complete("researcher", run_id, "gather", 2)
    weigh = log.enter("researcher", run_id, "weigh", 3)
    log.put("researcher", run_id, Weighed(thin=False), weigh)
    log.complete("researcher", run_id, "weigh", 3)
    log.put("researcher", run_id, RunCompleted(run_id=run_id, result={"answer": "So."}, duration_ms=2310))
    return run_id, log


def lines(tree: RunTree) -> list[str]:
    return [click.unstyle(line) for line in draw(tree)]


def test_the_tree_shows_who_did_what_how_long_with_delegation_below_its_step() -> None:
    run_id, log = researched()
    tree = causal_tree(run_id, log.events)
    assert (tree.agent_type, tree.agent_version, tree.status, tree.duration_ms) == (
        "researcher",
        "1.0.0",
        "completed",
        2310,
    )
    assert [step.node for step in tree.steps] == ["plan", "gather", "weigh"]
    gather = tree.steps[1]
    assert [call.agent_type for call in gather.calls] == ["librarian", "librarian"]
    assert all(call.run is not None and call.run.steps[0].node == "search" for call in gather.calls)
    assert tree.steps[2].events == ["evidence.weighed"]
    drawn = lines(tree)
    assert drawn[0] == f'researcher 1.0.0  {run_id}  completed  2.31 s  "Why?"'
    assert drawn[1] == "├─ plan       12 ms  3 queries"
    assert drawn[3].startswith("│  ├─ ▸ corpus.search  librarian 1.0.0  ")
    assert drawn[3].endswith("640 ms  12 passages")
    assert drawn[4] == "│  │  └─ search     12 ms  12 passages"
    assert drawn[-1] == "└─ weigh      12 ms  evidence.weighed"


@given(st.integers(0, 2**32), st.integers(0, 5))
def test_the_tree_does_not_depend_on_how_runs_are_interleaved_or_on_copies(seed: int, copies: int) -> None:
    run_id, log = researched()
    chance = random.Random(seed)
    expected = causal_tree(run_id, log.events)
    events = [*log.events, *chance.sample(log.events, copies)]
    assert causal_tree(run_id, _interleaved(events, chance)) == expected


def _interleaved(events: Sequence[EventEnvelope], chance: random.Random) -> list[EventEnvelope]:
    """The events in another order between partition keys, in the same one within each."""
    queues: dict[str | None, list[EventEnvelope]] = {}
    for event in events:
        # Calls and answers belong to two runs: they stay in the order of the caller's.
        key = event.payload.get("caller_run_id") or event.partition_key
        queues.setdefault(key, []).append(event)
    mixed = []
    while queues:
        key = chance.choice(sorted(queues, key=str))
        mixed.append(queues[key].pop(0))
        if not queues[key]:
            del queues[key]
    return mixed


def test_a_step_that_failed_and_was_repeated_is_one_step_with_its_attempts() -> None:
    log = Journal()
    run_id = log.clock.uuid7()
    log.start("a", run_id)
    log.enter("a", run_id, "n", 1)
    failure = {"run_id": run_id, "node": "n", "step": 1, "task_path": "pull:n"}
    log.put("a", run_id, NodeFailed(**failure, attempt=1, error_type="E", message="no", duration_ms=3))
    assert causal_tree(run_id, log.events).steps[0].error == "E: no"
    log.put("a", run_id, NodeRetried(**failure, attempt=2, cause="E"))
    log.complete("a", run_id, "n", 1, attempt=2)
    (step,) = causal_tree(run_id, log.events).steps
    assert (step.attempt, step.status, step.error) == (2, "completed", None)


def test_a_run_that_another_process_went_on_with_says_from_whom_and_when() -> None:
    log = Journal()
    run_id = log.clock.uuid7()
    log.start("a", run_id)
    log.enter("a", run_id, "n", 1)
    log.instance = "worker-2"
    log.clock.advance(0.402)
    log.complete("a", run_id, "n", 1)
    tree = causal_tree(run_id, log.events)
    assert [(t.previous, t.instance, t.after_ms) for t in tree.takeovers] == [("worker-1", "worker-2", 402)]
    assert lines(tree)[0].endswith("taken over from worker-1 after 402 ms")


def test_an_answer_from_another_process_is_no_takeover() -> None:
    log = Journal()
    run_id = log.clock.uuid7()
    log.start("librarian", run_id)
    entered = log.enter("librarian", run_id, "n", 1)
    call, _ = log.invoke(run_id, entered, 0)
    log.instance = "worker-2"
    log.answer(run_id, call, output={})
    assert causal_tree(run_id, log.events).takeovers == []


def test_what_is_open_is_shown_as_open() -> None:
    log = Journal()
    run_id = log.clock.uuid7()
    log.put("cli", run_id, RunRequested(run_id=run_id, agent_type="researcher", input={}))
    assert causal_tree(run_id, log.events).status == "requested"
    log.start("researcher", run_id)
    entered = log.enter("researcher", run_id, "gather", 1)
    log.invoke(run_id, entered, 0)
    tree = causal_tree(run_id, log.events)
    assert tree.status == "waiting"
    drawn = lines(tree)
    [wait] = tree.waits_for
    assert drawn[1] == f"   waits for librarian to answer {wait.what}, run {wait.id}"
    assert drawn[2] == "└─ gather         …  open"
    assert "librarian" in drawn[3]
    assert drawn[3].endswith("not taken up yet")


def test_failures_of_calls_effects_and_runs_carry_their_reason() -> None:
    log = Journal()
    run_id = log.clock.uuid7()
    log.start("researcher", run_id)
    entered = log.enter("researcher", run_id, "n", 1)
    call, _ = log.invoke(run_id, entered, 0)
    log.answer(run_id, call, error="no documents", error_type="ConfigError")
    unresolved = CapabilityUnresolved(run_id=run_id, call_id="c", capability_id="pay.back")
    log.put("researcher", run_id, unresolved, entered)
    for number, name in enumerate(("fetch", "store")):
        requested = EffectRequested(
            run_id=run_id,
            effect_id=name,
            name=name,
            effect_class="pure",
            fingerprint="f",
            idempotency_key=name,
        )
        cause = log.put("researcher", run_id, requested, entered)
        if number:
            failed = EffectFailed(
                run_id=run_id, effect_id=name, error_type="OSError", message="full", duration_ms=1
            )
            log.put("researcher", run_id, failed, cause)
        else:
            log.put(
                "researcher", run_id, EffectCompleted(run_id=run_id, effect_id=name, duration_ms=5), cause
            )
    failure = {"run_id": run_id, "node": "n", "step": 1, "task_path": "pull:n", "where": "a.py:3 in f"}
    log.put(
        "researcher", run_id, NodeFailed(**failure, attempt=1, error_type="E", message="no", duration_ms=3)
    )
    failed_run = RunFailed(
        run_id=run_id, error_type="E", message="It broke.", duration_ms=9, where="b.py:4 in g"
    )
    log.put("researcher", run_id, failed_run)
    log.put("researcher", run_id, RunCancelled(run_id=run_id, requested_by="x", duration_ms=9))
    tree = causal_tree(run_id, log.events)
    assert (tree.status, tree.error) == ("failed", "It broke.")
    drawn = "\n".join(lines(tree))
    assert "failed: no documents" in drawn
    assert "failed: E: no  at a.py:3 in f" in drawn
    assert "   It broke.\n   at b.py:4 in g\n" in drawn
    assert "pay.back" in drawn
    assert "· fetch  5 ms" in drawn
    assert "· store  1 ms  failed: OSError: full" in drawn


def test_what_undoes_a_part_is_shown_where_that_is_and_what_undoes_the_run_after_its_steps() -> None:
    log = Journal()
    run_id = log.clock.uuid7()
    log.start("tour", run_id)

    def call(name: str, cause: EventEnvelope | None = None, undoes: str | None = None) -> None:
        named = {
            "run_id": run_id,
            "effect_id": name,
            "name": name,
            "fingerprint": name,
            "idempotency_key": name,
        }
        requested = EffectRequested(**named, effect_class="external", compensates=undoes)
        asked = log.put("tour", run_id, requested, cause)
        log.put("tour", run_id, EffectCompleted(run_id=run_id, effect_id=name, duration_ms=5), asked)

    call("reserve", log.enter("tour", run_id, "book", 1))
    log.complete("tour", run_id, "book", 1)
    log.enter("tour", run_id, "pay", 2)
    call("undo pay", undoes="2/pull:pay")
    call("undo reserve", undoes="reserve")
    call("undo unknown", undoes=f"{'9' * 99}/pull:pay")
    call("undo the run", undoes=run_id)
    tree = causal_tree(run_id, log.events)
    effects = {step.node: [effect.name for effect in step.effects] for step in tree.steps}
    assert effects == {"book": ["reserve", "undo reserve"], "pay": ["undo pay", "undo unknown"]}
    assert [effect.name for effect in tree.effects] == ["undo the run"]
    assert lines(tree)[-1] == "└─ · undo the run  5 ms"


def test_what_steps_do_at_the_same_time_is_told_apart_by_its_cause() -> None:
    log = Journal()
    run_id = log.clock.uuid7()
    log.start("researcher", run_id)
    left = log.enter("researcher", run_id, "left", 1)
    right = log.enter("researcher", run_id, "right", 1)
    log.put("researcher", run_id, Weighed(thin=True), left)
    log.invoke(run_id, left, 0)
    log.invoke(run_id, right, 1)
    log.invoke(run_id, left, 2)
    steps = {step.node: step for step in causal_tree(run_id, log.events).steps}
    assert (len(steps["left"].calls), len(steps["right"].calls)) == (2, 1)
    assert (steps["left"].events, steps["right"].events) == (["evidence.weighed"], [])


def test_an_expired_command_has_ended_without_having_started() -> None:
    log = Journal()
    run_id = log.clock.uuid7()
    log.put("a", run_id, CommandExpired(run_id=run_id, command_id="c", ttl_ms=5, age_ms=9))
    tree = causal_tree(run_id, log.events)
    assert (tree.status, tree.started_ms, tree.duration_ms) == ("expired", None, None)


def test_a_log_in_which_a_run_asks_itself_does_not_hang_its_reader() -> None:
    log = Journal()
    run_id = log.clock.uuid7()
    log.start("researcher", run_id)
    entered = log.enter("researcher", run_id, "n", 1)
    _, invoked = log.invoke(run_id, entered, 0)
    looping = invoked.replace(event_id=log.clock.uuid7(), payload={**invoked.payload, "run_id": run_id})
    tree = causal_tree(run_id, [*log.events, looping])
    assert [call.run for call in tree.steps[0].calls] == [None, None]


def test_a_run_that_nothing_is_known_of_is_an_empty_tree() -> None:
    assert causal_tree("nothing", []) == RunTree("nothing")


def test_lists_are_counted_in_words() -> None:
    assert counts({"queries": ["a"], "passages": [], "text": "x"}) == "1 query, 0 passages"
    assert counts({"passages": [1]}) == "1 passage"
    assert counts(None) == ""
