"""What runs there are, also where an inbox holds what is no run, and where two runs share an id."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import InputDiffersError, RunNotFoundError, RunTimeoutError
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import RunRequested
from noesium_stream.log import open_log
from noesium_stream.log.embedded.store import Topic
from noesium_stream.log.prepare import Prepared, header_text
from noesium_stream.log.topics import partition_of
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S
from tests.support.stores import inject, store_of


def single() -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(dict)
    graph.add_node("node", lambda state: {"done": True})
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return graph


async def test_a_record_that_cannot_be_read_hides_no_run(tmp_path: Path) -> None:
    log = await open_log("memory://")
    async with Worker(log, [agent_from_graph(single())], home=tmp_path), Client(log) as client:
        run = await client.start("sample", {})
        await run.result(timeout=PATIENCE_S)
        [command, *_] = [event async for event in run.events(follow=False)]
        garbage = Prepared(log.topology.inbox("sample"), 0, run.id, header_text(command), (), b"garbage")
        await inject(log, garbage)
        assert [info.run_id for info in await client.list_runs()] == [run.id]
        assert (await run.info()).status == "completed"
    await log.close()


async def test_who_waits_for_a_run_reads_its_own_partition_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://")
    async with Worker(log, [agent_from_graph(single())], home=tmp_path), Client(log) as client:
        journal, store = log.topology.journal("sample"), store_of(log)
        fetched, fetch = set(), store.fetch

        def spied(topic: Topic, partition: int, *rest: Any) -> Any:
            if topic.name == journal:
                fetched.add(partition)
            return fetch(topic, partition, *rest)

        others = [await client.start("sample", {}) for _ in range(20)]
        for run in others:
            await run.result(timeout=PATIENCE_S)
        monkeypatch.setattr(store, "fetch", spied)
        run = await client.start("sample", {})
        own = partition_of(run.id, len(await log.end(journal)))
        await run.result(timeout=PATIENCE_S)
        assert [event async for event in run.events()]
        assert [record async for record in run.records(follow=False)]
        assert fetched == {own}
    await log.close()


async def test_one_idempotency_key_for_two_agent_types_is_two_runs(tmp_path: Path) -> None:
    log = await open_log("memory://")
    agents = [agent_from_graph(single(), name) for name in ("one", "two")]
    async with Worker(log, agents, home=tmp_path), Client(log) as client:
        runs = [await client.start(name, {}, idempotency_key="k") for name in ("one", "two")]
        for run in runs:
            await run.result(timeout=PATIENCE_S)
            assert (await client.get_run(run.id)).agent_type == run.agent_type
        infos = await client.list_runs()
    await log.close()
    assert runs[0].id != runs[1].id
    assert sorted((info.agent_type, info.status) for info in infos) == [
        ("one", "completed"),
        ("two", "completed"),
    ]


async def test_two_runs_that_share_an_id_are_told_apart_by_their_agent_types(tmp_path: Path) -> None:
    log = await open_log("memory://")
    async with Client(log) as client:
        for name in ("one", "two"):
            topology = log.topology
            await log.ensure_topics(
                [topology.spec(topology.inbox(name)), topology.spec(topology.journal(name))]
            )
            asked = RunRequested(run_id="shared-1", agent_type=name, input={})
            trace = TraceContext("1" * 32, "2" * 16)
            command = asked.to_envelope(
                AgentRef("client", "client"), trace, partition_key="shared-1", metadata={"to": name}
            )
            await log.append([command])
        with pytest.raises(RunNotFoundError, match="Runs of one, two have the id shared-1") as told:
            await client.get_run("shared-1")
        assert told.value.hint == "Say whose: one:shared-1 or two:shared-1"
        for name in ("one", "two"):
            assert (await client.get_run(f"{name}:shared")).agent_type == name
        with pytest.raises(RunNotFoundError, match="no run shared-1 of three"):
            await client.get_run("three:shared-1")
    await log.close()


async def test_the_first_input_of_a_key_counts_before_and_after_a_worker_has_it(tmp_path: Path) -> None:
    log = await open_log("memory://")
    async with Client(log) as client:
        first = await client.start("sample", {"n": 1, "m": 2}, idempotency_key="k")
        await client.start("sample", {"n": 5}, idempotency_key="k")
        for _ in range(2):
            await first.check_input({"m": 2, "n": 1})
            with pytest.raises(InputDiffersError, match=first.id):
                await first.check_input({"n": 5})
            async with Worker(log, [agent_from_graph(single())], home=tmp_path):
                await first.result(timeout=PATIENCE_S)
    await log.close()


async def test_a_run_that_has_ended_has_its_result_also_for_who_waits_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://")
    end = log.end

    async def of_a_broker(topic: str) -> dict[int, int]:
        for _ in range(5):
            await asyncio.sleep(0)  # an answer that does not come in the same turn of the event loop
        return await end(topic)

    monkeypatch.setattr(log, "end", of_a_broker)
    async with Client(log) as client:
        async with Worker(log, [agent_from_graph(single())], home=tmp_path):
            run = await client.start("sample", {})
            await run.result(timeout=PATIENCE_S)
        assert (await (await client.get_run(run.id)).result(timeout=0))["done"]
        open_run = await client.start("sample", {})
        with pytest.raises(RunTimeoutError, match="no outcome after 0 s"):
            await open_run.result(timeout=0)
    await log.close()
