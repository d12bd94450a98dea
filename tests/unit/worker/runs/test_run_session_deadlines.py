"""A run that has not ended by its deadline is ended, whoever has it by then, and what it did is undone."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.errors import (
    CommitUnknownError,
    ConfigError,
    DeadlineExceededError,
    FencedError,
    RunCancelledError,
    RunFailedError,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.eviction import IDLE_S
from noesium_stream.worker.tenure import RunTenure
from tests.support.effects import journal_of, reached
from tests.support.failing import FailingLog
from tests.support.hand_clock import HandClock
from tests.support.lives import state_files
from tests.support.reading import PATIENCE_S, eventually
from tests.support.undo import UNDONE, Traveller, new_world

MINUTE = timedelta(minutes=1)
PASSED = "run.deadline.passed"


class State(TypedDict, total=False):
    value: Any


class Stage:
    """One log, and one clock that is moved by hand, for a client and its workers."""

    def __init__(self, log: EventLog, home: Path) -> None:
        self.log = log
        self.home = home
        self.clock = HandClock()
        self.client = Client(log, clock=self.clock)
        self.entered: Counter[str] = Counter()

    def worker(self, *agents: Any, log: EventLog | None = None, **options: Any) -> Worker:
        made = [agent for agent in agents or (self.waiter(),)]
        return Worker(log or self.log, made, home=self.home, clock=self.clock, **options)

    def waiter(self) -> Any:
        """Its runs wait for a signal, and give what it says."""

        async def body(state: State) -> State:
            self.entered[current_step().run_id] += 1
            return {"value": await current_step().signal("go")}

        graph = StateGraph(State)
        graph.add_node("wait", body)
        graph.add_edge(START, "wait")
        graph.add_edge("wait", END)
        return agent_from_graph(graph)

    async def parks(self, worker: Worker) -> RunTenure:
        """Its one run comes to rest, and is evicted."""
        owner = owner_of(worker)

        async def evicted() -> bool:
            for _ in range(50):
                await asyncio.sleep(0)
            owner.evict_idle()
            self.clock.advance(IDLE_S)
            owner.evict_idle()
            return owner.evicted_runs == 1

        await eventually(evicted)
        return owner

    async def started(self, deadline: timedelta | None = MINUTE, **options: Any) -> Run:
        return await self.client.start("sample", {}, deadline=deadline, **options)


def owner_of(worker: Worker) -> RunTenure:
    [owner] = worker.tenures()
    assert isinstance(owner, RunTenure)
    return owner


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    new_world()
    Traveller.bodies.clear()
    log = await open_log("memory://?partitions=1")
    yield Stage(log, tmp_path)
    await log.close()


async def types(run: Run) -> Counter[str]:
    return Counter([event.event_type async for event in run.events(follow=False)])


async def command(run: Run) -> EventEnvelope:
    [event] = [event async for event in run.commands()]
    return event


async def overdue(run: Run) -> str:
    with pytest.raises(DeadlineExceededError) as raised:
        await run.result(timeout=PATIENCE_S)
    assert (await types(run))[PASSED] == 1
    return str(raised.value)


async def test_a_run_that_works_past_its_deadline_is_broken_off_and_undone(stage: Stage) -> None:
    async with stage.worker(Traveller):
        run = await stage.client.start("traveller", {"ending": "wait"}, deadline=MINUTE)
        await reached(run, "kernel.node.completed", node="note")
        stage.clock.advance(59)
        await asyncio.sleep(0)
        assert (await run.info()).status in ("running", "waiting")
        stage.clock.advance(1)
        assert "had not ended by" in await overdue(run)
        info = await run.info()
        events, _ = await journal_of(run)
    assert info.status == "failed"
    assert events[-1].payload["error_type"] == "DeadlineExceededError"
    assert [one["name"] for one in events[-1].payload["compensated"]] == ["note", "hotel", "flight"]
    assert [one[0] for one in UNDONE] == ["forget", "cancel_hotel", "cancel_flight"]


async def test_a_run_that_ends_in_time_knows_nothing_of_its_deadline(stage: Stage) -> None:
    async with stage.worker():
        run = await stage.started()
        await run.signal("go", 7)
        assert await run.result(timeout=PATIENCE_S) == {"value": 7}
        stage.clock.advance(120)
        other = await stage.started()
        await other.signal("go", 8)
        assert await other.result(timeout=PATIENCE_S) == {"value": 8}
        assert not (await types(run))[PASSED]


@pytest.mark.parametrize("keeps_state", [True, False])
async def test_a_deadline_passes_while_nobody_has_the_run(stage: Stage, keeps_state: bool) -> None:
    async with stage.worker(keep_state=True):
        run = await stage.started()
        await reached(run, "kernel.node.entered")
    stage.clock.advance(61)
    if not keeps_state:
        assert state_files(stage.home)
        shutil.rmtree(stage.home)
    async with stage.worker(keep_state=True):
        await overdue(run)
    assert stage.entered[run.id] == 1


async def test_a_deadline_of_a_run_that_was_taken_over_still_passes(stage: Stage) -> None:
    async with stage.worker(keep_state=True):
        run = await stage.started()
        await reached(run, "kernel.node.entered")
        stage.clock.advance(30)
    async with stage.worker(keep_state=True):
        await eventually(lambda: stage.entered[run.id] == 2)
        stage.clock.advance(29)
        await asyncio.sleep(0)
        assert (await run.info()).status in ("running", "waiting")
        stage.clock.advance(2)
        await overdue(run)


async def test_an_evicted_run_comes_back_to_end(stage: Stage) -> None:
    async with stage.worker() as worker:
        run = await stage.started(timedelta(hours=1))
        await reached(run, "kernel.node.entered")
        owner = await stage.parks(worker)
        stage.clock.advance(3_600)
        await overdue(run)
        await eventually(lambda: owner.open_runs == 0)
    assert stage.entered[run.id] == 1


async def test_an_evicted_run_ends_with_the_next_owner(stage: Stage) -> None:
    async with stage.worker(keep_state=True) as worker:
        run = await stage.started(timedelta(hours=1))
        await reached(run, "kernel.node.entered")
        await stage.parks(worker)
    async with stage.worker(keep_state=True) as worker:
        await eventually(lambda: worker.tenures())
        assert owner_of(worker).evicted_runs == 1
        stage.clock.advance(3_600)
        await overdue(run)
    assert stage.entered[run.id] == 1


@pytest.mark.parametrize("reaches_log", [True, False])
@pytest.mark.parametrize("error", [FencedError("lost"), CommitUnknownError("lost")])
@pytest.mark.parametrize("at", [PASSED, "run.compensation.started", "run.failed"])
async def test_a_deadline_passes_once_however_its_end_is_disturbed(
    stage: Stage, at: str, error: Exception, reaches_log: bool
) -> None:
    failing = FailingLog(
        stage.log,
        lambda _, sent: any(record.envelope.event_type == at for record in sent),
        error,
        reaches_log=reaches_log,
    )
    said: list[str] = []
    async with stage.worker(Traveller, log=failing, progress=said.append):
        run = await stage.client.start("traveller", {"ending": "wait"}, deadline=MINUTE)
        await reached(run, "kernel.node.completed", node="note")
        stage.clock.advance(60)
        await eventually(lambda: failing.failed)

        def taken_again() -> bool:
            stage.clock.advance(0.1)
            return any("taking it again" in line for line in said)

        await eventually(taken_again)
        await overdue(run)
    assert [one[0] for one in UNDONE] == ["forget", "cancel_hotel", "cancel_flight"]


async def test_a_command_whose_turn_comes_too_late_is_not_executed(stage: Stage) -> None:
    run = await stage.started()
    stage.clock.advance(60)
    async with stage.worker():
        await overdue(run)
    assert not stage.entered
    assert not (await types(run))["kernel.node.entered"]


async def test_a_run_that_waits_for_a_slot_ends_in_time(stage: Stage) -> None:
    busy = asyncio.Event()

    async def body(state: State) -> State:
        stage.entered[current_step().run_id] += 1
        await busy.wait()
        return {}

    graph = StateGraph(State)
    graph.add_node("work", body)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    agent = agent_from_graph(graph)
    async with stage.worker(agent, concurrency=2, keep_state=True):
        first = await stage.started(None)
        stage.clock.advance(0.1)
        second = await stage.started()
        await eventually(lambda: len(stage.entered) == 2)
    stage.entered.clear()
    async with stage.worker(agent, concurrency=1, keep_state=True):
        await eventually(lambda: stage.entered[first.id])
        assert not stage.entered[second.id]
        stage.clock.advance(60)
        await overdue(second)
        assert not stage.entered[second.id]
        busy.set()
        await first.result(timeout=PATIENCE_S)


async def test_what_a_run_delegates_has_its_deadline(stage: Stage) -> None:
    async def ask(state: State) -> State:
        return {"value": await current_step().invoke("slow.work", {})}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)

    class Slow(stage.waiter()):  # type: ignore[misc]
        agent_type = "slow"
        capabilities = (Capability(id="slow.work", input_schema={}, output_schema={}),)

    async with stage.worker(Slow, agent_from_graph(graph)):
        run = await stage.started()
        invoked = await reached(run, "capability.invoked")
        assert invoked.payload["deadline_ms"] == stage.clock.now_ms() + 60_000
        child = await stage.client.get_run(invoked.payload["run_id"])
        await reached(child, "kernel.node.entered")
        stage.clock.advance(60)
        await overdue(child)
        with pytest.raises(RunFailedError):
            await run.result(timeout=PATIENCE_S)


async def test_a_run_that_is_being_cancelled_is_cancelled_whatever_its_deadline(stage: Stage) -> None:
    new_world(fails={"cancel hotel": 1})
    async with stage.worker(Traveller):
        run = await stage.client.start("traveller", {"ending": "wait"}, deadline=MINUTE)
        await reached(run, "kernel.node.completed", node="note")
        await run.cancel("rain")
        failed = await reached(run, "effect.failed", awaits_decision=True)
        stage.clock.advance(60)
        await run.resolve_effect(failed.payload["effect_id"], "retry")
        with pytest.raises(RunCancelledError, match="rain"):
            await run.result(timeout=PATIENCE_S)
        assert not (await types(run))[PASSED]


async def test_who_cancels_a_run_whose_deadline_has_passed_comes_too_late(stage: Stage) -> None:
    new_world(fails={"cancel hotel": 1})
    async with stage.worker(Traveller):
        run = await stage.client.start("traveller", {"ending": "wait"}, deadline=MINUTE)
        await reached(run, "kernel.node.completed", node="note")
        stage.clock.advance(60)
        failed = await reached(run, "effect.failed", awaits_decision=True)
        await run.cancel("too late")
        await run.resolve_effect(failed.payload["effect_id"], "retry")
        await overdue(run)
        assert not (await types(run))["run.cancel.requested"]


async def test_a_deadline_is_a_moment_to_come(stage: Stage) -> None:
    now = datetime.fromtimestamp(stage.clock.now_ms() / 1000, UTC)
    run = await stage.client.start("sample", {}, deadline=now + MINUTE)
    assert (await command(run)).payload["deadline_ms"] == stage.clock.now_ms() + 60_000
    assert "deadline_ms" not in (await command(await stage.started(None))).payload
    for wrong in (timedelta(0), -MINUTE, now, (now + MINUTE).replace(tzinfo=None)):
        with pytest.raises(ConfigError, match="deadline"):
            await stage.client.start("sample", {}, deadline=wrong)


async def test_a_deadline_that_passes_while_a_deferred_command_is_taken_up_ends_the_run(stage: Stage) -> None:
    old, new = agent_from_graph(echoing()), agent_from_graph(echoing(), version="1.1.0")
    async with stage.worker(old, keep_state=True) as worker:
        run = await stage.started(version="^1.1.0")
        await eventually(lambda: any(tenure.status(None).parked for tenure in worker.tenures()))
    stage.clock.advance(60)
    failing = FailingLog(stage.log, lambda _, __: False, FencedError("never"), reaches_log=False)
    failing.gate.clear()
    async with stage.worker(new, log=failing, keep_state=True) as worker:
        try:
            await eventually(lambda: worker.tenures() and run.id in owner_of(worker).runs.loaded)
            for _ in range(50):
                await asyncio.sleep(0)
        finally:
            failing.gate.set()  # the worker's end waits for the commit that is held back
        await overdue(run)
        waiting = asyncio.create_task(worker.wait())
        await eventually(lambda: owner_of(worker).open_runs == 0)
        assert not waiting.done()
        waiting.cancel()


@pytest.mark.parametrize("kind", [SideEffectClass.EXTERNAL, SideEffectClass.IDEMPOTENT])
@pytest.mark.parametrize("at_last", ["given back", ConnectionAbortedError("broken off")])
async def test_a_call_that_takes_the_cancellation_for_its_own_does_not_keep_its_run_from_ending(
    stage: Stage, at_last: Any, kind: SideEffectClass
) -> None:
    async def stubborn() -> str:
        stage.entered["call"] += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if isinstance(at_last, Exception):
                raise at_last from None
        return "given back"

    async def body(state: State) -> State:
        return {"value": await current_step().effect("stubborn", stubborn, effect_class=kind)}

    graph = StateGraph(State).add_node("body", body).add_edge(START, "body")
    async with stage.worker(agent_from_graph(graph)):
        run = await stage.started()
        await eventually(lambda: stage.entered["call"])
        stage.clock.advance(60)
        await overdue(run)
        found = await types(run)
    assert found["effect.failed" if isinstance(at_last, Exception) else "effect.completed"] == 1
    assert stage.entered["call"] == 1


def echoing() -> StateGraph[Any]:
    async def body(state: State) -> State:
        return {"value": 1}

    graph: StateGraph[Any] = StateGraph(State)
    graph.add_node("body", body)
    graph.add_edge(START, "body")
    return graph
