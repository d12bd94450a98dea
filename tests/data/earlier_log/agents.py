"""The agents whose runs lie in this folder; what they use of the package comes from `names.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from tests.data.earlier_log import nodes
from tests.data.earlier_log.names import (
    SYNC,
    BaseHandler,
    BaseProjection,
    DomainEvent,
    EventEnvelope,
    Migration,
    agent_from_graph,
    agent_from_tools,
    compensation,
    pure_capability,
)

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def _purchase() -> StateGraph[Any, Any, Any, Any]:
    inner = StateGraph(nodes.Weighing, output_schema=nodes.Weighed)
    inner.add_sequence([nodes.weigh, nodes.pack]).add_edge(START, "weigh")
    graph = StateGraph(nodes.Purchase)
    graph.add_node("read", nodes.read)
    graph.add_node("left", nodes.left)
    graph.add_node("right", nodes.right)
    graph.add_node("inner", inner.compile())
    graph.add_node("each", nodes.each)
    graph.add_node("buy", nodes.buy)
    graph.add_edge(START, "read")
    graph.add_edge("read", "left")
    graph.add_edge("read", "right")
    graph.add_edge(["left", "right"], "inner")
    graph.add_conditional_edges("inner", nodes.spread, ["each"])
    graph.add_edge("each", "buy")
    return graph


def _chain(third: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(nodes.Chain)
    for name, node in {
        "first": nodes.first,
        "second": nodes.second,
        "third": third,
        "fourth": nodes.fourth,
    }.items():
        graph.add_node(name, node)
    graph.add_edge(START, "first").add_edge("first", "second")
    return graph.add_edge("second", "third").add_edge("third", "fourth")


def _flaky() -> StateGraph[Any, Any, Any, Any]:
    retry = RetryPolicy(max_attempts=2, initial_interval=0.01, jitter=False, retry_on=LookupError)
    return StateGraph(nodes.Flaky).add_node("fail", nodes.fail, retry_policy=retry).add_edge(START, "fail")


_queue = StateGraph(nodes.Queued).add_node("hold", nodes.hold).add_edge(START, "hold")
_waiter = StateGraph(nodes.Wait).add_sequence([nodes.wait, nodes.last]).add_edge(START, "wait")
_asker = StateGraph(nodes.Asked).add_sequence([nodes.ask_helper, nodes.ask_shop])
_asker.add_edge(START, "ask_helper")
_helper = StateGraph(nodes.Text).add_node("upper", nodes.upper).add_edge(START, "upper")
_trip = StateGraph(nodes.Trip).add_node("book", nodes.book).add_edge(START, "book")
_old: StateGraph[Any, Any, Any, Any] = (
    StateGraph(nodes.OldOrder).add_node("ask", nodes.ask_person).add_node("pay", nodes.pay_cents)
)
_old.add_edge(START, "ask").add_edge("ask", "pay")
_new: StateGraph[Any, Any, Any, Any] = (
    StateGraph(nodes.NewOrder).add_node("ask", nodes.ask_person).add_node("settle", nodes.settle)
)
_new.add_edge(START, "ask").add_edge("ask", "settle")
_move = Migration(_old, "1.0.0", state=nodes.in_euros, nodes={"pay": "settle"})

UNDO = compensation(
    StateGraph(nodes.Undo).add_sequence([nodes.refund, nodes.bill]).add_edge(START, "refund").compile()
)
TALK = StateGraph(nodes.Talk).add_node("reply", nodes.reply).add_edge(START, "reply")

PURCHASE = agent_from_graph(_purchase(), "purchase", events=(nodes.Bought,))
CHAIN = agent_from_graph(_chain(nodes.third), "chain", durability=SYNC)
CHARGE = agent_from_graph(_chain(nodes.third), "charge")
CHARGE_EXTERNAL = agent_from_graph(_chain(nodes.third_external), "charge-external")
QUEUE = agent_from_graph(_queue, "queue")
WAITER = agent_from_graph(_waiter, "waiter")
GROWN = agent_from_graph(_waiter, "grown")
ASKER = agent_from_graph(_asker, "asker")
HELPER = agent_from_graph(_helper, "helper", capabilities=(pure_capability("text.upper", TEXT),))
SHOP = agent_from_tools("shop", "shop", [nodes.price])
TRIP = agent_from_graph(_trip, "trip", on_failure=nodes.apologise)
FLAKY = agent_from_graph(_flaky(), "flaky")
ORDER_1 = agent_from_graph(_old, "order")
ORDER_2 = agent_from_graph(_new, "order", version="2.0.0", migrations=(_move,))
PINNED_1 = agent_from_graph(_old, "pinned")
PINNED_2 = agent_from_graph(_new, "pinned", version="2.0.0")
PINNED_3 = agent_from_graph(_new, "pinned", version="3.0.0")


@dataclass
class Count:
    """A row of `Facts`."""

    events: int
    total: int


class Facts(BaseProjection[Count]):
    """Facts by their keys; a negative one cannot be taken."""

    name = "facts"
    version = 1
    topics = ("events.fact",)
    event_types = ("fact.said",)
    events = (nodes.Said,)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> Count:
        return Count(0, 0)

    def apply(self, state: Count, event: EventEnvelope) -> Count:
        if event.payload["n"] < 0:
            raise ValueError("negative")
        return Count(state.events + 1, state.total + event.payload["n"])


class Totals(BaseProjection[int]):
    """What the handler keeps."""

    name = "totals"
    version = 1
    topics = ("events.fact",)
    event_types = ("fact.said",)
    events = (nodes.Said,)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return int(state + event.payload["n"])


class Tally(BaseHandler):
    """Says the total of each key after each fact."""

    agent_type = "tally"
    state = Totals
    events = (nodes.Tallied,)

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        yield nodes.Tallied(n=event.payload["n"], total=state + event.payload["n"])


AGENTS: dict[str, type[Any]] = {
    "purchase": PURCHASE,
    "chain": CHAIN,
    "charge": CHARGE,
    "charge-external": CHARGE_EXTERNAL,
    "queue": QUEUE,
    "waiter": WAITER,
    "grown": GROWN,
    "asker": ASKER,
    "helper": HELPER,
    "shop": SHOP,
    "trip": TRIP,
    "flaky": FLAKY,
    "order": ORDER_2,
    "pinned": PINNED_2,
    "tally": Tally,
}
"""The newest version of each agent, by its type."""

OTHER_VERSIONS: tuple[type[Any], ...] = (PINNED_1, PINNED_3)
"""Versions beside these that open runs wait for."""

GRAPHS = {
    "purchase": _purchase(),
    "chain": _chain(nodes.third),
    "charge": _chain(nodes.third),
    "charge-external": _chain(nodes.third_external),
    "queue": _queue,
    "waiter": _waiter,
    "grown": _waiter,
    "asker": _asker,
    "helper": _helper,
    "trip": _trip,
    "flaky": _flaky(),
}
"""Graphs of agents that have one version, by their types."""
