"""A graph with all that a kernel has to carry over a death: for sweeps of kill points.

It books a flight and hotels (a fork, a fan-out with Send, a subgraph, a gather, a sync node, a retry), asks a
person, and pays; where payment is refused, what was booked is cancelled again.
"""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from typing import Annotated, Any, Final, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, Send

from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, kernel_node

IDEMPOTENT: Final = SideEffectClass.IDEMPOTENT
NIGHTS: Final = (1, 2, 3)

done: Counter[tuple[str, str]] = Counter()
"""What was done outside: by name and idempotency key."""

bodies: Counter[str] = Counter()
"""How often each node's body began."""


class Trip(TypedDict, total=False):
    refuse: bool
    night: int
    booked: Annotated[list[str], operator.add]
    verdict: str
    paid: str


async def book(what: str, idempotency_key: str) -> str:
    done["book", idempotency_key] += 1
    return f"booked {what}"


async def cancel(result: str, what: str, idempotency_key: str) -> str:
    done["cancel", idempotency_key] += 1
    return f"cancelled {what}"


def pay(refuse: bool, idempotency_key: str) -> str:
    done["pay", idempotency_key] += 1
    if refuse:
        raise ValueError("the card is refused")
    return "paid"


async def flight(state: Trip) -> dict[str, Any]:
    bodies["flight"] += 1
    step = current_step()
    got = await step.effect("book", book, "flight", effect_class=IDEMPOTENT, compensate=cancel)
    return {"booked": [got]}


async def hotel(state: Trip) -> dict[str, Any]:
    bodies[f"hotel {state['night']}"] += 1
    step, what = current_step(), f"night {state['night']}"
    return {"booked": [await step.effect("book", book, what, effect_class=IDEMPOTENT, compensate=cancel)]}


async def sights(state: Trip) -> dict[str, Any]:
    bodies["sights"] += 1
    step = current_step()
    names = ("museum", "tower")
    return {
        "booked": await asyncio.gather(
            *(step.effect("look", book, name, effect_class=SideEffectClass.PURE) for name in names)
        )
    }


def pack(state: Trip) -> dict[str, Any]:
    bodies["pack"] += 1
    return {"booked": ["packed"]}


@kernel_node()
async def plan(state: Trip) -> dict[str, Any]:
    bodies["plan"] += 1
    return {"booked": ["planned"]}


async def flaky(state: Trip) -> dict[str, Any]:
    bodies["flaky"] += 1
    outcome = await current_step().effect("try", _third_time, effect_class=IDEMPOTENT)
    return {"booked": [outcome]}


def _third_time(idempotency_key: str) -> str:
    done["try", idempotency_key] += 1
    if len({key for name, key in done if name == "try"}) < 3:
        raise ConnectionError("not yet")
    return "at last"


async def confirm(state: Trip) -> dict[str, Any]:
    bodies["confirm"] += 1
    return {"verdict": (await current_step().interrupt("Go?")).value}


async def buy(state: Trip) -> dict[str, Any]:
    bodies["buy"] += 1
    return {"paid": await current_step().effect("pay", pay, state["refuse"], effect_class=IDEMPOTENT)}


def trip() -> StateGraph[Any, Any, Any, Any]:
    """The graph."""
    inner = StateGraph(Trip)
    inner.add_node("sights", sights)
    inner.add_node("pack", pack)
    inner.add_edge(START, "sights")
    inner.add_edge("sights", "pack")
    graph = StateGraph(Trip)
    graph.add_node("plan", plan)
    graph.add_node("flight", flight)
    graph.add_node("hotel", hotel)
    graph.add_node("stay", inner.compile())
    retry = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False)
    graph.add_node("flaky", flaky, retry_policy=retry)
    graph.add_node("confirm", confirm)
    graph.add_node("buy", buy)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "flight")
    graph.add_conditional_edges("plan", lambda s: [Send("hotel", {"night": n}) for n in NIGHTS], ["hotel"])
    graph.add_edge("plan", "stay")
    graph.add_edge("plan", "flaky")
    graph.add_edge(["flight", "stay", "flaky"], "confirm")
    graph.add_edge("confirm", "buy")
    return graph
