"""The agents of the delegation bench: one adds one, one has that done by an agent, in a sequence of calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.kernel import current_step

Graph = StateGraph[Any, Any, Any, Any]
_NUMBER: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


class Count(TypedDict, total=False):
    n: int
    calls: int


async def _plus_one(state: Count) -> Count:
    return {"n": state["n"] + 1}


def provider_graph() -> Graph:
    """One node that adds one."""
    graph: Graph = StateGraph(Count)
    graph.add_node("add", _plus_one)
    graph.add_edge(START, "add")
    graph.add_edge("add", END)
    return graph


def caller_graph(call: Callable[[int], Awaitable[int]]) -> Graph:
    """One node that makes as many calls as it is told, one after the other."""

    async def ask(state: Count) -> Count:
        n = state["n"]
        for _ in range(state.get("calls", 1)):
            n = await call(n)
        return {"n": n}

    graph: Graph = StateGraph(Count)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph


class Adder(BaseGraphicAgent):
    """Offers `number.add`."""

    agent_type = "adder"
    capabilities = (
        Capability(
            id="number.add", input_schema=_NUMBER, output_schema=_NUMBER, side_effects=SideEffectClass.PURE
        ),
    )

    def get_state_class(self) -> type[Any]:
        return Count

    def _build_graph(self) -> Graph:
        return provider_graph()

    def result(self, state: dict[str, Any]) -> Any:
        return {"n": state["n"]}


async def _by_event(n: int) -> int:
    return int((await current_step().invoke("number.add", {"n": n}, version="^1"))["n"])


class Caller(BaseGraphicAgent):
    """Has one added by whoever offers it."""

    agent_type = "caller"

    def get_state_class(self) -> type[Any]:
        return Count

    def _build_graph(self) -> Graph:
        return caller_graph(_by_event)

    def result(self, state: dict[str, Any]) -> Any:
        return {"n": state["n"]}


def timed_caller(trips: list[tuple[float, float]]) -> type[BaseGraphicAgent]:
    """The same; it notes when each call began and ended, in seconds of `time.perf_counter`."""

    async def timed(n: int) -> int:
        began = time.perf_counter()
        found = await _by_event(n)
        trips.append((began, time.perf_counter()))
        return found

    class TimedCaller(Caller):
        def _build_graph(self) -> Graph:
            return caller_graph(timed)

    return TimedCaller


class Story(TypedDict, total=False):
    pieces: int
    pause_ms: int


async def _talk(state: Story) -> Story:
    step = current_step()
    for _ in range(state["pieces"]):
        await asyncio.sleep(state["pause_ms"] / 1e3)
        await step.write(f"{time.monotonic():.6f}\n")
    return {}


class Talker(BaseGraphicAgent):
    """Answers in pieces, each of which says when it was written, by the machine's monotonic clock."""

    agent_type = "talker"

    def get_state_class(self) -> type[Any]:
        return Story

    def _build_graph(self) -> Graph:
        graph: Graph = StateGraph(Story)
        graph.add_node("talk", _talk)
        graph.add_edge(START, "talk")
        graph.add_edge("talk", END)
        return graph


CREWS: dict[str, list[type[BaseGraphicAgent]]] = {"callers": [Caller, Adder], "talker": [Talker]}
"""Agents that one worker has together."""
