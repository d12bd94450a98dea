"""Who owns which partition, and how it stands, as others see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, OwnedPartition
from noesium_stream.client.views.workers import MISSED
from noesium_stream.clock import SystemClock, VirtualClock
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.members import this_process
from noesium_stream.worker import Worker, host
from tests.support.handlers import Sold, Watcher, append_by_key
from tests.support.reading import PATIENCE_S


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HEARTBEAT_S", 0.05)


async def listed(client: Client, wanted: Callable[[OwnedPartition], bool]) -> list[OwnedPartition]:
    """The partitions, as soon as one of them stands as wanted."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = list(await client.workers())
            if any(map(wanted, found)):
                return found
            await asyncio.sleep(0.01)


async def test_a_partition_shows_its_owner_its_lag_and_what_is_at_work(tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(state: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        await go_on.wait()
        return {"done": True}

    graph = StateGraph(dict)
    graph.add_node("slow", slow)
    graph.add_edge(START, "slow")
    log = await open_log("memory://")
    async with Client(log) as client:
        assert await client.workers() == []
        run = await client.start("sample", {})
        waiting = [one for one in await client.workers() if one.epoch is None and one.owner is None]
        assert len(waiting) == len(await client.workers()) > 1
        assert sorted(one.lag or 0 for one in waiting)[-2:] == [0, 1]
        async with Worker(log, [agent_from_graph(graph, "sample")], home=tmp_path):
            await begun.wait()
            found = await listed(client, lambda one: one.open_runs == 1 and one.lag == 0)
            (busy,) = [one for one in found if one.open_runs]
            assert (busy.agent_type, busy.owner, busy.epoch, busy.lag) == ("sample", this_process(), 1, 0)
            assert busy.oldest_step is not None
            go_on.set()
            await run.result(timeout=PATIENCE_S)
            found = await listed(client, lambda one: one.partition == busy.partition and one.open_runs == 0)
            assert [one.oldest_step for one in found] == [None] * len(found)
        assert {(one.owner, one.lag) for one in await client.workers()} == {(None, 0)}
        async with Worker(log, [agent_from_graph(graph, "sample")], home=tmp_path):
            await listed(client, lambda one: one.epoch == 2)
    await log.close()


async def test_what_waits_where_nobody_is_the_owner_is_counted_from_the_journal(tmp_path: Path) -> None:
    log = await open_log("memory://?partitions=1")
    agent = agent_from_graph(
        StateGraph(dict).add_node("quick", lambda state: {"done": True}).add_edge(START, "quick"), "sample"
    )
    async with Client(log) as client:

        async def lag() -> int | None:
            [one] = await client.workers()
            assert one.owner is None
            return one.lag

        for expected in (0, 3):  # without a journal, and behind what it has
            runs = [await client.start("sample", {}) for _ in range(3)]
            assert await lag() == 3
            async with Worker(log, [agent], home=tmp_path):
                for run in runs:
                    await run.result(timeout=PATIENCE_S)
            assert await lag() == 0, expected
        await runs[0].signal("late", 1)
        assert await lag() == 1
        async with Worker(log, [agent], home=tmp_path):
            pass
        await log.truncate(log.topology.inbox("sample"), {0: 7})
        assert await lag() == 0
    await log.close()


async def test_what_nobody_has_handled_of_a_handler_s_topic_is_counted(tmp_path: Path) -> None:
    log = await open_log("memory://?partitions=1")
    log.catalogue.register(Sold)
    sold = [("a", Sold(amount=1))]
    await append_by_key(log, sold * 2)
    async with Client(log) as client:
        async with Worker(log, [Watcher], home=tmp_path):
            await listed(client, lambda one: one.lag == 0)
        await append_by_key(log, sold * 3)
        [one] = await client.workers()
        assert (one.topic, one.owner, one.lag) == (log.topology.events("sales"), None, 3)
    await log.close()


async def test_a_run_that_waits_is_open_and_not_at_work(tmp_path: Path) -> None:
    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        return {"said": await current_step().signal("go")}

    graph = StateGraph(dict)
    graph.add_node("asks", asks)
    graph.add_edge(START, "asks")
    log = await open_log("memory://")
    async with (
        Worker(log, [agent_from_graph(graph, "sample")], home=tmp_path),
        Client(log) as client,
    ):
        run = await client.start("sample", {})
        await listed(client, lambda one: one.open_runs == 1 and one.oldest_step is None)
        await run.signal("go", 1)
        await run.result(timeout=PATIENCE_S)
    await log.close()


async def test_what_a_worker_said_long_ago_is_not_believed(tmp_path: Path) -> None:
    graph = StateGraph(dict)
    graph.add_node("quick", lambda state: {"done": True})
    graph.add_edge(START, "quick")
    log = await open_log("memory://")
    later = VirtualClock(start_ms=SystemClock().now_ms() + 1_000 * (MISSED + 60))
    async with Worker(log, [agent_from_graph(graph, "sample")], home=tmp_path):
        async with Client(log) as client:
            await listed(client, lambda one: one.epoch == 1)
        async with Client(log, clock=later) as client:
            found = await client.workers(agent_type="sample")
    assert {(one.owner, one.epoch) for one in found} == {(this_process(), None)}
    await log.close()


async def test_what_an_owner_cannot_go_on_with_is_shown_with_who_carries_it(tmp_path: Path) -> None:
    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        return {"said": await current_step().signal("go")}

    old = agent_from_graph(StateGraph(dict).add_node("old", asks).add_edge(START, "old"), "sample")
    new = agent_from_graph(
        StateGraph(dict).add_node("new", asks).add_edge(START, "new"), "sample", version="2.0.0"
    )
    log = await open_log("memory://?partitions=1")
    async with Client(log) as client:
        async with Worker(log, [new], home=tmp_path):
            run = await client.start("sample", {})
            async for event in run.events():
                if event.event_type == "kernel.node.entered":
                    break
        async with Worker(log, [old], home=tmp_path):
            await client.start("sample", {}, version="^3")
            (one,) = await listed(client, lambda one: one.held_up == 2 and not one.carried_by)
            version, command = one.waits_for
            assert version.startswith("sample 2.0.0 (")
            assert command == "a worker that carries version ^3 of sample"
            async with Worker(log, [new], home=tmp_path):  # the group leaves it where it is
                (one,) = await listed(client, lambda one: bool(one.carried_by))
                assert (one.held_up, one.carried_by) == (2, (this_process(),))
        async with Worker(log, [old], home=tmp_path, other_versions=[new]):
            await run.signal("go", "on")
            await run.result(timeout=PATIENCE_S)
            await listed(client, lambda one: one.held_up == 1)
    await log.close()
