"""Of many runs that wait in a partition, all but a few are evicted before the minute is over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.event.standard import Capability
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from noesium_stream.worker.runs import eviction
from noesium_stream.worker.runs.eviction import CROWDED_IDLE_S, IDLE_S, SOON_IDLE_S
from noesium_stream.worker.runs.open_runs import OpenRuns
from tests.support.evicting import Host, State, evict_at_once, reached, types
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    log = await open_log("memory://")
    yield Host(log, tmp_path)
    await log.close()


async def asking(state: dict[str, Any]) -> dict[str, Any]:
    return {"value": (await current_step().interrupt("Go on?")).answered_by}


async def test_of_a_crowd_those_that_came_last_stay_loaded_for_the_minute(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "CROWD", 3)
    async with host.worker(asking), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(80)]
        for run in runs:
            await reached(run, "approval.requested")
        await host.idle_for(CROWDED_IDLE_S * 0.9)
        assert host.evicted == 0
        await host.idle_for(CROWDED_IDLE_S)
        assert all(len(owner.runs.loaded) <= 3 for owner in host.owners)
        assert len(host.loaded) == len(runs) - host.evicted
        order = [run.id for run in runs]
        for owner in host.owners:
            began = [
                run_id for run_id in order if run_id in owner.runs.loaded or run_id in owner.runs.eviction
            ]
            assert set(began[-3:]) == set(owner.runs.loaded)
        await host.idle_for(IDLE_S - 2 * CROWDED_IDLE_S)
        assert host.loaded
        await host.idle_for(CROWDED_IDLE_S)
        assert not host.loaded
        for run in runs:
            await run.approve(by="ann")
        for run in runs:
            assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"
            assert (await types(run)).count("approval.answered") == 1


async def test_a_crowd_is_looked_for_as_soon_as_it_waits(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "SWEEP_S", 3_600.0)
    evict_at_once(monkeypatch, 1)
    async with host.worker(asking), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(40)]
        await eventually(lambda: sum(owner.open_runs for owner in host.owners) == len(runs))
        await eventually(lambda: all(len(owner.runs.loaded) <= 1 for owner in host.owners))
        for run in runs:
            await run.approve(by="ann")
            assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"


async def test_a_run_that_is_woken_again_and_again_is_read_back_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": [await current_step().signal("n") for _ in range(7)]}

    monkeypatch.setattr(eviction, "CROWD", 0)
    read: Counter[str] = Counter()
    bring_back = OpenRuns.bring_back

    def counted(owner: OpenRuns, run_id: str, records: Any) -> Any:
        read[run_id] += 1
        return bring_back(owner, run_id, records)

    def evicted_after(seconds: float) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            await host.idle_for(seconds)
            return host.evicted == 1

        return look

    monkeypatch.setattr(OpenRuns, "bring_back", counted)
    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await host.evicts(1)
        for number in range(4):
            host.clock.advance(1)
            await run.signal("n", number)
            await reached(run, "run.signalled", number + 1)
            await host.idle_for(SOON_IDLE_S - 2)
            assert host.evicted == 0
        assert read == {run.id: 1}
        await host.evicts(1)
        for number in (4, 5):
            host.clock.advance(SOON_IDLE_S)  # not soon
            await run.signal("n", number)
            await reached(run, "run.signalled", number + 1)
            begun_s = host.clock.monotonic()
            await eventually(evicted_after(CROWDED_IDLE_S))
            assert host.clock.monotonic() - begun_s < SOON_IDLE_S
        await run.signal("n", 6)
        assert (await run.result(timeout=PATIENCE_S))["value"] == list(range(7))
        assert read == {run.id: 4}


async def test_a_run_that_waits_for_another_agent_stays_a_little_longer(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": await current_step().invoke("x.y", {})}

    graph = StateGraph(State)
    graph.add_node("ask", asking)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    provider = agent_from_graph(graph, "provider")
    schema = {"type": "object"}
    provider.capabilities = (Capability(id="x.y", input_schema=schema, output_schema=schema),)
    monkeypatch.setattr(eviction, "CROWD", 0)
    async with (
        Worker(host.log, [provider], home=host.home, clock=host.clock),
        host.worker(call),
        Client(host.log) as client,
    ):
        runs = [await client.start("sample", {}) for _ in range(10)]
        for run in runs:
            await reached(run, "capability.invoked")
        await host.idle_for(SOON_IDLE_S * 0.9)
        assert host.evicted == 0
        await host.evicts(len(runs))

        async def all_asked() -> bool:
            return len(await client.approvals()) == len(runs)

        await eventually(all_asked)
        for question in await client.approvals():
            await (await client.get_run(question.run_id)).approve(by="ann")
        for run in runs:
            assert (await run.result(timeout=PATIENCE_S))["value"]["value"] == "ann"


async def test_timers_of_a_crowd_fire(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nap(state: dict[str, Any]) -> None:
        await current_step().sleep(timedelta(seconds=4))
        await current_step().sleep(timedelta(seconds=50))

    evict_at_once(monkeypatch, 1)
    async with host.worker(nap), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(40)]
        for number, seconds in enumerate((4, 50)):
            for run in runs:
                await reached(run, "timer.started", number + 1)
            await eventually(lambda: all(len(owner.runs.loaded) <= 1 for owner in host.owners))
            host.clock.advance(seconds)
        for run in runs:
            await run.result(timeout=PATIENCE_S)
            assert (await types(run)).count("timer.fired") == 2


async def test_answers_that_come_while_a_crowd_is_being_evicted_wake_their_runs(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": [await current_step().signal("n") for _ in range(8)]}

    evict_at_once(monkeypatch)
    async with host.worker(node), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(12)]
        for number in range(8):
            for turns, run in enumerate(runs):
                # Each at another moment of being evicted, or of being read back for the signal before.
                for _ in range(turns):
                    await asyncio.sleep(0)
                await run.signal("n", number)
        for run in runs:
            assert (await run.result(timeout=PATIENCE_S))["value"] == list(range(8))
    assert host.evicted == 0


async def test_a_run_that_was_brought_back_for_a_record_stays_until_it_has_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict_at_once(monkeypatch)
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {})
        await eventually(lambda: host.evicted == 1)
        [owner] = [owner for owner in host.owners if owner.evicted_runs]
        eviction_of_owner = owner.runs.eviction
        assert eviction_of_owner is not None
        with eviction_of_owner.staying([run.id]):
            await eviction_of_owner.bring_back([run.id])
            await eventually(lambda: host.loaded[0].only_waits())
            for _ in range(3):
                await host.idle_for(10 * IDLE_S)
            assert host.evicted == 0
        await host.evicts()
        await run.approve(by="ann")
        assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"


async def test_a_run_in_which_a_step_begins_or_that_was_woken_is_not_evicted(host: Host) -> None:
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {})
        await eventually(lambda: any(session.only_waits() for session in host.loaded))
        [session] = host.loaded
        other = object()
        session.activity.enter(other, None)
        await host.idle_for()
        assert host.evicted == 0
        session.activity.leave(other)
        host.clock.advance(IDLE_S)
        session.wake()
        host.clock.advance(IDLE_S)
        host.sweep()  # its tasks have not looked yet what has come
        assert host.evicted == 0
        await host.evicts()
        await run.approve(by="ann")
        assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"
