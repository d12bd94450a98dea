"""`noesium show` of a graph that sends: each task with its argument, also where an edge makes the `Send`."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send

from noesium_stream import agent_from_graph
from noesium_stream.cli.commands.runs.show import collect
from noesium_stream.cli.drawing import draw
from noesium_stream.client import Client
from noesium_stream.client.views.causal_tree import causal_tree
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S


class State(TypedDict, total=False):
    docs: list[str]
    read: Annotated[list[str], operator.add]


class Doc(TypedDict):
    doc: str
    password: str


def spread(state: State) -> list[Send]:
    return [Send("weigh", {"doc": doc, "password": "hunter2"}) for doc in state["docs"]]


def plan(state: State) -> Command[Any]:
    return Command(goto=spread(state))


def weigh(state: Doc) -> dict[str, Any]:
    return {"read": [state["doc"]]}


def by_edge() -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State).add_node("plan", lambda state: {}).add_node("weigh", weigh)
    return graph.add_edge(START, "plan").add_conditional_edges("plan", spread, ["weigh"])


def by_command() -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State).add_node("plan", plan, destinations=("weigh",)).add_node("weigh", weigh)
    return graph.add_edge(START, "plan")


@pytest.mark.parametrize("graph", [by_edge, by_command], ids=["edge", "command"])
async def test_each_task_that_a_send_has_started_is_shown_with_its_argument(
    graph: Any, tmp_path: Path
) -> None:
    log = await open_log("memory://")
    async with Worker(log, [agent_from_graph(graph())], home=tmp_path), Client(log) as client:
        run = await client.start("sample", {"docs": ["a.md", "b\x1b[31m.md"]})
        await run.result(timeout=PATIENCE_S)
        drawn = draw(causal_tree(run.id, *await collect(run)))
    await log.close()
    sent = [line for line in drawn if "weigh" in line]
    assert sorted(line[line.index("(") :] for line in sent) == [
        "(doc=a.md, password=***)  1 read",
        "(doc=b\\x1b[31m.md, password=***)  1 read",
    ]
    assert all("(" not in line for line in drawn if "plan" in line)
