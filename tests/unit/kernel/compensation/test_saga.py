"""What a run did is undone when it fails or is cancelled: in reverse, once, and whoever goes on with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import AgentContext
from noesium_stream.agent.base import NoOptions
from noesium_stream.capabilities.version import in_range
from noesium_stream.client import Client, Run
from noesium_stream.clock import SystemClock
from noesium_stream.errors import (
    CommitUnknownError,
    EffectDecisionError,
    FencedError,
    KernelError,
    LogUnavailableError,
    RunCancelledError,
    RunFailedError,
)
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.kernel.recording.recorded_run import recorded_run
from noesium_stream.kernel.verify.verifier import ReplayTarget, verify_run
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.eviction import IDLE_S
from tests.support import undo
from tests.support.effects import World, journal_of, reached
from tests.support.failing import FailingLog
from tests.support.graphs import running
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S, eventually
from tests.support.replays import REF
from tests.support.undo import UNDONE, Traveller, new_world

ALL_UNDONE = [
    ("forget", {"places": ["flight 1", "hotel 1"]}),
    ("cancel_hotel", "hotel 1", "hotel"),
    ("cancel_flight", "flight 1", "flight"),
]


@pytest.fixture(autouse=True)
def world() -> World:
    Traveller.bodies.clear()
    return new_world()


@asynccontextmanager
async def travelling(home: Path) -> AsyncIterator[Client]:
    log = await open_log("memory://")
    async with Worker(log, [Traveller], home=home), Client(log) as client:
        yield client
    await log.close()


async def last_of(run: Run) -> Any:
    return [event async for event in run.events(follow=False)][-1]


async def test_a_run_that_fails_is_undone_in_the_reverse_order_of_completion(tmp_path: Path) -> None:
    async with travelling(tmp_path) as client:
        run = await client.start("traveller", {"ending": "fail"})
        with pytest.raises(RunFailedError, match="LookupError: no taxi to be had"):
            await run.result(timeout=PATIENCE_S)
        events, _ = await journal_of(run)
    assert UNDONE == ALL_UNDONE
    compensated = events[-1].payload["compensated"]
    assert [(one["name"], one["outcome"]) for one in compensated] == [
        ("note", "completed"),
        ("hotel", "completed"),
        ("flight", "completed"),
    ]
    started = next(event for event in events if event.event_type == "run.compensation.started")
    undoing = [e.payload for e in events if e.event_type == "effect.requested" and e.payload["compensates"]]
    assert [one["name"] for one in undoing] == ["undo note", "undo hotel", "undo flight"]
    assert [one["compensates"] for one in undoing] == [one["compensates"] for one in compensated]
    assert started.payload["cause"] == "failed"


async def test_a_run_that_was_undone_replays_as_it_was_and_undoes_nothing(tmp_path: Path) -> None:
    """Up to its failure: what undid it is no part of what its graph did."""
    async with travelling(tmp_path) as client:
        run = await client.start("traveller", {"ending": "fail"})
        with pytest.raises(RunFailedError):
            await run.result(timeout=PATIENCE_S)
        recording = recorded_run([record async for record in run.records(follow=False)])
        context = AgentContext(tmp_path, client.log, SystemClock(), AgentRef("x", "traveller"), print)
        target = ReplayTarget(Traveller(NoOptions(), context).graph, REF)
        called = undo.WORLD.calls.copy()
        verdict = await verify_run(target, recording, in_range)
    assert verdict.difference is None, str(verdict.difference)
    assert undo.WORLD.calls == called
    assert ALL_UNDONE == UNDONE


async def test_a_run_that_is_cancelled_is_undone_too(tmp_path: Path) -> None:
    async with travelling(tmp_path) as client:
        run = await client.start("traveller", {"ending": "wait"})
        await reached(run, "kernel.node.completed", node="note")
        await run.cancel("rain")
        with pytest.raises(RunCancelledError, match="rain"):
            await run.result(timeout=PATIENCE_S)
        last = await last_of(run)
    assert UNDONE == ALL_UNDONE
    assert len(last.payload["compensated"]) == 3


@pytest.mark.parametrize("ending", ["fail", "wait"])
async def test_cancelling_a_run_that_is_being_undone_does_not_break_it_off(
    tmp_path: Path, ending: str
) -> None:
    new_world(fails={"cancel hotel": 1})
    async with travelling(tmp_path) as client:
        run = await client.start("traveller", {"ending": ending})
        if ending == "wait":
            await reached(run, "kernel.node.completed", node="note")
            await run.cancel("the first time")
        failed = await reached(run, "effect.failed", awaits_decision=True)
        assert (await run.info()).status == "compensating"
        await run.cancel("again")
        await run.cancel("and again")
        await run.resolve_effect(failed.payload["effect_id"], "retry")
        with pytest.raises((RunFailedError, RunCancelledError)) as raised:
            await run.result(timeout=PATIENCE_S)
        events, _ = await journal_of(run)
    assert ("the first time" in str(raised.value)) == (ending == "wait")
    assert [one[0] for one in UNDONE] == ["forget", "cancel_hotel", "cancel_hotel", "cancel_flight"]
    requests = Counter(event.event_type for event in events)["run.cancel.requested"]
    assert requests == (1 if ending == "wait" else 0)


async def test_a_run_that_completes_is_not_undone(tmp_path: Path) -> None:
    async with travelling(tmp_path) as client:
        run = await client.start("traveller", {"ending": "well"})
        assert (await run.result(timeout=PATIENCE_S))["hotel"] == "hotel 1"
    assert UNDONE == []


async def test_a_run_that_declares_no_compensation_ends_as_before(tmp_path: Path) -> None:
    async def node(state: dict[str, Any]) -> None:
        await current_step().effect("act", undo.WORLD.act, "act")
        raise ValueError("told to fail")

    async with running(single(node), tmp_path) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match="told to fail"):
            await run.result(timeout=PATIENCE_S)
        events, _ = await journal_of(run)
    assert "run.compensation.started" not in {event.event_type for event in events}
    assert events[-1].payload["compensated"] == []


@pytest.mark.parametrize(
    ("decision", "undone", "outcome"),
    [
        ("retry", ["forget", "cancel_hotel", "cancel_hotel", "cancel_flight"], "completed"),
        ("result", ["forget", "cancel_hotel", "cancel_flight"], "completed"),
        ("fail", ["forget", "cancel_hotel", "cancel_flight"], "given_up"),
    ],
)
async def test_a_compensation_that_fails_waits_for_a_person(
    tmp_path: Path, decision: Any, undone: list[str], outcome: str
) -> None:
    world = new_world(fails={"cancel hotel": 1})
    async with travelling(tmp_path) as client:
        run = await client.start("traveller", {"ending": "fail"})
        failed = await reached(run, "effect.failed", awaits_decision=True)
        (waiting,) = await client.unresolved_effects()
        assert (waiting.effect_id, waiting.name) == (failed.payload["effect_id"], "undo hotel")
        assert waiting.reason == "it failed: ConnectionError: cancel hotel is told to fail"
        assert waiting.compensates is not None
        assert [one[0] for one in UNDONE] == ["forget", "cancel_hotel"], "nothing is undone past it"
        await run.resolve_effect(waiting.effect_id, decision, by="Ada")
        with pytest.raises(RunFailedError, match="no taxi"):
            await run.result(timeout=PATIENCE_S)
        compensated = (await last_of(run)).payload["compensated"]
    assert [one[0] for one in UNDONE] == undone
    assert [one["outcome"] for one in compensated] == ["completed", outcome, "completed"]
    assert len(world.keys["cancel hotel"]) == world.calls["cancel hotel"], "a failure changes the key"


@pytest.mark.parametrize(("decision", "undone"), [("result", True), ("fail", False)])
async def test_an_effect_that_was_under_way_is_undone_only_if_a_person_says_that_it_was_done(
    tmp_path: Path, decision: Any, undone: bool
) -> None:
    world = new_world(hangs={"taxi": 1})
    async with travelling(tmp_path) as client:
        run = await client.start("traveller", {"ending": "hang"})
        await reached(run, "effect.requested", name="taxi")
        while not world.calls["taxi"]:
            await asyncio.sleep(0)
        await run.cancel()
        unknown = await reached(run, "effect.outcome.unknown")
        assert unknown.payload["reason"] == "the run ended while it was under way"
        assert UNDONE == []
        with pytest.raises(EffectDecisionError, match="the run is ending, and the effect taxi is not called"):
            await run.resolve_effect(unknown.payload["effect_id"], "retry")
        result = "taxi 7" if decision == "result" else None
        await run.resolve_effect(unknown.payload["effect_id"], decision, result)
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
    taxi = [("strangely", "taxi 7", "taxi")] if undone else []
    assert [*taxi, *ALL_UNDONE] == UNDONE
    assert world.calls["taxi"] == 1


async def test_a_function_that_is_not_there_any_more_waits_for_a_person_and_for_the_right_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with travelling(tmp_path) as client:
        run = await client.start("traveller", {"ending": "wait"})
        await reached(run, "kernel.node.completed", node="note")
        with monkeypatch.context() as patch:
            patch.delattr(undo, "cancel_flight")
            await run.cancel()
            failed = await reached(run, "effect.failed", awaits_decision=True)
        assert (
            "Nothing of this agent declares 'tests.support.undo:cancel_flight'" in failed.payload["message"]
        )
        await run.resolve_effect(failed.payload["effect_id"], "retry")
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
    assert UNDONE == ALL_UNDONE


@pytest.mark.parametrize("ending", ["fail", "wait"])
async def test_a_run_that_waits_for_a_decision_while_it_is_undone_lives_on_the_log(
    tmp_path: Path, ending: str
) -> None:
    new_world(fails={"cancel hotel": 1})
    log, clock = await open_log("memory://"), HandClock()
    worker = Worker(log, [Traveller], home=tmp_path, clock=clock)
    async with worker, Client(log) as client:
        run = await client.start("traveller", {"ending": ending})
        if ending == "wait":
            await reached(run, "kernel.node.completed", node="note")
            await run.cancel()
        failed = await reached(run, "effect.failed", awaits_decision=True)

        async def evicted() -> bool:
            for tenure in worker.tenures():
                tenure.evict_idle()
            clock.advance(IDLE_S)
            return sum(tenure.evicted_runs for tenure in worker.tenures()) == 1

        await eventually(evicted)
        await run.resolve_effect(failed.payload["effect_id"], "retry")
        with pytest.raises((RunFailedError, RunCancelledError)):
            await run.result(timeout=PATIENCE_S)
    await log.close()
    assert [one[0] for one in UNDONE] == ["forget", "cancel_hotel", "cancel_hotel", "cancel_flight"]


# -- every commit --------------------------------------------------------------------------------------------

FAILURES = [
    (CommitUnknownError("told to"), True),
    (CommitUnknownError("told to"), False),
    (FencedError("told to"), False),
    (LogUnavailableError("told to"), False),
]
COMMITS = 24
"""More than a run that fails and is undone needs."""


async def decide(run: Run) -> None:
    """Say of whatever waits that it was done, if the world says so; else have it done again."""
    seen = 0
    while True:
        seen += 1
        outcome = await reached(run, "effect.outcome.unknown", seen)
        events, _ = await journal_of(run)
        effect_id = outcome.payload["effect_id"]
        name = next(e.payload["name"] for e in events if e.payload.get("effect_id") == effect_id)
        name = name.replace("undo", "cancel")
        count = (
            undo.WORLD.calls[name] if name != "cancel note" else len([u for u in UNDONE if u[0] == "forget"])
        )
        if count:
            await run.resolve_effect(effect_id, "result", f"{name} {count}")
        else:
            await run.resolve_effect(effect_id, "retry")


@pytest.mark.parametrize("at", range(1, COMMITS + 1))
@pytest.mark.parametrize(("error", "reaches_log"), FAILURES, ids=["there", "lost", "fenced", "absent"])
@pytest.mark.parametrize("effect_class", ["external", "idempotent"])
async def test_undoing_survives_a_commit_that_fails_anywhere(
    tmp_path: Path, at: int, error: Exception, reaches_log: bool, effect_class: str
) -> None:
    inner = await open_log("memory://")
    failing = FailingLog(inner, lambda count, _: count == at, error, reaches_log=reaches_log)
    log: EventLog = failing  # type: ignore[assignment]
    async with Worker(log, [Traveller], home=tmp_path), Client(log) as client:
        run = await client.start("traveller", {"ending": "fail", "effect_class": effect_class})
        decider = asyncio.create_task(decide(run))
        with pytest.raises(RunFailedError, match="no taxi to be had"):
            await run.result(timeout=PATIENCE_S)
        decider.cancel()
        await asyncio.gather(decider, return_exceptions=True)
        events, numbers = await journal_of(run)
    await inner.close()
    check_undone(events, numbers)
    for name in ("flight", "hotel", "cancel hotel", "cancel flight"):
        assert undo.WORLD.calls[name] == 1, "what this process did is not forgotten with the commit"


def check_undone(events: list[EventEnvelope], numbers: list[int]) -> None:
    """A whole journal without repetitions, everything undone in order, each call under one key."""
    assert numbers == list(range(len(numbers)))
    keys = [event.idempotency_key or event.event_id for event in events]
    assert len(set(keys)) == len(keys)
    types = Counter(event.event_type for event in events)
    assert types["run.compensation.started"] == types["run.failed"] == 1
    assert [one["name"] for one in events[-1].payload["compensated"]] == ["note", "hotel", "flight"]
    names = ["flight", "hotel", "cancel hotel", "cancel flight"]
    assert list(dict.fromkeys(undo.WORLD.log)) == names
    assert [len(undo.WORLD.keys[name]) for name in names] == [1, 1, 1, 1]


async def test_the_number_of_commits_covers_the_whole_run(tmp_path: Path) -> None:
    inner = await open_log("memory://")
    counting = FailingLog(inner, lambda *_: False, RuntimeError("never"), reaches_log=False)
    log: EventLog = counting  # type: ignore[assignment]
    async with Worker(log, [Traveller], home=tmp_path), Client(log) as client:
        run = await client.start("traveller", {"ending": "fail"})
        with pytest.raises(RunFailedError):
            await run.result(timeout=PATIENCE_S)
    assert counting.commits < COMMITS
    await inner.close()


class Rebuilt(Traveller):
    """Another graph, by which no run of the old one could go on; what undoes is still there."""

    version = "2.0.0"

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        return single(self.end)


@pytest.mark.parametrize("next_worker", [Traveller, Rebuilt])
async def test_the_graph_is_not_executed_any_more_once_the_run_is_being_undone(
    tmp_path: Path, next_worker: type[Traveller]
) -> None:
    new_world(fails={"cancel hotel": 1})
    log = await open_log("memory://")
    async with Client(log) as client:
        async with Worker(log, [Traveller], home=tmp_path):
            run = await client.start("traveller", {"ending": "fail"})
            failed = await reached(run, "effect.failed", awaits_decision=True)
        async with Worker(log, [next_worker], home=tmp_path):
            await run.resolve_effect(failed.payload["effect_id"], "retry")
            with pytest.raises(RunFailedError, match="no taxi"):
                await run.result(timeout=PATIENCE_S)
        events, _ = await journal_of(run)
    await log.close()
    assert Traveller.bodies == ["end"]
    assert [one[0] for one in UNDONE] == ["forget", "cancel_hotel", "cancel_hotel", "cancel_flight"]
    types = Counter(event.event_type for event in events)
    assert types["run.compensation.started"] == types["kernel.node.failed"] == 1


DEATHS = [
    *(("effect.requested", number) for number in range(1, 6)),
    *(("effect.completed", number) for number in range(1, 6)),
    ("kernel.node.completed", 3),
    ("kernel.node.failed", 1),
    ("run.compensation.started", 1),
    ("run.failed", 1),
]


@pytest.mark.parametrize(("event_type", "number"), DEATHS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("effect_class", ["external", "idempotent"])
async def test_undoing_survives_the_death_of_its_process(
    effect_class: str, when: str, event_type: str, number: int
) -> None:
    async with Rehearsal(Traveller) as rehearsal:
        crash = rehearsal.crash_before if when == "before" else rehearsal.crash_after
        crash(event_type, number)
        started = await rehearsal.start({"ending": "fail", "effect_class": effect_class})
        run = await rehearsal.client.get_run(started.id)
        decider = asyncio.create_task(decide(run))
        with pytest.raises(RunFailedError, match="no taxi to be had"):
            await run.result(timeout=PATIENCE_S)
        decider.cancel()
        await asyncio.gather(decider, return_exceptions=True)
        events, numbers = await journal_of(run)
        await rehearsal.wait_for_crash()
    check_undone(events, numbers)
    world = undo.WORLD
    calls = [world.calls[name] for name in ("flight", "hotel", "cancel hotel", "cancel flight")]
    unknown = [event for event in events if event.event_type == "effect.outcome.unknown"]
    if effect_class == "external":
        assert calls == [1, 1, 1, 1]
    else:
        assert sorted(calls)[:3] == [1, 1, 1]
        assert max(calls) <= 2, "only the call that was cut off from its record is made again"
    if when == "before" and event_type == "effect.completed":
        asked = effect_class == "external" or number == 3  # what undoes a node is always external
        assert (len(unknown), max(calls)) == ((1, 1) if asked else (0, 2))


# -- what cannot be found by its name ------------------------------------------------------------------------


def single(node: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return graph


def closure() -> Any:
    def inner(result: Any, name: str) -> None: ...

    return inner


def takes_nothing() -> None: ...


def undeclared(result: Any, name: str) -> None: ...


@pytest.mark.parametrize(
    ("compensate", "message"),
    [
        (lambda result, name: None, "<lambda>, which another process could not find"),
        (closure(), "closure.<locals>.inner, which another process could not find"),
        (partial(undo.strangely, 1), "partial, which another process could not find"),
        (World().act, "World.act, which another process could not find"),
        ("no name", "'no name' of the effect act is no name of a method"),
        (undeclared, "Nothing of this agent declares .*:undeclared' as a compensation"),
        (f"{__name__}:undeclared", "Nothing of this agent declares .*:undeclared' as a compensation"),
        ("os:system", "Nothing of this agent declares 'os:system' as a compensation"),
        (takes_nothing, "does not take what it will be given: too many positional arguments"),
    ],
    ids=[
        "lambda",
        "closure",
        "partial",
        "method of another object",
        "no name",
        "undeclared",
        "undeclared name",
        "another module's",
        "wrong parameters",
    ],
)
async def test_a_compensation_that_cannot_be_called_later_is_refused_at_once(
    tmp_path: Path, compensate: Any, message: str
) -> None:
    async def node(state: dict[str, Any]) -> None:
        await current_step().effect("act", undo.WORLD.act, "act", compensate=compensate)

    async with running(single(node), tmp_path) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match=message):
            await run.result(timeout=PATIENCE_S)
        types = {event.event_type async for event in run.events(follow=False)}
    assert undo.WORLD.calls["act"] == 0
    assert "effect.requested" not in types


def test_a_node_refuses_a_lambda_as_its_compensation() -> None:
    with pytest.raises(KernelError, match=r"compensation of a node is .*<lambda>"):
        kernel_node(compensate=lambda delta: None)


async def test_a_delta_that_the_log_refuses_is_not_undone(tmp_path: Path) -> None:
    """It never happened as far as the log is concerned; the effect before it did."""

    @kernel_node(compensate=undo.strangely)
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        await current_step().effect("act", undo.WORLD.act, "act", compensate=undo.strangely)
        return {"much": "x" * 3_000_000}

    async with running(single(node), tmp_path) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError):
            await run.result(timeout=PATIENCE_S)
        last = await last_of(run)
    assert UNDONE == [("strangely", "act 1", "act")]
    assert [one["name"] for one in last.payload["compensated"]] == ["act"]
