"""Graphs undo what a run did: durably, as steps of its journal, whoever goes on with it."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy, Send

from noesium_stream.client import Client, Run
from noesium_stream.errors import (
    RunCancelledError,
    RunFailedError,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, kernel_compensation
from noesium_stream.log import open_log
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.eviction import IDLE_S
from tests.support import unbooking
from tests.support.effects import journal_of, reached
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S, eventually
from tests.support.unbooking import BODIES, GIVEN, Holidays, new_world

NAMES = ["note", "booking", "the run"]
"""What is undone, in this order."""

UNDOING = ["erase", "refund", "letter", "report"]
"""What that does outside, in this order."""

EVENTS = 28
"""What the undoing of a holiday writes, its end included."""


@pytest.fixture(autouse=True)
def world() -> None:
    new_world()


@asynccontextmanager
async def deciding(run: Run) -> AsyncIterator[None]:
    """Somebody says of what waits that it was done, if the world says so; else has it done again."""

    async def decide() -> None:
        seen = 0
        while True:
            seen += 1
            outcome = await reached(run, "effect.outcome.unknown", seen)
            effect_id = outcome.payload["effect_id"]
            (open_,) = [one for one in await run.unresolved_effects() if one.effect_id == effect_id]
            count = unbooking.WORLD.calls[open_.name]
            if count:
                await run.resolve_effect(effect_id, "result", f"{open_.name} {count}")
            else:
                await run.resolve_effect(effect_id, "retry")

    decider = asyncio.create_task(decide())
    try:
        yield
    finally:
        decider.cancel()
        await asyncio.gather(decider, return_exceptions=True)


async def fails(run: Run) -> list[EventEnvelope]:
    """Wait for the run's end; its journal, checked: whole, and each event once."""
    with pytest.raises(RunFailedError, match="no trains today"):
        await run.result(timeout=PATIENCE_S)
    events, numbers = await journal_of(run)
    assert numbers == list(range(len(numbers)))
    keys = [event.idempotency_key or event.event_id for event in events]
    assert len(set(keys)) == len(keys)
    return events


def undone(events: list[EventEnvelope]) -> list[tuple[str, str]]:
    return [(one["name"], one["outcome"]) for one in events[-1].payload["compensated"]]


def completed(events: list[EventEnvelope]) -> Counter[str]:
    """Nodes of graphs that undo, as often as the log says that they are done."""
    done = [event.payload for event in events if event.event_type == "kernel.node.completed"]
    return Counter(payload["node"] for payload in done if "undo:" in payload["task_path"])


async def test_graphs_undo_an_effect_a_node_and_the_run_and_their_nodes_are_steps_of_its_journal() -> None:
    async with Rehearsal(Holidays) as rehearsal:
        run = await rehearsal.start({"place": "Rome"})
        events = await fails(run)
    assert undone(events) == [(name, "completed") for name in NAMES]
    assert unbooking.WORLD.log == ["booking", *UNDOING]
    assert completed(events) == dict.fromkeys(
        ["erase", "refund", "apologise", "polite", "close", "report"], 1
    )
    assert GIVEN["refund"] == {"name": "booking", "result": "booking 1", "args": ["booking"], "kwargs": {}}
    assert GIVEN["erase"] == {"name": "note", "result": {"noted": "booking 1"}, "args": [], "kwargs": {}}
    assert GIVEN["report"] == {
        "input": {"place": "Rome"},
        "cause": "failed",
        "error_type": "LookupError",
        "message": "no trains today",
    }
    begun = next(i for i, event in enumerate(events) if event.event_type == "run.compensation.started")
    assert len(events) - begun == EVENTS, "each of them is a place to die at"


def nth_of_compensation(nth: int) -> Callable[[EventEnvelope], bool]:
    """Picks the `nth` event of a run's compensation, from `run.compensation.started` on."""
    seen: list[str] = []

    def when(event: EventEnvelope) -> bool:
        if not seen and event.event_type != "run.compensation.started":
            return False
        if event.event_id not in seen:
            seen.append(event.event_id)
        return len(seen) == nth

    return when


