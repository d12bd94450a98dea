"""What a node names and nobody knows: targets that its graph does not have, events that nobody registered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send

from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.executor import KernelExecutor
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import KernelError, RunFailedError
from noesium_stream.event import DomainEvent
from noesium_stream.kernel import DurableGraph, current_step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.journal import ListJournal
from tests.support.reading import PATIENCE_S

Graph = StateGraph[Any, Any, Any, Any]


class State(TypedDict, total=False):
    n: int


class Weighed(DomainEvent, event_type="parcel.weighed"):
    grams: int


def graph_of(node: Any, *, edges: Callable[[Graph], object] = lambda graph: None, **options: Any) -> Graph:
    graph = StateGraph(State)
    graph.add_node("weigh", node, **options)
    graph.add_node("pack", lambda state: {"n": state["n"] + 1})
    graph.add_edge(START, "weigh")
    edges(graph)
    return graph


async def run(graph: Graph, journal: ListJournal | None = None, **options: Any) -> Any:
    return await DurableGraph(graph.compile(), **options).execute(journal or ListJournal(), {"n": 1})


RETURNED = {
    "goto": lambda state: Command(update={"n": 2}, goto="pak"),
    "goto of several": lambda state: Command(goto=["pack", "pak"]),
    "send": lambda state: Command(goto=Send("pak", {"n": 5})),
    "commands": lambda state: [Command(update={"n": 2}), Command(goto="pak")],
}


@pytest.mark.parametrize("mode", [ExecutionMode.PRAGMATIC, ExecutionMode.SANDBOX])
@pytest.mark.parametrize("shape", RETURNED)
async def test_a_command_to_a_node_that_is_not_there_is_the_node_s_failure(
    shape: str, mode: ExecutionMode
) -> None:
    journal = ListJournal()
    with pytest.raises(KernelError, match="The node weigh goes to 'pak', which the graph does not have") as e:
        await run(graph_of(RETURNED[shape]), journal, mode=mode)
    assert e.value.hint == "Did you mean 'pack'?"
    await journal.commit()
    assert "kernel.node.failed" in journal.types()
    assert "kernel.node.completed" not in journal.types()


CHOSEN = {
    "name": lambda state: "pak",
    "names": lambda state: ["pack", "pak"],
    "send": lambda state: [Send("pak", state)],
}


@pytest.mark.parametrize("shape", CHOSEN)
async def test_a_conditional_edge_to_a_node_that_is_not_there_is_an_error(shape: str) -> None:
    graph = graph_of(lambda state: {"n": 2}, edges=lambda g: g.add_conditional_edges("weigh", CHOSEN[shape]))
    with pytest.raises(KernelError, match="The conditional edge of the node weigh goes to 'pak'"):
        await run(graph)


async def test_an_edge_from_the_start_is_named_as_that() -> None:
    graph = StateGraph(State)
    graph.add_node("pack", lambda state: {"n": 2})
    graph.add_conditional_edges(START, lambda state: [Send("zzz", state)])
    with pytest.raises(KernelError, match="The edge from the start goes to 'zzz'") as caught:
        await run(graph)
    assert caught.value.hint == "It has pack."


async def test_the_same_error_comes_again_when_the_run_is_resumed() -> None:
    graph = graph_of(
        lambda state: {"n": 2}, edges=lambda g: g.add_conditional_edges("weigh", lambda state: "pak")
    )
    journal = ListJournal()
    with pytest.raises(KernelError, match="goes to 'pak'"):
        await run(graph, journal)
    await journal.commit()
    again = ListJournal(list(journal.log))
    with pytest.raises(KernelError, match="goes to 'pak'"):
        await run(graph, again)
    assert again.types() == journal.types()
    assert journal.types().count("kernel.node.completed") == 1


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (lambda state: Command(update={"n": 2}, goto="pack"), 3),
        (lambda state: Command(update={"n": 2}, goto=END), 2),
        (lambda state: Command(update={"n": 2}), 2),
        (lambda state: Command(goto=[Send("pack", {"n": 6})]), 7),
    ],
)
async def test_targets_that_are_there_and_the_end_are_gone_to(node: Any, expected: int) -> None:
    assert (await run(graph_of(node)))["n"] == expected


async def test_an_edge_may_choose_the_end() -> None:
    def edges(graph: Graph) -> None:
        graph.add_conditional_edges("weigh", lambda state: END if state["n"] == 2 else "pack")

    assert (await run(graph_of(lambda state: {"n": 2}, edges=edges)))["n"] == 2
    assert (await run(graph_of(lambda state: {"n": 3}, edges=edges)))["n"] == 4


def outer_of(inner: Graph) -> Graph:
    return graph_of(inner.compile())


async def test_a_subgraph_s_command_to_its_parent_names_the_parent_s_nodes() -> None:
    inner = StateGraph(State)
    inner.add_node("up", lambda state: Command(graph=Command.PARENT, update={"n": 4}, goto="pack"))
    inner.add_edge(START, "up")
    assert (await run(outer_of(inner)))["n"] == 5
    wrong = StateGraph(State)
    wrong.add_node("up", lambda state: Command(graph=Command.PARENT, goto="up"))
    wrong.add_edge(START, "up")
    with pytest.raises(KernelError, match="The node weigh goes to 'up'"):
        await run(outer_of(wrong))


async def test_in_a_subgraph_its_own_nodes_count_and_outside_runs_nothing_is_changed() -> None:
    inner = StateGraph(State)
    inner.add_node("first", lambda state: {"n": 2})
    inner.add_edge(START, "first")
    inner.add_conditional_edges("first", lambda state: "pack")
    compiled = inner.compile()
    with pytest.raises(KernelError, match="The conditional edge of the node first goes to 'pack'"):
        await run(graph_of(compiled))
    assert await compiled.ainvoke({"n": 1}) == {"n": 2}


async def test_what_is_wrong_in_the_code_is_not_tried_again() -> None:
    tried: list[int] = []

    def weigh(state: State) -> Any:
        tried.append(1)
        return Command(goto="pak")

    policy = RetryPolicy(initial_interval=0.001, max_attempts=3, retry_on=Exception)
    with pytest.raises(KernelError, match="goes to 'pak'"):
        await run(graph_of(weigh, retry_policy=policy))
    assert len(tried) == 1


async def failure_of(graph: Graph, home: Path, **options: Any) -> tuple[str, list[str]]:
    log = await open_log("memory://")
    try:
        async with Worker(log, [agent_from_graph(graph, **options)], home=home), Client(log) as client:
            run = await client.start("sample", {"n": 1})
            with pytest.raises(RunFailedError) as caught:
                await run.result(timeout=PATIENCE_S)
            return str(caught.value), [event.event_type async for event in run.events(follow=False)]
    finally:
        await log.close()


def emits(state: State) -> None:
    current_step().emit(Weighed(grams=5))


@pytest.mark.parametrize("node", [emits, lambda state: {"_pending_events": [Weighed(grams=5)]}])
async def test_an_event_that_is_not_registered_is_the_failure_of_the_node_that_emits_it(
    tmp_path: Path, node: Any
) -> None:
    said, types = await failure_of(graph_of(node), tmp_path)
    assert "The node weigh emits parcel.weighed 1.0.0, an event that is not registered" in said
    assert "Name its class Weighed in the agent's `events`" in said
    assert types[-2:] == ["kernel.node.failed", "run.failed"]
    assert "parcel.weighed" not in types


async def test_an_event_that_its_schema_refuses_is_the_failure_of_the_node_that_emits_it(
    tmp_path: Path,
) -> None:
    class Estimated(DomainEvent, event_type="parcel.weighed"):
        grams: str

    wrong = Estimated(grams="many")
    said, types = await failure_of(
        graph_of(lambda state: {"_pending_events": [Weighed(grams=5), wrong]}), tmp_path, events=(Weighed,)
    )
    assert "The node weigh emits parcel.weighed, which its schema refuses" in said
    assert "grams" in said
    assert types[-2:] == ["kernel.node.failed", "run.failed"]
    assert "parcel.weighed" not in types, "all of a node's events or none"


async def test_a_graph_s_own_events_are_named_with_it(tmp_path: Path) -> None:
    async with KernelExecutor(
        graph_of(emits), "memory://", "sample", events=(Weighed,), home=tmp_path
    ) as kernel:
        types = [event.event_type async for event in kernel.stream({"n": 1})]
    assert types.count("parcel.weighed") == 1
