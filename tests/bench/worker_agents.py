"""The agents of the worker's bench: a handler, a graph of two nodes, one that asks, one of lone steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent, BaseHandler
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel import current_step
from tests.bench.events import DOMAIN
from tests.bench.projection_folds import Sum

Graph = StateGraph[Any, Any, Any, Any]
HANDLED = "handled"
"""The domain of what the handler makes."""


class Summed(DomainEvent, event_type=f"{HANDLED}.summed"):
    """What the handler makes of each event: how much there is of its key by now."""

    call_id: str
    tool: str
    total: int


class SumOfTopic(Sum):
    """The sum of one topic: a key of a handler's state lies in one partition."""

    topics = (f"events.{DOMAIN}",)


class Summing(BaseHandler):
    """Adds a field of the payload up per key, and says each new sum."""

    agent_type = "summing"
    state = SumOfTopic
    events = (Summed,)

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        payload = event.payload
        total = state + payload["duration_ms"]
        return [Summed(call_id=payload["call_id"], tool=payload["tool"], total=total)]


def summing(name: str) -> type[Summing]:
    """The same under a name of its own: a group that has read nothing yet."""
    return type("Summing", (Summing,), {"agent_type": name, "__module__": __name__})


class Count(TypedDict, total=False):
    n: int


async def _plus_one(state: Count) -> Count:
    return {"n": state["n"] + 1}


async def _somehow_plus_one(state: Count) -> Count:
    return await _plus_one(state)


def two_nodes(node: Callable[[Count], Awaitable[Count]] = _plus_one) -> Graph:
    """Two trivial nodes."""
    graph: Graph = StateGraph(Count)
    graph.add_node("first", node)
    graph.add_node("second", node)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    return graph


class Pair(BaseGraphicAgent):
    """Two trivial nodes."""

    agent_type = "pair"

    def get_state_class(self) -> type[Any]:
        return Count

    def _build_graph(self) -> Graph:
        return two_nodes()

    def result(self, state: dict[str, Any]) -> Any:
        return {"n": state["n"]}


class AwaitedPair(Pair):
    """The same, of nodes whose code does not show that they only compute: each waits for the log."""

    agent_type = "awaited-pair"

    def _build_graph(self) -> Graph:
        return two_nodes(_somehow_plus_one)


class Asked(TypedDict, total=False):
    order: str
    approved: bool


async def _ask(state: Asked) -> Asked:
    if state["order"] == "trivial":
        return {"approved": True}
    answer = await current_step().interrupt({"refund": state["order"]})
    return {"approved": answer.approved}


class Clerk(BaseGraphicAgent):
    """Asks a person and waits, unless the order is `trivial`."""

    agent_type = "clerk"

    def get_state_class(self) -> type[Any]:
        return Asked

    def _build_graph(self) -> Graph:
        graph: Graph = StateGraph(Asked)
        graph.add_node("ask", _ask)
        graph.add_edge(START, "ask")
        graph.add_edge("ask", END)
        return graph


def lone(steps: int, outside: Callable[[], Awaitable[int]]) -> type[BaseGraphicAgent]:
    """An agent of `steps` steps, each of which does something outside and waits for its commits alone."""

    async def tick(state: Count) -> Count:
        await current_step().effect("outside", outside)
        return {"n": state["n"] + 1}

    class Lone(BaseGraphicAgent):
        agent_type = "lone"
        max_supersteps = steps + 10

        def get_state_class(self) -> type[Any]:
            return Count

        def _build_graph(self) -> Graph:
            graph: Graph = StateGraph(Count)
            graph.add_node("tick", tick)
            graph.add_edge(START, "tick")
            graph.add_conditional_edges("tick", lambda state: END if state["n"] >= steps else "tick")
            return graph

    return Lone


AGENTS: dict[str, type[BaseGraphicAgent]] = {agent.agent_type: agent for agent in (Pair, AwaitedPair, Clerk)}
