"""Every call of LangGraph's `BaseStore`, on `LogStore` and on LangGraph's own `InMemoryStore`: equal answers.

`langgraph-checkpoint` ships no tests of stores (its conformance kit is about checkpointers), so these are the
calls of its documentation, one by one; `test_langgraph_store.py` makes random ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, ListNamespacesOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import AgentMemoryError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.memory import LogStore, memory_of

ITEMS: tuple[tuple[tuple[str, ...], str, dict[str, Any]], ...] = (
    (("users", "ada"), "profile", {"name": "Ada", "age": 36, "score": 1.5, "tags": ["x", "y"]}),
    (("users", "ada"), "food", {"name": "tea", "nested": {"level": {"n": 3}, "on": True}}),
    (("users", "bo"), "profile", {"name": "Bo", "age": 20, "score": -2, "none": None}),
    (("users", "bo", "notes"), "1", {"text": "one", "age": 20}),
    (("docs",), "guide", {"name": "Ada", "pages": 0}),
    (("docs", "v2", "public"), "a/b c", {"name": "ü", "age": 36.0}),
    (("docs", "v2", "secret"), "k", {"name": "Ada", "tags": ["x"]}),
)
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"name": "Ada"},
    {"name": "Ada", "age": 36},
    {"age": 36.0},
    {"age": {"$eq": 20}},
    {"age": {"$ne": 20}},
    {"tags": ["x", "y"]},
    {"tags": ["x"]},
    {"nested": {"level": {"n": 3}}},
    {"nested": {"level": {"n": {"$gte": 3}}}},
    {"nested": {"on": True}},
    {"none": None},
    {"missing": None},
    {"missing": {"$ne": 1}},
)
ORDERED: tuple[dict[str, Any], ...] = (
    {"age": {"$gt": 20}},
    {"age": {"$gte": 20}},
    {"age": {"$lt": 36}},
    {"age": {"$lte": 36}},
    {"age": {"$gt": 10, "$lt": 30}},
    {"age": {"$gt": 19.5}},
)
"""Of items that all have the field: without it LangGraph's own store raises `TypeError`."""
NAMESPACES: tuple[dict[str, Any], ...] = (
    {},
    {"prefix": ("users",)},
    {"prefix": ("users", "*")},
    {"prefix": ("*", "v2")},
    {"prefix": ("nobody",)},
    {"suffix": ("public",)},
    {"suffix": ("v2", "*")},
    {"suffix": ("ada",)},
    {"prefix": ("docs",), "suffix": ("secret",)},
    {"max_depth": 1},
    {"max_depth": 2},
    {"prefix": ("docs",), "max_depth": 2},
    {"limit": 2},
    {"limit": 2, "offset": 3},
    {"offset": 99},
    {"prefix": ("users", "bo", "notes", "deep")},
)
Call = Callable[[BaseStore], Awaitable[Any]]


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[tuple[BaseStore, BaseStore]]:
    clock = VirtualClock()
    log = await open_log("memory://", clock=clock)
    memory = memory_of(log, tmp_path, AgentRef("p", "client", "local", "i"), "agent:p", clock=clock)
    ours, theirs = LogStore(memory), InMemoryStore()
    for namespace, key, value in ITEMS:
        clock.advance(1)
        for store in (ours, theirs):
            await store.aput(namespace, key, value)
    clock.advance(1)
    yield ours, theirs
    memory.close()
    await log.close()


def plain(found: Any) -> Any:
    """An answer without times; the order of items without a query is the store's own."""
    if isinstance(found, list) and found and hasattr(found[0], "value"):
        return sorted(((one.namespace, one.key, one.value) for one in found), key=lambda one: one[:2])
    return (found.namespace, found.key, found.value) if hasattr(found, "value") else found


async def equal(stores: tuple[BaseStore, BaseStore], call: Call) -> Any:
    ours, theirs = [plain(await call(store)) for store in stores]
    assert ours == theirs
    return ours


async def test_get(stores: tuple[BaseStore, BaseStore]) -> None:
    for namespace, key, value in ITEMS:
        found = await equal(stores, lambda store, at=(namespace, key): store.aget(*at))  # type: ignore[misc]
        assert found == (namespace, key, value)
    for namespace, key in ((("users",), "profile"), (("users", "ada"), "none"), (("nobody",), "profile")):
        assert await equal(stores, lambda store, at=(namespace, key): store.aget(*at)) is None  # type: ignore[misc]


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
async def test_search_by_filter(stores: tuple[BaseStore, BaseStore], wanted: dict[str, Any]) -> None:
    for prefix in ((), ("users",), ("docs", "v2"), ("users", "bo", "notes")):
        await equal(stores, lambda store, at=prefix: store.asearch(at, filter=wanted, limit=50))  # type: ignore[misc]


