"""How often and how long what undoes is tried, and what an agent does last for a run without a result."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Run
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import KernelError, RunFailedError, StrictModeError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import Retries, current_step, kernel_compensation
from noesium_stream.testing import Rehearsal
from tests.support import unbooking
from tests.support.effects import journal_of, reached
from tests.support.reading import PATIENCE_S


async def fails(run: Run) -> list[EventEnvelope]:
    """Wait for the run's end; its journal."""
    with pytest.raises(RunFailedError, match="no trains today"):
        await run.result(timeout=PATIENCE_S)
    return (await journal_of(run))[0]


def undone(events: list[EventEnvelope]) -> list[tuple[str, str]]:
    return [(one["name"], one["outcome"]) for one in events[-1].payload["compensated"]]


UNDONE: list[tuple[str, str]] = []
"""What functions that undo were called with: their name and the idempotency key."""
LEFT = {"patient": 0}
"""How often they still fail."""


@kernel_compensation(
    retries=Retries(
        max_attempts=3,
        initial_interval=timedelta(hours=1),
        backoff_factor=2,
        jitter=0.5,
        max_interval=timedelta(days=1),
    )
)
async def patient(result: Any, what: str, *, idempotency_key: str) -> None:
    UNDONE.append(("patient", idempotency_key))
    if LEFT["patient"]:
        LEFT["patient"] -= 1
        raise ConnectionError("not now")


@kernel_compensation(timeout=timedelta(milliseconds=10))
async def slow(result: Any, what: str) -> None:
    UNDONE.append(("slow", ""))
    if len(UNDONE) == 1:
        await asyncio.Event().wait()


def told(failure: dict[str, Any]) -> None:
    UNDONE.append(("told", f"{failure['input']} {failure['cause']}: {failure['message']}"))


def one_act(undo: Any, effect_class: SideEffectClass = SideEffectClass.EXTERNAL, **options: Any) -> Any:
    async def node(state: dict[str, Any]) -> None:
        if undo is not None:
            await current_step().effect(
                "act", unbooking.act, "act", effect_class=effect_class, compensate=undo
            )
        raise LookupError("no trains today")

    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return agent_from_graph(graph, "single", **options)


@pytest.fixture(autouse=True)
def functions() -> None:
    unbooking.new_world()
    UNDONE.clear()
    LEFT.update(patient=0)


async def test_a_compensation_is_tried_again_after_journaled_pauses_and_then_waits_for_a_person() -> None:
    LEFT.update(patient=4)
    async with Rehearsal(one_act(patient)) as rehearsal:
        run = await rehearsal.start({})
        waiting = await reached(run, "effect.failed", awaits_decision=True)
        assert len(UNDONE) == 3
        await run.resolve_effect(waiting.payload["effect_id"], "retry")
        events = await fails(run)
    failures = [event for event in events if event.event_type == "effect.failed"]
    pauses = [event.payload.get("retry_in_ms") for event in failures]
    first, second, third, fourth = pauses
    assert 0.5 * 3_600_000 <= first <= 1.5 * 3_600_000
    assert 0.5 * 7_200_000 <= second <= 1.5 * 7_200_000
    assert third is None
    assert fourth is not None, "a person's word begins the tries anew"
    assert [event.payload["awaits_decision"] for event in failures] == [False, False, True, False]
    requested = [e for e in events if e.event_type == "effect.requested" and e.payload["compensates"]]
    waited = [
        after.timestamp_ms - failed.timestamp_ms
        for failed, after in zip(failures, requested[1:], strict=True)
    ]
    assert waited[0] >= first
    assert waited[1] >= second
    assert len({key for _, key in UNDONE}) == 5, "each recorded failure changes the key"
    assert undone(events) == [("act", "completed")]


@pytest.mark.parametrize("reaches_log", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("event_type", ["effect.failed", "effect.requested", "effect.completed"])
async def test_a_death_between_the_tries_of_a_compensation_changes_neither_keys_nor_pauses(
    event_type: str, reaches_log: bool
) -> None:
    LEFT.update(patient=1)
    compensating = {"effect.failed": 1, "effect.requested": 3, "effect.completed": 2}
    async with Rehearsal(one_act(patient, SideEffectClass.IDEMPOTENT)) as rehearsal:
        crash = rehearsal.crash_after if reaches_log else rehearsal.crash_before
        crash(event_type, compensating[event_type])
        started = await rehearsal.start({})
        run = await rehearsal.client.get_run(started.id)
        events = await fails(run)
        await rehearsal.wait_for_crash()
    assert undone(events) == [("act", "completed")]
    failures = [event for event in events if event.event_type == "effect.failed"]
    keys = list(dict.fromkeys(key for _, key in UNDONE))
    recorded = [
        event.payload["idempotency_key"]
        for event in events
        if event.event_type == "effect.requested" and event.payload["compensates"]
    ]
    assert keys == recorded, "a crash does not change the key"
    # A failure that was lost with its process happened to nobody: the same key, and done.
    lost = event_type == "effect.failed" and not reaches_log
    assert len(failures) == (0 if lost else 1)
    assert len(keys) == 1 + len(failures)


@pytest.mark.parametrize("effect_class", [SideEffectClass.EXTERNAL, SideEffectClass.IDEMPOTENT])
async def test_a_compensation_that_takes_too_long_waits_for_a_person(effect_class: SideEffectClass) -> None:
    async with Rehearsal(one_act(slow, effect_class)) as rehearsal:
        run = await rehearsal.start({})
        await reached(run, "effect.requested", name="undo act")
        external = effect_class is SideEffectClass.EXTERNAL
        outcome = await reached(run, "effect.outcome.unknown" if external else "effect.failed")
        await run.resolve_effect(outcome.payload["effect_id"], "retry")
        events = await fails(run)
    assert undone(events) == [("act", "completed")]
    assert [name for name, _ in UNDONE] == ["slow", "slow"]


async def test_on_failure_may_be_a_function() -> None:
    async with Rehearsal(one_act(None, on_failure=told)) as rehearsal:
        run = await rehearsal.start({"a": 1})
        events = await fails(run)
    assert UNDONE == [("told", "{'a': 1} failed: no trains today")]
    assert undone(events) == [("the run", "completed")]


def wants_two(one: Any, two: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"on_failure": lambda failure: None}, KernelError, "<lambda>, which another process could not find"),
        ({"on_failure": "nowhere:GRAPH"}, KernelError, "nowhere:GRAPH is not here"),
        ({"on_failure": "tests.support.unbooking:NAMELESS"}, KernelError, "NAMELESS is not here"),
        ({"on_failure": "missing"}, KernelError, "has no method missing"),
        ({"on_failure": wants_two}, KernelError, "does not take what it will be given"),
        ({"on_failure": unbooking.REPORT}, KernelError, "which another process could not find"),
        ({"on_failure": told, "execution_mode": ExecutionMode.STRICT}, StrictModeError, "is a function"),
    ],
    ids=["lambda", "no module", "no name", "no method", "parameters", "a graph without its name", "strict"],
)
async def test_an_agent_whose_on_failure_could_not_be_done_is_refused_before_its_first_run(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        async with Rehearsal(one_act(None, **options)) as rehearsal:
            await (await rehearsal.start({})).result()
