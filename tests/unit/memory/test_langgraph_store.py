"""LangGraph's store over memory: it answers as LangGraph's own, and commits with the step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from noesium_stream import AgentMemoryError, BaseGraphicAgent
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.clock import VirtualClock
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.memory import LogStore, memory_of
from noesium_stream.testing import Rehearsal

names = st.sampled_from(["a", "b", "ü/%", "c d"])
namespaces = st.lists(names, min_size=1, max_size=3).map(tuple)
values = st.fixed_dictionaries({"n": st.integers(0, 3), "t": st.sampled_from(["x", "y"])})
filters = st.none() | st.sampled_from(
    [{"t": "x"}, {"n": {"$gte": 2}}, {"n": {"$lt": 1}}, {"n": {"$ne": 1}, "t": {"$eq": "y"}}, {"n": 9}]
)
rules = st.builds(
    MatchCondition,
    match_type=st.sampled_from(["prefix", "suffix"]),
    path=st.lists(names | st.just("*"), min_size=1, max_size=2).map(tuple),
)
operations = st.one_of(
    st.builds(GetOp, namespace=namespaces, key=names),
    st.builds(
        PutOp,
        namespace=namespaces,
        key=names,
        value=st.none() | values,
        index=st.none(),
        ttl=st.sampled_from([None, 9e9]),
    ),
    st.builds(
        SearchOp,
        namespace_prefix=st.lists(names, max_size=2).map(tuple),
        filter=filters,
        limit=st.just(100),
        offset=st.just(0),
        query=st.none(),
    ),
    st.builds(
        ListNamespacesOp,
        match_conditions=st.none() | st.lists(rules, min_size=1, max_size=2).map(tuple),
        max_depth=st.none() | st.integers(1, 2),
        limit=st.just(100),
        offset=st.just(0),
    ),
)


def plain(op: Op, found: Any) -> Any:
    """A result without times; the order of a search without a query is the store's own."""
    if isinstance(op, SearchOp):
        return sorted((one.namespace, one.key, sorted(one.value.items())) for one in found)
    if isinstance(op, GetOp):
        return None if found is None else (found.namespace, found.key, found.value)
    return found


async def answers(folder: Path, batches: list[list[Op]]) -> list[list[Any]]:
    clock = VirtualClock()
    log = await open_log("memory://", clock=clock)
    memory = memory_of(log, folder, AgentRef("p", "client", "local", "i"), "agent:p", clock=clock)
    store = LogStore(memory)
    try:
        found = []
        for batch in batches:
            clock.advance(1)
            found.append([plain(op, one) for op, one in zip(batch, await store.abatch(batch), strict=True)])
        return found
    finally:
        memory.durable.store.close()
        await log.close()


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(batches=st.lists(st.lists(operations, min_size=1, max_size=5), min_size=1, max_size=5))
def test_it_answers_as_langgraphs_own_store(
    batches: list[list[Op]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    theirs = InMemoryStore()
    wanted = [
        [plain(op, one) for op, one in zip(batch, theirs.batch(batch), strict=True)] for batch in batches
    ]
    kept = [[one for one in batch] for batch in wanted]
    found = asyncio.run(answers(tmp_path_factory.mktemp("store"), batches))
    for number, batch in enumerate(batches):
        for place, op in enumerate(batch):
            if isinstance(op, ListNamespacesOp):
                # LangGraph's store keeps a namespace whose items were all deleted, or only asked for.
                assert set(found[number][place]) <= set(kept[number][place])
            else:
                assert found[number][place] == kept[number][place]


class Asked(TypedDict, total=False):
    name: str
    found: Any


class Keeper(BaseGraphicAgent):
    """Keeps names in LangGraph's store, in a sync node and in an async one."""

    agent_type = "keeper"

    def get_state_class(self) -> type[Asked]:
        return Asked

    def _build_graph(self) -> StateGraph[Any]:
        graph = StateGraph(Asked)
        graph.add_node("keep", keep)
        graph.add_node("find", find)
        graph.add_edge(START, "keep")
        graph.add_edge("keep", "find")
        return graph


def keep(asked: Asked, *, store: BaseStore) -> dict[str, Any]:
    store.put(("users", "ada"), "name", {"text": asked["name"]})
    item = store.get(("users", "ada"), "name")
    return {"found": [None if item is None else item.value["text"]]}


async def find(asked: Asked, *, store: BaseStore) -> dict[str, Any]:
    hits = await store.asearch(("users",), query=asked["name"])
    return {"found": [*asked["found"], [one.value["text"] for one in hits], await store.alist_namespaces()]}


async def test_a_put_commits_with_its_step_and_a_replay_reads_the_same() -> None:
    async with Rehearsal(Keeper) as rehearsal:
        first = await rehearsal.start({"name": "Bo"})
        assert (await first.result())["found"] == ["Bo", ["Bo"], [["users", "ada"]]]
        rehearsal.clock.advance(1)
        rehearsal.crash_after("memory.written", 1)
        second = await rehearsal.start({"name": "Bea"})
        assert (await second.result())["found"] == ["Bea", ["Bea"], [["users", "ada"]]]
        for run in (first, second):
            handle = await rehearsal.client.get_run(run.id)
            assert (await verify(handle, agent_target(Keeper, rehearsal.log))).difference is None


async def test_times_of_life_names_and_the_loop(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = await open_log("memory://", clock=clock)
    memory = memory_of(log, tmp_path, AgentRef("p", "client", "local", "i"), "agent:p", clock=clock)
    store = LogStore(memory)
    await store.aput(("a",), "k", {"v": 1}, ttl=2)
    clock.advance(60)
    await store.aput(("a",), "kept", {"v": 2})
    first = await store.aget(("a",), "k")
    assert first is not None
    clock.advance(61)
    assert await store.aget(("a",), "k") is None
    await store.aput(("a",), "kept", {"v": 3})
    again = await store.aget(("a",), "kept")
    assert again is not None
    assert (again.updated_at - again.created_at).total_seconds() == 61
    assert await asyncio.to_thread(store.get, ("a",), "kept") == again
    with pytest.raises(AgentMemoryError, match="on the event loop"):
        store.get(("a",), "kept")
    with pytest.raises(InvalidNamespaceError):
        await store.abatch([GetOp(("a.b",), "k")])
    with pytest.raises(AgentMemoryError, match="no comparison"):
        await store.asearch(("a",), filter={"v": {"$regex": ".*"}})
    await log.close()
