"""Random graphs, random deeds: `LogCheckpointer` tells of them what LangGraph's own saver tells."""

from __future__ import annotations

import datetime
import operator
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from noesium_stream.kernel import LogCheckpointer
from noesium_stream.log import open_log
from tests.support.checkpoints import Graph, thread


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A reducer that overwrites keys."""
    return {**old, **new}


class State(TypedDict, total=False):
    """Channels of every kind of growth."""

    log: Annotated[list[Any], operator.add]
    table: Annotated[dict[str, Any], merged]
    last: Any
    window: list[Any]


VALUES = st.sampled_from(
    [
        0,
        1,
        True,
        1.0,
        None,
        "",
        "é",
        (1, 2),
        b"\x00",
        {"a": {"b": [1]}},
        [[]],
        {1: 2},
        2**60,
        datetime.date(2026, 3, 1),
        AIMessage("said", id="m"),
    ]
)
NODES = st.fixed_dictionaries(
    {
        "log": st.lists(VALUES, max_size=3),
        "table": st.dictionaries(st.sampled_from("abcdef"), VALUES, max_size=3),
        "last": VALUES,
        "keep": st.integers(0, 4),
        "asks": st.booleans(),
        "sends": st.integers(0, 2),
    }
)
LAYERS = st.lists(st.lists(NODES, min_size=1, max_size=3), min_size=1, max_size=4)
DEEDS = st.lists(
    st.one_of(
        st.just(("invoke", 0)),
        st.just(("resume", 0)),
        st.tuples(st.just("update"), st.integers(0, 9)),
        st.tuples(st.just("fork"), st.integers(0, 9)),
        st.tuples(st.just("replay"), st.integers(0, 9)),
        st.just(("reopen", 0)),
    ),
    min_size=1,
    max_size=7,
)


def node(plan: dict[str, Any], first: bool) -> Any:
    """A node that does what the plan says; only the first of a layer may write what has no reducer."""

    def work(state: State) -> dict[str, Any]:
        made: dict[str, Any] = {"log": list(plan["log"]), "table": dict(plan["table"])}
        if plan["asks"]:
            made["log"].append(interrupt(f"asked by {len(plan['log'])}"))
        if first:
            made["last"] = plan["last"]
            made["window"] = [*state.get("window", []), len(state.get("log", []))][-plan["keep"] :]
        return made

    return work


def graph_of(layers: list[list[dict[str, Any]]], saver: BaseCheckpointSaver[Any]) -> Graph:
    """The layers one after the other, their nodes side by side; some send work to a worker."""
    builder = StateGraph(State)
    builder.add_node("worker", lambda state: {"log": [f"sent {state['n']}"]})
    before: list[str] = []
    for depth, plans in enumerate(layers):
        names = [f"n{depth}{index}" for index in range(len(plans))]
        for index, (name, plan) in enumerate(zip(names, plans, strict=True)):
            builder.add_node(name, node(plan, index == 0))
            if before:
                builder.add_edge(before, name)
            else:
                builder.add_edge(START, name)
            if plan["sends"]:
                sends = [Send("worker", {"n": n}) for n in range(plan["sends"])]
                builder.add_conditional_edges(name, lambda state, sends=sends: sends, ["worker"])
        before = names
    return builder.compile(checkpointer=saver)


def do(graph: Graph, deed: str, number: int) -> Any:
    """One thing that users do to a thread; what they see."""
    history = list(graph.get_state_history(thread()))
    at = history[number % len(history)].config if history else thread()
    waiting = graph.get_state(thread()).interrupts if history else ()
    if deed == "invoke":
        return graph.invoke({"log": ["input"]}, thread())
    if deed == "resume":
        return (
            graph.invoke(Command(resume={each.id: "answer" for each in waiting}), thread())
            if waiting
            else None
        )
    if deed == "update":
        return graph.update_state(thread(), {"log": [number]}, as_node="n00") and None
    if deed == "fork":
        return graph.update_state(at, {"table": {"fork": number}}, as_node="n00") and None
    return graph.invoke(None, at) if history else None


def shown(value: Any) -> str:
    """A result as text, without the ids that hold a time."""
    if isinstance(value, dict) and "__interrupt__" in value:
        value = {**value, "__interrupt__": sorted(repr(each.value) for each in value["__interrupt__"])}
    return repr(value)


def told(graph: Graph, saver: BaseCheckpointSaver[Any]) -> list[Any]:
    """All of the thread but ids and times."""
    states = [
        (
            state.values,
            state.next,
            state.metadata and (state.metadata["source"], state.metadata["step"]),
            state.parent_config is None,
            [
                (task.name, task.path, task.error, sorted(repr(i.value) for i in task.interrupts))
                for task in state.tasks
            ],
        )
        for state in graph.get_state_history(thread())
    ]
    writes = [
        sorted(
            repr((channel, value)) for _, channel, value in found.pending_writes or () if channel[0] != "_"
        )
        for found in saver.list(thread())
    ]
    return [*map(repr, states), writes]


@contextmanager
def on_a_file() -> Iterator[tuple[str, list[LogCheckpointer]]]:
    """A file, and the checkpointers on it; the last one is in use."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/threads.db?synchronous=NORMAL"
        savers = [LogCheckpointer(open_log(url))]
        try:
            yield url, savers
        finally:
            for saver in savers:
                saver.close()


@given(layers=LAYERS, deeds=DEEDS)
@settings(max_examples=60, deadline=None)
def test_every_history_is_told_as_langgraphs_own_saver_tells_it(
    layers: list[list[dict[str, Any]]], deeds: list[tuple[str, int]]
) -> None:
    own = InMemorySaver()
    expected = graph_of(layers, own)
    with on_a_file() as (url, savers):
        graph = graph_of(layers, savers[-1])
        for deed, number in [("invoke", 0), *deeds]:
            if deed == "reopen":
                savers.append(LogCheckpointer(open_log(url)))
                graph = graph_of(layers, savers[-1])
                continue
            assert shown(do(graph, deed, number)) == shown(do(expected, deed, number))
            assert told(graph, savers[-1]) == told(expected, own)
        # The first one has seen only a part of it so far.
        assert told(graph_of(layers, savers[0]), savers[0]) == told(expected, own)