@pytest.mark.parametrize("wanted", ORDERED, ids=str)
async def test_search_by_order(stores: tuple[BaseStore, BaseStore], wanted: dict[str, Any]) -> None:
    for store in stores:
        for age in (5, 20, 25.5, 36, 99):
            await store.aput(("aged",), f"k{age}", {"age": age})
    found = await equal(stores, lambda store: store.asearch(("aged",), filter=wanted))
    assert 0 < len(found) < 5
    await equal(stores, lambda store: store.asearch(("users", "bo"), filter=wanted))


async def test_pages_of_a_search(stores: tuple[BaseStore, BaseStore]) -> None:
    assert len(await equal(stores, lambda store: store.asearch(()))) == len(ITEMS)
    for store in stores:
        pages = [await store.asearch((), limit=3, offset=offset) for offset in (0, 3, 6, 9)]
        assert [len(page) for page in pages] == [3, 3, 1, 0]
        assert len({(one.namespace, one.key) for page in pages for one in page}) == len(ITEMS)
        for number in range(12):
            await store.aput(("many",), f"k{number}", {"n": number})
        assert len(await store.asearch(("many",))) == 10


@pytest.mark.parametrize("wanted", NAMESPACES, ids=str)
async def test_list_namespaces(stores: tuple[BaseStore, BaseStore], wanted: dict[str, Any]) -> None:
    await equal(stores, lambda store: store.alist_namespaces(**wanted))


async def test_a_put_replaces_and_this_store_keeps_when_it_was_made(
    stores: tuple[BaseStore, BaseStore],
) -> None:
    before = await stores[0].aget(("users", "ada"), "profile")
    for store in stores:
        await store.aput(("users", "ada"), "profile", {"name": "Ada L."})
    after = await stores[0].aget(("users", "ada"), "profile")
    assert (await equal(stores, lambda store: store.aget(("users", "ada"), "profile")))[2] == {
        "name": "Ada L."
    }
    assert before is not None
    assert after is not None
    assert (after.created_at, after.updated_at > before.updated_at) == (before.created_at, True)


async def test_a_delete_and_a_put_of_none(stores: tuple[BaseStore, BaseStore]) -> None:
    for store in stores:
        await store.adelete(("users", "ada"), "profile")
        await store.adelete(("users", "ada"), "was never there")
        await store.abatch([PutOp(("docs",), "guide", None)])
    await equal(stores, lambda store: store.aget(("users", "ada"), "profile"))
    await equal(stores, lambda store: store.asearch((), limit=50))


async def test_a_batch_answers_in_its_order_and_reads_what_was_there_before_it(
    stores: tuple[BaseStore, BaseStore],
) -> None:
    async def call(store: BaseStore) -> Any:
        found = await store.abatch(
            [
                GetOp(("users", "ada"), "food"),
                PutOp(("users", "ada"), "food", {"name": "rice"}),
                SearchOp(("users", "ada"), {"name": "rice"}, 10, 0, None),
                ListNamespacesOp(None, 1, 10, 0),
                PutOp(("users", "ada"), "food", {"name": "bread"}),
                GetOp(("users", "ada"), "food"),
            ]
        )
        return [plain(one) for one in found]

    assert (await equal(stores, call))[5][2]["name"] == "tea"
    assert (await equal(stores, lambda store: store.aget(("users", "ada"), "food")))[2] == {"name": "bread"}


async def test_index_and_life_time_of_a_put(stores: tuple[BaseStore, BaseStore]) -> None:
    ours, theirs = stores
    for store in stores:
        await store.aput(("plain",), "k", {"text": "hidden"}, index=False)
        await store.aput(("plain",), "l", {"text": "seen"}, index=["text"])
    await equal(stores, lambda store: store.asearch(("plain",)))
    assert ours.supports_ttl
    assert not theirs.supports_ttl
    with pytest.raises(NotImplementedError):
        await theirs.aput(("plain",), "m", {"text": "short"}, ttl=1)
    await ours.aput(("plain",), "m", {"text": "short"}, ttl=1)
    assert await ours.aget(("plain",), "m", refresh_ttl=False) is not None


@pytest.mark.parametrize("namespace", [(), ("",), ("a.b",), ("langgraph", "x")])
async def test_a_namespace_that_is_none_is_refused(
    stores: tuple[BaseStore, BaseStore], namespace: tuple[str, ...]
) -> None:
    for store in stores:
        with pytest.raises(InvalidNamespaceError):
            await store.aput(namespace, "k", {"v": 1})


async def test_an_operator_that_is_none_is_refused(stores: tuple[BaseStore, BaseStore]) -> None:
    for store, error in zip(stores, (AgentMemoryError, ValueError), strict=True):
        with pytest.raises(error):
            await store.asearch(("users",), filter={"age": {"$in": [1]}})