async def dies_at(nth: int, *, reaches_log: bool, log: str = "memory://") -> list[EventEnvelope]:
    """The journal of a run whose process has died at the `nth` event of its compensation, checked."""
    async with Rehearsal(Holidays, log=log) as rehearsal:
        rehearsal.crash_when(nth_of_compensation(nth), reaches_log=reaches_log)
        started = await rehearsal.start({"place": "Rome"})
        run = await rehearsal.client.get_run(started.id)
        async with deciding(run):
            events = await fails(run)
        await rehearsal.wait_for_crash()
        assert rehearsal.crashes == 1
    return events


def check_undone(events: list[EventEnvelope]) -> None:
    """All is undone once, in order, each call under one key; what was done is not done again."""
    assert undone(events) == [(name, "completed") for name in NAMES]
    world = unbooking.WORLD
    assert list(dict.fromkeys(world.log)) == ["booking", *UNDOING]
    assert [len(world.keys[name]) for name in UNDOING] == [1, 1, 1, 1], "a crash does not change the key"
    assert world.calls["refund"] == 1, "it is external"
    assert sum(world.calls[name] for name in UNDOING) <= 5, "only the call that was cut off is made again"
    assert set(completed(events).values()) == {1}
    # A body that was cut off runs again, and those that have it within: no other one.
    again = {name for name in BODIES if BODIES[name] > 1}
    assert len(again) <= 1, BODIES
    assert max(BODIES.values()) <= 2
    assert BODIES["book"] == 1, "the run's own graph is not executed any more"
    names = {e.payload["effect_id"]: e.payload["name"] for e in events if e.event_type == "effect.requested"}
    unknown = {names[e.payload["effect_id"]] for e in events if e.event_type == "effect.outcome.unknown"}
    assert unknown <= {"refund"}, "a graph that was cut off is walked on, and nobody is asked"


@pytest.mark.parametrize("nth", range(1, EVENTS + 1))
@pytest.mark.parametrize("reaches_log", [False, True], ids=["before", "after"])
async def test_a_death_at_any_event_of_a_compensation_repeats_nothing_that_is_done(
    nth: int, reaches_log: bool
) -> None:
    events = await dies_at(nth, reaches_log=reaches_log)
    check_undone(events)


@pytest.mark.parametrize("nth", range(1, EVENTS + 1, 5))
@pytest.mark.parametrize("reaches_log", [False, True], ids=["before", "after"])
async def test_a_death_on_sqlite_repeats_nothing_either(tmp_path: Path, nth: int, reaches_log: bool) -> None:
    log = f"sqlite:///{tmp_path / 'log.db'}?partitions=1&synchronous=NORMAL"
    events = await dies_at(nth, reaches_log=reaches_log, log=log)
    check_undone(events)


@pytest.mark.parametrize(
    ("decision", "calls", "outcome"),
    [("retry", 2, "completed"), ("result", 1, "completed"), ("fail", 1, "given_up")],
)
async def test_a_graph_that_fails_waits_for_a_person_and_is_taken_up_where_it_failed(
    decision: Any, calls: int, outcome: str
) -> None:
    world = new_world(fails={"letter": 1})
    async with Rehearsal(Holidays) as rehearsal:
        run = await rehearsal.start({})
        failed = await reached(run, "effect.failed", awaits_decision=True)
        assert failed.payload["message"] == "letter is told to fail"
        (waiting,) = await rehearsal.client.unresolved_effects()
        assert (waiting.name, waiting.effect_class) == ("undo booking", "idempotent")
        await run.resolve_effect(waiting.effect_id, decision)
        events = await fails(run)
    assert undone(events) == [("note", "completed"), ("booking", outcome), ("the run", "completed")]
    assert world.calls["refund"] == BODIES["refund"] == 1, "what had completed stays so"
    assert world.calls["letter"] == len(world.keys["letter"]) == calls, "a failure changes the key"
    assert world.calls["report"] == 1
    attempts = [
        (event.event_type.rpartition(".")[2], event.payload["attempt"])
        for event in events
        if event.payload.get("node") == "apologise"
    ]
    again = [("retried", 2), ("completed", 2)] if decision == "retry" else []
    assert attempts == [("entered", 1), ("failed", 1), *again]


