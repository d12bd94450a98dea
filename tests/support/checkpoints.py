"""Graphs, and checkpoints made by hand, for the tests of `LogCheckpointer`."""

from __future__ import annotations

import itertools
import operator
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt

Graph = CompiledStateGraph[Any, Any, Any, Any]


class Talk(TypedDict):
    """A conversation."""

    messages: Annotated[list[Any], operator.add]
    turns: int


def config(thread_id: str = "t", checkpoint_id: str | None = None, namespace: str = "") -> RunnableConfig:
    """The config of a thread, or of one checkpoint of it."""
    configurable: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": namespace}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def thread(thread_id: str = "t") -> RunnableConfig:
    """What a user passes to a graph."""
    return {"configurable": {"thread_id": thread_id}, "recursion_limit": 10_000}


def talking(saver: BaseCheckpointSaver[Any], turns: int, size: int = 500) -> Graph:
    """A node that adds one message of `size` bytes a turn."""

    def say(state: Talk) -> dict[str, Any]:
        turn = state["turns"]
        content = f"{turn:08d}".ljust(size, "x")
        return {"messages": [{"role": "user", "content": content}], "turns": turn + 1}

    builder = StateGraph(Talk)
    builder.add_node("say", say)
    builder.add_edge(START, "say")
    builder.add_conditional_edges("say", lambda state: "say" if state["turns"] < turns else END)
    return builder.compile(checkpointer=saver)


def asking(saver: BaseCheckpointSaver[Any]) -> Graph:
    """A node that asks a person, after one that has done its work."""

    def work(state: Talk) -> dict[str, Any]:
        return {"messages": ["worked"], "turns": state["turns"] + 1}

    def ask(state: Talk) -> dict[str, Any]:
        return {"messages": [interrupt("go on?")]}

    builder = StateGraph(Talk)
    builder.add_node("work", work)
    builder.add_node("ask", ask)
    builder.add_edge(START, "work")
    builder.add_edge("work", "ask")
    return builder.compile(checkpointer=saver)


_numbers = itertools.count(1)


def checkpoint(**values: Any) -> Checkpoint:
    """A checkpoint of these channels, each at a version of its own; ids grow."""
    number = next(_numbers)
    made = empty_checkpoint()
    made["id"] = f"{number:08d}"
    made["channel_values"] = values
    made["channel_versions"] = dict.fromkeys(values, number)
    return made


def put(
    saver: BaseCheckpointSaver[Any], at: RunnableConfig, *, run_id: str = "r", **values: Any
) -> RunnableConfig:
    """Save a checkpoint in which all channels are new; the config that names it."""
    made = checkpoint(**values)
    metadata: Any = {"source": "loop", "step": 1, "parents": {}, "run_id": run_id}
    return saver.put(at, made, metadata, made["channel_versions"])


def values_at(saver: BaseCheckpointSaver[Any], at: RunnableConfig) -> dict[str, Any] | None:
    """The channels' values of a checkpoint."""
    found = saver.get_tuple(at)
    return None if found is None else found.checkpoint["channel_values"]
