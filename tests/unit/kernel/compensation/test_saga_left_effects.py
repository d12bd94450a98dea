"""What a run leaves behind under way when it ends without a result is said before it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.capabilities.version import in_range
from noesium_stream.clock import SystemClock
from noesium_stream.errors import RunCancelledError, RunEndedError, RunFailedError
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import (
    EffectOutcomeUnknown,
    EffectReported,
    EffectRequested,
    SideEffectClass,
)
from noesium_stream.kernel import RunHistory, current_step
from noesium_stream.kernel.compensation.saga import UNDER_WAY, left_under_way
from noesium_stream.kernel.recording.recorded_run import recorded_run
from noesium_stream.kernel.verify.verifier import ReplayTarget, verify_run
from noesium_stream.testing import Rehearsal
from tests.support.effects import journal_of, reached
from tests.support.reading import PATIENCE_S
from tests.support.replays import REF

HANGING = {"external", "idempotent"}
"""Effects of which it is not known whether they were done; a pure one does nothing outside."""


async def hang() -> None:
    await asyncio.Event().wait()


async def fine() -> int:
    return 7


async def node(state: dict[str, Any]) -> None:
    step = current_step()

    async def end() -> None:
        await step.effect("fine", fine)
        if state["fail"]:
            raise LookupError("told to fail")
        await hang()

    await asyncio.gather(
        *(step.effect(kind.value, hang, effect_class=kind) for kind in SideEffectClass), end()
    )


def graph() -> StateGraph[Any, Any, Any, Any]:
    built = StateGraph(dict)
    built.add_node("node", node)
    built.add_edge(START, "node")
    built.add_edge("node", END)
    return built


@pytest.mark.parametrize("fail", [True, False], ids=["failed", "cancelled"])
async def test_effects_under_way_are_of_unknown_outcome_before_the_run_ends(fail: bool) -> None:
    async with Rehearsal(agent_from_graph(graph(), "leaver")) as rehearsal:
        run = await rehearsal.start({"fail": fail})
        if not fail:
            await reached(run, "effect.completed")
            await run.cancel()
        with pytest.raises((RunFailedError, RunCancelledError)):
            await run.result()
        events, numbers = await journal_of(run)
        assert await run.unresolved_effects() == []
        assert await rehearsal.client.unresolved_effects() == [], "nobody is asked any more"
        left = await run.abandoned_effects()
        with pytest.raises(RunEndedError):
            await run.resolve_effect(left[0].effect_id, "retry")
    assert numbers == list(range(len(numbers)))
    assert events[-1].event_type == ("run.failed" if fail else "run.cancelled")
    names = {e.payload["effect_id"]: e.payload["name"] for e in events if e.event_type == "effect.requested"}
    unknown = [event for event in events if event.event_type == "effect.outcome.unknown"]
    assert {names[event.payload["effect_id"]] for event in unknown} == HANGING
    assert len(unknown) == 2
    assert events[-3:-1] == unknown, "in the last commit"
    assert {(one.name, one.reason, one.ended) for one in left} == {
        (name, UNDER_WAY, True) for name in HANGING
    }


async def test_a_run_that_left_effects_behind_replays_as_it_was() -> None:
    async with Rehearsal(agent_from_graph(graph(), "leaver")) as rehearsal:
        run = await rehearsal.start({"fail": True})
        with pytest.raises(RunFailedError):
            await run.result()
        recording = recorded_run([record async for record in run.records(follow=False)])
    verdict = await verify_run(ReplayTarget(graph().compile(), REF), recording, in_range)
    assert verdict.difference is None, str(verdict.difference)


async def test_a_death_before_the_last_commit_says_it_once() -> None:
    async with Rehearsal(agent_from_graph(graph(), "leaver")) as rehearsal:
        rehearsal.crash_before("run.failed")
        started = await rehearsal.start({"fail": True})
        run = await rehearsal.client.get_run(started.id)
        with pytest.raises(RunFailedError):
            await run.result(timeout=PATIENCE_S)
        await rehearsal.wait_for_crash()
        left = await run.abandoned_effects()
        events, _ = await journal_of(run)
    assert {one.name for one in left} == HANGING
    assert [event.event_type for event in events].count("effect.outcome.unknown") == 2


def test_what_the_process_that_called_has_reported_is_the_outcome_when_the_run_ends() -> None:
    """Whether it had been called unknown before, or the run has not got to it yet."""
    history, clock = RunHistory(), SystemClock()

    def happened(event: DomainEvent) -> EventEnvelope:
        trace = TraceContext(clock.token(16), clock.token(8))
        envelope = event.to_envelope(AgentRef("me", "me"), trace, partition_key="run", clock=clock)
        history.apply(envelope)
        return envelope

    about = {"name": "pay", "effect_class": "external", "fingerprint": "f", "idempotency_key": "k"}
    intents = [
        happened(EffectRequested(run_id="run", effect_id=id, **about)) for id in ("done", "refused", "lost")
    ]
    happened(EffectOutcomeUnknown(run_id="run", effect_id="refused", reason="its process is gone"))
    said = {"run_id": "run", "duration_ms": 5}
    done = happened(
        EffectReported(
            effect_id="done", intent_id=intents[0].event_id, outcome="completed", result="receipt", **said
        )
    )
    refused = happened(
        EffectReported(
            effect_id="refused",
            intent_id=intents[1].event_id,
            outcome="failed",
            error_type="OSError",
            message="no",
            **said,
        )
    )
    left = [(event.event_type(), event.payload(), cause) for event, cause in left_under_way(history, "run")]
    assert [(kind, payload["effect_id"], cause) for kind, payload, cause in left] == [
        ("effect.completed", "done", done.event_id),
        ("effect.failed", "refused", refused.event_id),
        ("effect.outcome.unknown", "lost", intents[2].event_id),
    ]
    assert left[0][1]["result"] == "receipt"