@pytest.mark.parametrize(
    "event_type", ["kernel.node.failed", "effect.failed", "effect.resolved", "kernel.node.retried"]
)
@pytest.mark.parametrize("reaches_log", [False, True], ids=["before", "after"])
async def test_a_death_around_the_failure_of_a_graph_changes_nothing(
    event_type: str, reaches_log: bool
) -> None:
    world = new_world(fails={"letter": 1})
    async with Rehearsal(Holidays) as rehearsal:
        begun = nth_of_compensation(1)
        started: list[bool] = []

        def when(event: EventEnvelope) -> bool:
            if begun(event):
                started.append(True)
            if event_type == "effect.failed" and not event.payload.get("awaits_decision"):
                return False
            return bool(started) and event.event_type == event_type

        rehearsal.crash_when(when, reaches_log=reaches_log)
        begun_run = await rehearsal.start({})
        run = await rehearsal.client.get_run(begun_run.id)
        failed = await reached(run, "effect.failed", awaits_decision=True)
        await run.resolve_effect(failed.payload["effect_id"], "retry")
        events = await fails(run)
        await rehearsal.wait_for_crash()
    assert undone(events) == [(name, "completed") for name in NAMES]
    assert [event.payload["error_type"] for event in events if event.event_type == "effect.failed"] == [
        "ConnectionError"
    ] * 2, "of the letter, and of the graph: the same whoever says so"
    assert world.calls["refund"] == BODIES["refund"] == 1
    assert world.calls["letter"] == 2
    assert len(world.keys["letter"]) == 2


async def test_an_external_effect_of_a_graph_that_was_cut_off_waits_for_a_person_who_may_repeat_it() -> None:
    async with Rehearsal(Holidays) as rehearsal:
        rehearsal.crash_when(
            lambda event: event.event_type == "effect.requested" and event.payload["name"] == "refund",
            reaches_log=True,
        )
        started = await rehearsal.start({})
        run = await rehearsal.client.get_run(started.id)
        await rehearsal.wait_for_crash()
        unknown = await reached(run, "effect.outcome.unknown")
        (waiting,) = await run.unresolved_effects()
        assert (waiting.name, waiting.effect_id) == ("refund", unknown.payload["effect_id"])
        assert waiting.compensates is not None, "it is a part of what undoes"
        assert unbooking.WORLD.calls["refund"] == 0
        await run.resolve_effect(waiting.effect_id, "retry")
        events = await fails(run)
    check_undone(events)


async def test_a_run_that_is_cancelled_is_told_so() -> None:
    class Waiting(Holidays):
        async def leave(self, state: Any) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

    async with Rehearsal(Waiting) as rehearsal:
        run = await rehearsal.start({})
        await reached(run, "kernel.node.entered", node="leave")
        await run.cancel("rain")
        with pytest.raises(RunCancelledError, match="rain"):
            await run.result()
        events, _ = await journal_of(run)
    assert undone(events) == [(name, "completed") for name in NAMES]
    assert GIVEN["report"]["cause"] == "cancelled"


async def test_a_run_that_completes_calls_no_on_failure() -> None:
    class Well(Holidays):
        async def leave(self, state: Any) -> dict[str, Any]:
            return {}

    async with Rehearsal(Well) as rehearsal:
        run = await rehearsal.start({})
        assert (await run.result())["noted"] == "booking 1"
    assert unbooking.WORLD.log == ["booking"]


# -- all that a graph may do ---------------------------------------------------------------------------------


class Wide(TypedDict, total=False):
    result: str
    done: Annotated[list[str], operator.add]


async def waits(state: Wide) -> dict[str, Any]:
    await current_step().sleep(timedelta(days=3))
    return {"done": ["waited"]}


async def asks(state: Wide) -> dict[str, Any]:
    answer = await current_step().interrupt(f"undo {state['result']}?")
    return {"done": [f"approved: {answer.approved}"]}


def sync(state: Wide) -> dict[str, Any]:
    step = current_step()
    return {"done": [step.run_sync(step.effect("sync", unbooking.act, "sync"))]}


def spread(state: Wide) -> list[Send]:
    return [Send("each", {"result": name}) for name in ("one", "two")]


async def each(state: Wide) -> dict[str, Any]:
    step = current_step()
    names = [f"{state['result']} {n}" for n in range(2)]
    idempotent = SideEffectClass.IDEMPOTENT
    calls = [step.effect(name, unbooking.act, name, effect_class=idempotent) for name in names]
    return {"done": await asyncio.gather(*calls)}


