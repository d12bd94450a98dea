"""Effects of unknown outcome: a person decides, once, about what waits; and their retries on the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.clock import SystemClock, VirtualClock
from noesium_stream.errors import (
    CommitUnknownError,
    ConfigError,
    EffectDecisionError,
    EffectFailedError,
    FencedError,
    RunEndedError,
    RunFailedError,
    StateError,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import EffectResolved, SideEffectClass
from noesium_stream.kernel import Retries, current_step
from noesium_stream.kernel.recording.recorded_run import recorded_run
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from tests.support.effects import World, journal_of, reached
from tests.support.failing import FailingLog
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S
from tests.support.replays import verify

FAST = Retries(max_attempts=3, initial_interval=timedelta(milliseconds=1), jitter=0)


def graph_of(node: Any, retry: RetryPolicy | None = None) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(dict)
    graph.add_node("node", node, retry_policy=retry)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return graph


def paying(world: World, **options: Any) -> Callable[[dict[str, Any]], Any]:
    """A node that pays, and says what it got or what was raised."""

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        try:
            paid = await current_step().effect("pay", world.act, "pay", **options)
        except EffectFailedError as error:
            paid = f"failed: {error.message}"
        return {"paid": paid}

    return node


async def unknown(run: Run, number: int = 1) -> str:
    """The id of the effect whose outcome is unknown."""
    effect_id: str = (await reached(run, "effect.outcome.unknown", number)).payload["effect_id"]
    return effect_id


@pytest.mark.parametrize(
    ("decision", "result", "paid"),
    [
        ("result", {"receipt": 7}, {"receipt": 7}),
        ("retry", None, "pay 2"),
        ("fail", None, "failed: Ada decided that the effect pay has failed: not on the account"),
    ],
)
async def test_a_run_goes_on_with_what_a_person_decides(
    tmp_path: Path, decision: Any, result: Any, paid: Any
) -> None:
    world = World(hangs={"pay": 1})
    node = paying(world, timeout=timedelta(milliseconds=20))
    async with running(graph_of(node), tmp_path) as client:
        run = await client.start("sample", {})
        effect_id = await unknown(run)
        assert [effect.effect_id for effect in await client.unresolved_effects()] == [effect_id]
        reason = "not on the account"
        await run.resolve_effect(effect_id[:12], decision, result, reason=reason, by="Ada")
        assert (await run.result(timeout=PATIENCE_S))["paid"] == paid
        assert await client.unresolved_effects() == []
    assert world.calls["pay"] == (2 if decision == "retry" else 1)
    assert len(world.keys["pay"]) == 1, "called again under the same key"


async def test_a_decision_that_it_failed_lets_the_node_s_next_attempt_call_under_another_key(
    tmp_path: Path,
) -> None:
    world = World(hangs={"pay": 1})

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {
            "paid": await current_step().effect("pay", world.act, "pay", timeout=timedelta(milliseconds=20))
        }

    retry = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False)
    async with running(graph_of(node, retry), tmp_path) as client:
        run = await client.start("sample", {})
        await run.resolve_effect(await unknown(run), "fail")
        assert (await run.result(timeout=PATIENCE_S))["paid"] == "pay 2"
    assert len(world.keys["pay"]) == 2


async def test_a_run_that_nobody_decides_about_fails_only_by_that_decision(tmp_path: Path) -> None:
    world = World(hangs={"pay": 1})

    async def node(state: dict[str, Any]) -> None:
        await current_step().effect("pay", world.act, "pay", timeout=timedelta(milliseconds=20))

    async with running(graph_of(node), tmp_path) as client:
        run = await client.start("sample", {})
        effect_id = await unknown(run)
        assert (await run.info()).status == "waiting"
        await run.resolve_effect(effect_id, "fail", by="Ada")
        with pytest.raises(RunFailedError, match="Ada decided that the effect pay has failed"):
            await run.result(timeout=PATIENCE_S)


async def test_the_sender_is_told_why_a_decision_cannot_count(tmp_path: Path) -> None:
    world = World(hangs={"pay": 1})
    gate = asyncio.Event()

    async def node(state: dict[str, Any]) -> None:
        step = current_step()
        await step.effect("look", world.act, "look")
        await step.effect("pay", world.act, "pay", timeout=timedelta(milliseconds=20))
        await gate.wait()

    async with running(graph_of(node), tmp_path) as client:
        run = await client.start("sample", {})
        effect_id = await unknown(run)
        looked = (await reached(run, "effect.completed")).payload["effect_id"]
        with pytest.raises(EffectDecisionError, match="the run has no effect nothing"):
            await run.resolve_effect("nothing", "fail")
        with pytest.raises(
            EffectDecisionError, match="outcome of the effect look is known: it has completed"
        ):
            await run.resolve_effect(looked, "retry")
        with pytest.raises(EffectDecisionError, match="'maybe' is no decision"):
            await run.resolve_effect(effect_id, "maybe")  # type: ignore[arg-type]
        with pytest.raises(EffectDecisionError, match="retry comes without a result"):
            await run.resolve_effect(effect_id, "retry", 1)
        with pytest.raises(StateError, match="result is of type set"):
            await run.resolve_effect(effect_id, "result", {1})
        await run.resolve_effect(effect_id, "result", 1, by="Ada")
        await reached(run, "effect.resolved")
        with pytest.raises(EffectDecisionError, match="Ada has decided that already: result"):
            await run.resolve_effect(effect_id, "fail")
        gate.set()
        await run.result(timeout=PATIENCE_S)
        with pytest.raises(RunEndedError, match="has ended already: completed"):
            await run.resolve_effect(effect_id, "fail")


async def test_the_owner_takes_one_decision_and_makes_dead_letters_of_those_that_fit_nothing(
    tmp_path: Path,
) -> None:
    world = World(hangs={"pay": 1})
    node = paying(world, timeout=timedelta(milliseconds=20))
    async with running(graph_of(node), tmp_path) as client:
        run = await client.start("sample", {})
        outcome = await reached(run, "effect.outcome.unknown")
        effect_id = outcome.payload["effect_id"]

        def decision(effect: str, outcome_id: str | None, result: Any) -> EffectResolved:
            return EffectResolved(
                run_id=run.id,
                effect_id=effect,
                decision="result",
                result=result,
                resolved_by="Ada",
                outcome_id=outcome_id,
            )

        # What a program of another version may send: the client itself refuses these.
        for event in (
            decision("nothing", None, 1),
            decision(effect_id, "another", 2),
            decision(effect_id, outcome.event_id, 3),
            decision(effect_id, outcome.event_id, 4),
            decision(effect_id, None, 5),
        ):
            await run._send(event)
        assert (await run.result(timeout=PATIENCE_S))["paid"] == 3
        types = Counter([event.event_type async for event in run.events(follow=False)])
        dlq = client.log.topology.dlq
        reasons = [
            record.envelope.payload["failure_reason"]
            async for record in client.log.read(dlq, {}, until=await client.log.end(dlq))
        ]
    assert types["effect.resolved"] == 1
    assert reasons == [
        "payload: the run has no effect nothing",
        "payload: the effect pay has no outcome another that is not decided",
    ]


@pytest.mark.parametrize("at", range(1, 14))
@pytest.mark.parametrize("decision", ["result", "retry", "fail"])
async def test_a_decision_survives_a_commit_that_fails_anywhere(
    tmp_path: Path, at: int, decision: Any
) -> None:
    """The first call hangs; whatever else becomes unknown on the way, the same person decides it the same."""
    for error, reaches_log in ((CommitUnknownError("told to"), True), (FencedError("told to"), False)):
        world = World(hangs={"pay": 1})
        inner = await open_log("memory://")
        failing = FailingLog(inner, lambda count, _: count == at, error, reaches_log=reaches_log)
        log: EventLog = failing  # type: ignore[assignment]
        graph = graph_of(paying(world, timeout=timedelta(milliseconds=20)))
        async with Worker(log, [agent_from_graph(graph)], home=tmp_path), Client(log) as client:
            run = await client.start("sample", {})
            decider = asyncio.create_task(decide_all(client, run, decision))
            paid = (await run.result(timeout=PATIENCE_S))["paid"]
            decider.cancel()
            await asyncio.gather(decider, return_exceptions=True)
            events, numbers = await journal_of(run)
        assert numbers == list(range(len(numbers)))
        keys = [event.idempotency_key or event.event_id for event in events]
        assert len(set(keys)) == len(keys)
        decided = Counter(event.event_type for event in events)
        assert decided["effect.resolved"] == decided["effect.outcome.unknown"] >= 1
        assert len(world.keys["pay"]) <= 1
        if decision == "retry":
            assert world.calls["pay"] == int(paid.split()[1]) <= decided["effect.requested"]
        else:
            assert paid == (
                "decided" if decision == "result" else "failed: Ada decided that the effect pay has failed."
            )
            assert world.calls["pay"] <= 1, "none where its intent alone reached the log"
        await inner.close()


@pytest.mark.parametrize(
    ("event_type", "number"),
    [
        ("effect.requested", 1),
        ("effect.outcome.unknown", 1),
        ("effect.resolved", 1),
        ("effect.requested", 2),
        ("effect.completed", 1),
        ("run.completed", 1),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("decision", ["result", "retry", "fail"])
async def test_a_decision_survives_the_death_of_the_process(
    decision: Any, when: str, event_type: str, number: int
) -> None:
    world = World(hangs={"pay": 1})
    graph = graph_of(paying(world, timeout=timedelta(milliseconds=20)))
    happens = decision == "retry" or (event_type, number) not in {
        ("effect.requested", 2),
        ("effect.completed", 1),
    }
    async with Rehearsal(graph) as rehearsal:
        if happens:
            crash = rehearsal.crash_before if when == "before" else rehearsal.crash_after
            crash(event_type, number)
        run = await rehearsal.client.get_run((await rehearsal.start()).id)
        decider = asyncio.create_task(decide_all(rehearsal.client, run, decision))
        paid = (await run.result(timeout=PATIENCE_S))["paid"]
        await rehearsal.wait_for_crash()
        decider.cancel()
        await asyncio.gather(decider, return_exceptions=True)
        events, numbers = await journal_of(run)
    assert numbers == list(range(len(numbers)))
    types = Counter(event.event_type for event in events)
    assert types["effect.outcome.unknown"] == types["effect.resolved"] >= 1
    assert len(world.keys["pay"]) <= 1
    if decision == "retry":
        assert world.calls["pay"] == int(paid.split()[1]) <= types["effect.requested"]
        if when == "before" and event_type == "effect.completed":
            assert world.calls["pay"] == 3, "the call that was cut off from its record is asked about again"
    else:
        assert world.calls["pay"] <= 1
        assert paid == (
            "decided" if decision == "result" else "failed: Ada decided that the effect pay has failed."
        )


async def decide_all(client: Client, run: Run, decision: Any) -> None:
    """Decide about whatever waits, until cancelled."""
    seen = 0
    while True:
        seen += 1
        outcome = await reached(run, "effect.outcome.unknown", seen)
        result = "decided" if decision == "result" else None
        await run.resolve_effect(outcome.payload["effect_id"], decision, result, by="Ada")


@pytest.mark.parametrize("decision", ["result", "retry", "fail"])
async def test_a_run_with_a_decision_replays_as_it_was_and_calls_nothing(
    tmp_path: Path, decision: Any
) -> None:
    world = World(hangs={"pay": 1}, fails={"look": 2})

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        looked = await current_step().effect("look", world.act, "look", retries=FAST)
        paid = await paying(world, timeout=timedelta(milliseconds=20))(state)
        return {**paid, "looked": looked}

    graph = graph_of(node)
    async with running(graph, tmp_path) as client:
        run = await client.start("sample", {})
        await run.resolve_effect(await unknown(run), decision, by="Ada")
        result = await run.result(timeout=PATIENCE_S)
        recording = recorded_run([record async for record in run.records(follow=False)])
    called = world.calls.copy()
    assert result["looked"] == "look 3"
    verdict = await verify(graph, recording)
    assert verdict.difference is None, str(verdict.difference)
    assert world.calls == called


# -- retries -------------------------------------------------------------------------------------------------


async def test_an_effect_is_tried_again_by_its_policy_after_pauses_that_are_on_the_log(
    tmp_path: Path,
) -> None:
    world = World(fails={"pay": 2})
    node = paying(world, retries=FAST)
    async with running(graph_of(node), tmp_path) as client:
        run = await client.start("sample", {})
        assert (await run.result(timeout=PATIENCE_S))["paid"] == "pay 3"
        failed = [
            event.payload async for event in run.events(follow=False) if event.event_type == "effect.failed"
        ]
        entered = [e async for e in run.events(follow=False) if e.event_type == "kernel.node.entered"]
    assert [payload["retry_in_ms"] for payload in failed] == [1, 2]
    assert len(world.keys["pay"]) == 3, "a recorded failure changes the key"
    assert len(entered) == 1, "the node itself has not failed"


@pytest.mark.parametrize(
    ("retries", "calls"),
    [
        (FAST, 3),
        (
            Retries(
                max_attempts=5, initial_interval=timedelta(milliseconds=1), non_retryable=(ConnectionError,)
            ),
            1,
        ),
        (None, 1),
    ],
    ids=["three attempts", "not retryable", "no policy"],
)
async def test_the_node_gets_the_error_when_no_attempt_is_left(
    tmp_path: Path, retries: Retries | None, calls: int
) -> None:
    world = World(fails={"pay": 9})
    async with running(graph_of(paying(world, retries=retries)), tmp_path) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match="ConnectionError: pay is told to fail"):
            await run.result(timeout=PATIENCE_S)
    assert world.calls["pay"] == calls


@pytest.mark.parametrize("at", range(1, 14))
async def test_the_count_of_attempts_goes_on_from_the_log_after_a_crash(tmp_path: Path, at: int) -> None:
    for error, reaches_log in ((CommitUnknownError("told to"), True), (FencedError("told to"), False)):
        world = World(fails={"pay": 9})
        inner = await open_log("memory://")
        failing = FailingLog(inner, lambda count, _: count == at, error, reaches_log=reaches_log)
        log: EventLog = failing  # type: ignore[assignment]
        graph = graph_of(paying(world, retries=FAST, effect_class=SideEffectClass.IDEMPOTENT))
        async with Worker(log, [agent_from_graph(graph)], home=tmp_path), Client(log) as client:
            run = await client.start("sample", {})
            with pytest.raises(RunFailedError, match="told to fail"):
                await run.result(timeout=PATIENCE_S)
            events, numbers = await journal_of(run)
        assert numbers == list(range(len(numbers)))
        types = Counter(event.event_type for event in events)
        assert types["effect.failed"] == types["effect.requested"] == len(world.keys["pay"]) == 3
        assert world.calls["pay"] <= 4, "at most the call that was cut off from its record is made again"
        await inner.close()


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("event_type", ["effect.requested", "effect.failed"])
async def test_the_count_of_attempts_goes_on_in_the_process_that_takes_over(
    event_type: str, when: str, number: int
) -> None:
    world = World(fails={"pay": 9})
    graph = graph_of(paying(world, retries=FAST, effect_class=SideEffectClass.IDEMPOTENT))
    async with Rehearsal(graph) as rehearsal:
        crash = rehearsal.crash_before if when == "before" else rehearsal.crash_after
        crash(event_type, number)
        run = await rehearsal.client.get_run((await rehearsal.start()).id)
        with pytest.raises(RunFailedError, match="told to fail"):
            await run.result(timeout=PATIENCE_S)
        await rehearsal.wait_for_crash()
        types = Counter([event.event_type async for event in run.events(follow=False)])
    assert types["effect.failed"] == types["effect.requested"] == len(world.keys["pay"]) == 3
    cut = when == "before" and event_type == "effect.failed"
    assert world.calls["pay"] == (4 if cut else 3), "a crash does not change the key, and costs no attempt"


async def test_a_pause_goes_on_from_the_recorded_time_in_the_process_that_takes_over(tmp_path: Path) -> None:
    """An hour's pause, half of it before the crash: the virtual clock moves only when somebody waits."""
    world = World(fails={"pay": 1})
    slow = Retries(
        max_attempts=2, initial_interval=timedelta(hours=1), max_interval=timedelta(hours=1), jitter=0
    )
    graph = graph_of(paying(world, retries=slow))
    log = await open_log("memory://")
    async with Client(log) as client:
        async with Worker(log, [agent_from_graph(graph)], home=tmp_path, clock=SystemClock()):
            run = await client.start("sample", {})
            failed = await reached(run, "effect.failed")
        due_ms = failed.timestamp_ms + failed.payload["retry_in_ms"]
        later = VirtualClock(start_ms=failed.timestamp_ms + 1_800_000)
        async with Worker(log, [agent_from_graph(graph)], home=tmp_path, clock=later):
            assert (await run.result(timeout=PATIENCE_S))["paid"] == "pay 2"
        again: EventEnvelope = await reached(run, "effect.requested", 2)
    await log.close()
    assert failed.payload["retry_in_ms"] == 3_600_000
    assert due_ms <= again.timestamp_ms < due_ms + 60_000


def test_a_pause_grows_up_to_its_maximum_and_jitter_moves_it_by_a_part() -> None:
    policy = Retries(
        max_attempts=9,
        initial_interval=timedelta(seconds=1),
        backoff_factor=3,
        max_interval=timedelta(seconds=5),
        jitter=0.5,
    )
    error = ConnectionError()
    assert [policy.pause_ms(failed, error, 0.5) for failed in (1, 2, 3, 8, 9)] == [
        1000,
        3000,
        5000,
        5000,
        None,
    ]
    assert (policy.pause_ms(1, error, 0.0), policy.pause_ms(1, error, 0.75)) == (500, 1250)
    assert Retries(max_attempts=10**9, jitter=0).pause_ms(10**8, error, 0.5) == 60_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"backoff_factor": 0.5},
        {"backoff_factor": float("nan")},
        {"jitter": 2},
        {"initial_interval": timedelta(-1)},
        {"initial_interval": timedelta(1)},
    ],
)
def test_numbers_that_make_no_policy_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Retries"):
        Retries(**wrong)
