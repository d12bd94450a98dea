"""What runs there are, also where an inbox holds what is no run, and where two runs share an id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.log.embedded import Topic
from noesium_stream.log.headers import header_text
from noesium_stream.log.prepare import Prepared
from noesium_stream.log.topics import partition_of
from noesium_stream.testing import agent_of
from noesium_stream.worker import Worker


def single() -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(dict)
    graph.add_node("node", lambda state: {"done": True})
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return graph


async def test_a_record_that_cannot_be_read_hides_no_run(tmp_path: Path) -> None:
    log = await open_log("memory://")
    async with Worker(log, [(agent_of(single()), None)], home=tmp_path), Client(log) as client:
        run = await client.start("sample", {})
        await run.result(timeout=10)
        [command, *_] = [event async for event in run.events(follow=False)]
        garbage = Prepared(log.topology.inbox("sample"), 0, run.id, header_text(command), (), b"garbage")
        await log._store.append([garbage], [0])  # type: ignore[attr-defined]
        assert [info.run_id for info in await client.list()] == [run.id]
        assert (await run.info()).status == "completed"
    await log.close()


async def test_who_waits_for_a_run_reads_its_own_partition_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://")
    async with Worker(log, [(agent_of(single()), None)], home=tmp_path), Client(log) as client:
        journal, store = log.topology.journal("sample"), log._store  # type: ignore[attr-defined]
        fetched, fetch = set(), store.fetch

        def spied(topic: Topic, partition: int, *rest: Any) -> Any:
            if topic.name == journal:
                fetched.add(partition)
            return fetch(topic, partition, *rest)

        others = [await client.start("sample", {}) for _ in range(20)]
        for run in others:
            await run.result(timeout=10)
        monkeypatch.setattr(store, "fetch", spied)
        run = await client.start("sample", {})
        own = partition_of(run.id, len(await log.end(journal)))
        await run.result(timeout=10)
        assert [event async for event in run.events()]
        assert [record async for record in run.records(follow=False)]
        assert fetched == {own}
    await log.close()


async def test_one_idempotency_key_for_two_agent_types_is_two_runs(tmp_path: Path) -> None:
    log = await open_log("memory://")
    agents = [(agent_of(single(), name), None) for name in ("one", "two")]
    async with Worker(log, agents, home=tmp_path), Client(log) as client:
        for name in ("one", "two"):
            await (await client.start(name, {}, idempotency_key="k")).result(timeout=10)
        infos = await client.list()
    await log.close()
    assert sorted((info.agent_type, info.status) for info in infos) == [
        ("one", "completed"),
        ("two", "completed"),
    ]