async def tries(state: Wide) -> dict[str, Any]:
    idempotent = SideEffectClass.IDEMPOTENT
    got = await current_step().effect("flaky", unbooking.act, "flaky", effect_class=idempotent)
    return {"done": [got]}


def wide() -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(Wide)
    for node in (waits, asks, sync, each):
        graph.add_node(node.__name__, node)
    graph.add_node("tries", tries, retry_policy=RetryPolicy(max_attempts=2, retry_on=ConnectionError))
    for name in ("waits", "asks", "sync"):
        graph.add_edge(START, name)
    graph.add_conditional_edges("sync", spread, ["each"])
    graph.add_edge(["waits", "asks", "each"], "tries")
    graph.add_edge("tries", END)
    return graph


WIDE = kernel_compensation()(wide().compile())


class Undone(Holidays):
    """Its booking is undone by a graph that does all that graphs do."""

    agent_type = "undone"
    on_failure = None

    async def book(self, state: Any) -> dict[str, Any]:
        undo = f"{__name__}:WIDE"
        return {"booking": await current_step().effect("booking", unbooking.act, "booking", compensate=undo)}


WIDE_EVENTS = (
    *(("kernel.node.entered", n) for n in range(4, 11)),
    *(("kernel.node.completed", n) for n in range(3, 10)),
    ("kernel.node.failed", 2),
    ("kernel.node.retried", 1),
    ("timer.started", 1),
    ("timer.fired", 1),
    ("approval.requested", 1),
    ("approval.answered", 1),
    *(("effect.completed", n) for n in range(2, 9)),
)


@pytest.mark.parametrize(("event_type", "nth"), WIDE_EVENTS)
@pytest.mark.parametrize("reaches_log", [False, True], ids=["before", "after"])
async def test_a_graph_that_undoes_may_wait_ask_fork_and_retry_and_survives_deaths_in_all_of_it(
    event_type: str, nth: int, reaches_log: bool
) -> None:
    world = new_world(fails={"flaky": 1})
    async with Rehearsal(Undone) as rehearsal:
        (rehearsal.crash_after if reaches_log else rehearsal.crash_before)(event_type, nth)
        begun = await rehearsal.start({})
        run = await rehearsal.client.get_run(begun.id)
        async with deciding(run):
            await reached(run, "approval.requested")
            (question,) = await run.approvals()
            assert question.question == "undo booking 1?"
            await run.approve(question.approval_id)
            events = await fails(run)
        await rehearsal.wait_for_crash()
    assert undone(events) == [("note", "completed"), ("booking", "completed")]
    names = ["sync", "one 0", "one 1", "two 0", "two 1", "flaky"]
    assert set(world.calls) == {"booking", "erase", *names}
    assert [world.calls[name] for name in ("booking", "sync")] == [1, 1], "external ones"
    keys = {name: len(world.keys[name]) for name in names}
    assert keys == {**dict.fromkeys(names, 1), "flaky": 2}, "a failure changes the key, a death does not"
    # What was under way when the process died, and is idempotent, is called once more: the branches together.
    assert max(world.calls[name] for name in names if name != "flaky") <= 2
    last = [event.payload["delta"] for event in events if event.event_type == "kernel.node.completed"][-1]
    assert last == {"done": [f"flaky {world.calls['flaky']}"]}
    assert completed(events)["each"] == 2


async def test_a_run_that_waits_within_a_graph_that_undoes_lives_on_the_log(tmp_path: Path) -> None:
    log, clock = await open_log("memory://"), HandClock()
    worker = Worker(log, [Undone], home=tmp_path, clock=clock)
    async with worker, Client(log) as client:
        run = await client.start("undone", {})
        await reached(run, "kernel.node.completed", node="sync")

        async def evicted() -> bool:
            for tenure in worker.tenures():
                tenure.evict_idle()
            clock.advance(IDLE_S)
            return sum(tenure.evicted_runs for tenure in worker.tenures()) == 1

        await eventually(evicted)
        await run.approve()
        clock.advance(timedelta(days=3).total_seconds())
        events = await fails(run)
    await log.close()
    assert undone(events) == [("note", "completed"), ("booking", "completed")]
    assert BODIES["erase"] == 1
