"""Runs that only wait are evicted after a minute, and nobody can tell: they live on the log."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import CommitUnknownError, FencedError, RunCancelledError, RunFailedError
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.kernel import RunHistory, current_step, kernel_compensation, kernel_node
from noesium_stream.kernel.step.step import Step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.eviction import IDLE_S
from noesium_stream.worker.runs.run_session import RunSession
from tests.support.evicting import Host, State, evict_at_once, reached, types
from tests.support.failing import FailingLog
from tests.support.reading import PATIENCE_S, eventually
from tests.support.set_clock import SetClock

DAY = timedelta(days=1)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    log = await open_log("memory://")
    yield Host(log, tmp_path)
    await log.close()


async def asking(state: dict[str, Any]) -> dict[str, Any]:
    return {"value": (await current_step().interrupt("Go on?")).answered_by}


async def test_an_answer_brings_an_evicted_run_back_and_nothing_is_written_for_that(
    host: Host,
) -> None:
    async def sibling(state: dict[str, Any]) -> None:
        host.bodies["sibling"] += 1

    async with host.worker(asking, sibling), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        await reached(run, "kernel.node.completed")
        before = await types(run)
        await host.evicts()
        assert host.loaded == []
        assert sum(owner.open_runs for owner in host.owners) == 1
        assert await types(run) == before
        await run.approve(by="ann")
        assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"
        after = await types(run)
    assert host.bodies == {"sibling": 1}
    assert after[: len(before) + 1] == [*before, "approval.answered"]
    assert after.count("kernel.node.entered") == 2


async def test_a_run_is_evicted_a_minute_after_the_last_record_of_it_and_not_before(host: Host) -> None:
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        await host.idle_for(IDLE_S - 1)
        assert host.evicted == 0
        await host.idle_for(1)
        assert host.evicted == 1


async def test_the_sleep_of_an_evicted_run_is_no_longer_if_the_clock_is_set_back(host: Host) -> None:
    async def sleeping(state: dict[str, Any]) -> dict[str, Any]:
        await current_step().sleep(2 * timedelta(seconds=IDLE_S))
        return {"value": "slept"}

    host.clock = clock = SetClock()
    async with host.worker(sleeping), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "timer.started")
        await host.evicts()
        clock.ahead_s = -3_600.0
        await clock.move(IDLE_S)
        assert (await run.result(timeout=PATIENCE_S))["value"] == "slept"


def in_memory() -> list[object]:
    """The sessions, histories and steps of runs that there are; who holds the list keeps them there."""
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, RunSession | RunHistory | Step)]


async def test_after_a_minute_neither_session_nor_task_nor_history_of_a_run_is_in_memory(host: Host) -> None:
    of_others = in_memory()  # of tests before
    async with host.worker(asking), Client(host.log) as client:
        runs = [await client.start("sample", {"value": number}) for number in range(20)]
        for run in runs:
            await reached(run, "approval.requested")
        await eventually(lambda: sum(session.only_waits() for session in host.loaded) == len(runs))
        assert len(in_memory()) == len(of_others) + 3 * len(runs)
        await host.evicts(len(runs))
        await eventually(lambda: len(in_memory()) == len(of_others))
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("run ")]
        for run in runs:
            await run.approve(by="ann")
            assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"


async def test_signals_and_questions_wake_it_again_and_again(host: Host) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        host.bodies["node"] += 1
        first = await step.signal("go")
        answer = await step.interrupt("Go on?")
        second = await step.signal("go")
        return {"value": [first, answer.value, second]}

    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await host.evicts()
        await run.signal("go", 1)
        await reached(run, "approval.requested")
        await host.evicts()
        await run.approve(value=2)
        await reached(run, "approval.answered")
        await host.evicts()
        await run.signal("go", 3)
        assert (await run.result(timeout=PATIENCE_S))["value"] == [1, 2, 3]
    assert host.bodies["node"] == 4


async def test_a_deadline_brings_an_evicted_run_back(host: Host) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        await step.sleep(DAY)
        answer = await step.interrupt("Go on?", timeout=DAY, on_timeout="decline")
        return {"value": answer.decision}

    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "timer.started")
        await host.evicts()
        host.clock.advance(DAY.total_seconds())
        await reached(run, "approval.requested")
        await host.evicts()
        host.clock.advance(DAY.total_seconds())
        assert (await run.result(timeout=PATIENCE_S))["value"] == "decline"
        found = await types(run)
    assert found.count("timer.fired") == found.count("approval.expired") == 1


async def test_cancel_ends_an_evicted_run_as_a_loaded_one(host: Host) -> None:
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        await host.evicts()
        await run.cancel("not needed")
        with pytest.raises(RunCancelledError, match="not needed"):
            await run.result(timeout=PATIENCE_S)
        found = await types(run)
    assert found[-2:] == ["run.cancel.requested", "run.cancelled"]


async def test_a_repeated_command_for_an_evicted_run_is_no_second_run(host: Host) -> None:
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {}, idempotency_key="once")
        await reached(run, "approval.requested")
        await host.evicts()
        await client.start("sample", {}, idempotency_key="once")
        await run.approve(by="ann")
        assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"
        assert (await types(run)).count("run.started") == 1


async def test_a_caller_that_waits_for_an_evicted_provider_gets_its_answer(host: Host) -> None:
    async def call(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": await current_step().invoke("x.y", {})}

    graph = StateGraph(State)
    graph.add_node("ask", asking)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    provider = agent_from_graph(graph, "provider")
    schema = {"type": "object"}
    provider.capabilities = (Capability(id="x.y", input_schema=schema, output_schema=schema),)
    async with (
        Worker(host.log, [provider], home=host.home, clock=host.clock) as other,
        host.worker(call),
        Client(host.log) as client,
    ):
        run = await client.start("sample", {})
        await reached(run, "capability.invoked")
        await eventually(client.approvals)
        await host.evicts()
        [question] = await client.approvals()
        caller, host.current = host.current, other
        await host.evicts()
        host.current = caller
        assert host.evicted == 1
        await (await client.get_run(question.run_id)).approve(by="ann")
        assert (await run.result(timeout=PATIENCE_S))["value"]["value"] == "ann"


async def test_an_effect_or_a_step_at_work_beside_a_wait_keeps_the_run_loaded(host: Host) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def outside() -> str:
        begun.set()
        await gate.wait()
        return "done"

    async def effect(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        done, _ = await asyncio.gather(
            step.effect("outside", outside, effect_class=SideEffectClass.EXTERNAL), step.signal("go")
        )
        return {"other": done}

    async def busy(state: dict[str, Any]) -> None:
        await current_step().effect("inside", lambda: None)  # after it nothing is left to be written
        await gate.wait()

    for nodes in ((asking, effect), (asking, busy)):
        async with host.worker(*nodes), Client(host.log) as client:
            run = await client.start("sample", {})
            await reached(run, "approval.requested")
            if effect in nodes:
                await asyncio.wait_for(begun.wait(), PATIENCE_S)
            else:
                await reached(run, "effect.completed")
            for _ in range(3):
                await host.idle_for(10 * IDLE_S)
            assert host.evicted == 0
            gate.set()
            await host.evicts()
            await run.signal("go")
            await run.approve(by="ann")
            assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"
            gate.clear()


async def test_records_that_come_while_a_run_is_evicted_or_read_back_are_not_lost(host: Host) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        return {"value": [await step.signal("n") for _ in range(30)]}

    async with host.worker(node), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(20)]
        for run in runs:
            await reached(run, "kernel.node.entered")
        for number in range(30):
            # Time passes, and sweeps come, at every moment between a record and its delivery.
            sending = asyncio.gather(*(run.signal("n", number) for run in runs))
            while not sending.done():
                await asyncio.sleep(0)
                host.sweep()
                host.clock.advance(IDLE_S)
            await sending
            if number % 10 == 0:
                await host.evicts(20)
        for run in runs:
            assert (await run.result(timeout=PATIENCE_S))["value"] == list(range(30))


async def test_a_run_is_not_evicted_while_a_record_for_it_is_on_its_way(tmp_path: Path) -> None:
    inner = await open_log("memory://")
    failing = FailingLog(inner, lambda *_: False, RuntimeError("never"), reaches_log=False)
    host = Host(failing, tmp_path)  # type: ignore[arg-type]
    async with host.worker(asking), Client(inner) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        failing.gate.clear()
        await run.approve(by="ann")
        await eventually(lambda: any(session.held for session in host.loaded))
        for _ in range(3):
            await host.idle_for(10 * IDLE_S)
        assert host.evicted == 0
        failing.gate.set()
        assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"
    await inner.close()


async def test_a_run_that_was_evicted_when_the_partition_was_lost_goes_on(tmp_path: Path) -> None:
    inner = await open_log("memory://")
    lost = CommitUnknownError("told to")
    wanted = False
    failing = FailingLog(inner, lambda *_: wanted, lost, reaches_log=True)
    host = Host(failing, tmp_path)  # type: ignore[arg-type]
    async with host.worker(asking), Client(inner) as client:
        runs = [await client.start("sample", {}) for _ in range(3)]
        for run in runs:
            await reached(run, "approval.requested")
        await host.evicts(3)
        wanted = True
        for run in runs:
            await run.approve(by="ann")
        await eventually(lambda: failing.failed)
        host.clock.advance(5)
        for run in runs:
            with_clock = asyncio.ensure_future(run.result(timeout=PATIENCE_S))
            while not with_clock.done():
                await asyncio.sleep(0.01)
                host.clock.advance(1)
            assert (await with_clock)["value"] == "ann"
            assert (await types(run)).count("approval.answered") == 1
    await inner.close()


async def test_evicted_runs_go_on_with_the_next_worker(host: Host) -> None:
    async with Client(host.log) as client:
        async with host.worker(asking):
            run = await client.start("sample", {})
            await reached(run, "approval.requested")
            await host.evicts()
        await run.approve(by="ann")
        async with host.worker(asking):
            assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"


async def test_a_node_with_a_timeout_runs_out_of_time_however_many_wait(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    @kernel_node(timeout=timedelta(seconds=0.3))
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": await current_step().signal("never")}

    evict_at_once(monkeypatch)
    async with host.worker(node), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(3)]
        for run in runs:
            with pytest.raises(RunFailedError, match="NodeTimedOutError"):
                await run.result(timeout=PATIENCE_S)


async def booked() -> int:
    return 7


async def undo_asks(state: dict[str, Any]) -> None:
    await current_step().interrupt("Undo it?")


def undoing() -> Any:
    graph = StateGraph(State)
    graph.add_node("ask", undo_asks)
    graph.add_edge(START, "ask")
    return graph.compile()


UNDOING = kernel_compensation(timeout=timedelta(seconds=0.3))(undoing())


async def test_a_graph_that_undoes_runs_out_of_its_time_while_it_waits(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def node(state: dict[str, Any]) -> None:
        await current_step().effect("book", booked, compensate=f"{__name__}:UNDOING")
        raise LookupError("told to fail")

    evict_at_once(monkeypatch)
    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "effect.failed")
        [left] = await run.unresolved_effects()
        assert left.name == "undo book"


async def test_an_answer_is_not_lost_with_the_partition_while_its_run_is_read_back(host: Host) -> None:
    graph = StateGraph(State).add_node(asking).add_edge(START, "asking")
    agents: list[Any] = [agent_from_graph(graph)]
    said: list[str] = []
    host.current = Worker(
        host.log, agents, home=host.home, clock=host.clock, keep_state=True, progress=said.append
    )
    async with host.current, Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        await host.evicts()
        [owner] = [owner for owner in host.owners if owner.evicted_runs]
        reading = asyncio.Event()

        async def for_ever(run_ids: Any) -> Any:
            reading.set()
            await asyncio.Event().wait()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner.runs, "read_runs", for_ever)
            await run.approve(by="ann")
            await reading.wait()
            owner.writer.lose(FencedError("lost"))
            await eventually(lambda: owner not in host.owners)

        def taken_again() -> bool:
            host.clock.advance(0.1)
            return any("taking it again" in line for line in said)

        await eventually(taken_again)
        assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"
