"""A node is run without callbacks where nobody listens, and with them where somebody does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypedDict

import pytest
from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.graph import END, START, StateGraph
from langgraph.pregel._read import PregelNode

from noesium_stream.kernel import DurableGraph
from noesium_stream.kernel.graph.durable_graph import UnwatchedNode, unwatched
from tests.support.journal import ListJournal

SET_BY_A_NODE: ContextVar[str] = ContextVar("set_by_a_node", default="nothing")


class State(TypedDict, total=False):
    n: int
    seen: Any


class Listener(BaseCallbackHandler):
    """Hears what begins and ends."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended = 0

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self.begun.append(kwargs["name"])

    def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        self.ended += 1


async def plus_one(state: State) -> State:
    return {"n": state["n"] + 1}


def two(first: Any = plus_one, second: Any = plus_one) -> Any:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_conditional_edges("first", lambda state: "second")
    graph.add_edge("second", END)
    return graph.compile()


@pytest.fixture
def managers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What callback managers are told begins."""
    told: list[str] = []
    begin = AsyncCallbackManager.on_chain_start

    async def spied(self: AsyncCallbackManager, *given: Any, **kwargs: Any) -> Any:
        told.append(kwargs["name"])
        return await begin(self, *given, **kwargs)

    monkeypatch.setattr(AsyncCallbackManager, "on_chain_start", spied)
    return told


async def test_no_manager_is_told_of_nodes_where_nobody_listens(managers: list[str]) -> None:
    assert await DurableGraph(two()).execute(ListJournal(), {"n": 1}) == {"n": 3}
    assert managers == ["LangGraph", None]  # the graph, and the function of the conditional edge


async def test_a_handler_hears_of_each_node(managers: list[str]) -> None:
    listener = Listener()
    config: RunnableConfig = {"callbacks": [listener]}
    assert await DurableGraph(two()).execute(ListJournal(), {"n": 1}, config) == {"n": 3}
    assert [name for name in listener.begun if name in ("first", "second")] == ["first", "second"]
    assert listener.ended == len(listener.begun)
    assert {"first", "second"} <= set(managers)


async def test_who_streams_events_hears_of_each_node() -> None:
    graph = DurableGraph(two())._wrapped
    begun = [
        event["name"] async for event in graph.astream_events({"n": 1}) if event["event"] == "on_chain_start"
    ]
    assert [name for name in begun if name in ("first", "second")] == ["first", "second"]


async def test_what_a_node_sets_in_its_context_is_not_seen_by_the_next_one() -> None:
    async def sets(state: State) -> State:
        SET_BY_A_NODE.set("something")
        return {"n": state["n"] + 1}

    async def looks(state: State) -> State:
        return {"seen": SET_BY_A_NODE.get()}

    final = await DurableGraph(two(sets, looks)).execute(ListJournal(), {"n": 1})
    assert final["seen"] == "nothing"
    assert SET_BY_A_NODE.get() == "nothing"


async def test_a_node_runs_in_a_task_of_its_own() -> None:
    tasks: list[Any] = []

    async def looks(state: State) -> State:
        tasks.append(asyncio.current_task())
        return {"n": state["n"] + 1}

    await DurableGraph(two(looks, looks)).execute(ListJournal(), {"n": 1})
    assert len({*tasks, asyncio.current_task()}) == 3


@pytest.mark.parametrize("callbacks", [None, [Listener()]])
async def test_a_body_finds_the_same_configuration_watched_or_not(callbacks: Any) -> None:
    async def looks(state: State) -> State:
        config: Any = get_config()
        return {"seen": [config["metadata"]["langgraph_node"], config.get("run_name"), config.get("run_id")]}

    graph = DurableGraph(two(looks))
    final = await graph.execute(ListJournal(), {"n": 1}, {"callbacks": callbacks, "run_name": "mine"})
    assert final["seen"] == ["first", None, None]


async def test_a_node_stays_as_it_is_where_langgraph_does_not_let_it_be_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = two().nodes["first"]
    assert isinstance(unwatched(plain.copy({})).node, UnwatchedNode)
    made = plain.node
    monkeypatch.setattr(PregelNode, "node", property(lambda self: made))
    assert unwatched(plain.copy({})).node is made
