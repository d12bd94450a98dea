"""A graph with all that a kernel has to carry over a death: for sweeps of kill points.

It books a flight and hotels (a fork, a fan-out with Send, a subgraph, a gather, a sync node, a retry), asks a
person, sends a letter that must not go out twice, and pays; where payment is refused, what was booked is
cancelled again.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, Send

from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.kernel.decorators import kernel_compensation
from noesium_stream.kernel.step.position import this_step

IDEMPOTENT: Final = SideEffectClass.IDEMPOTENT
EXTERNAL: Final = SideEffectClass.EXTERNAL
NIGHTS: Final = (1, 2, 3)

BOOKED: Final = sorted(
    [
        "planned",
        "planned",  # the subgraph hands it back
        "booked flight",
        *(f"booked night {n}" for n in NIGHTS),
        "booked museum",
        "booked tower",
        "packed",
        "at last",
    ]
)
"""What is booked at the end, sorted."""

done: Counter[tuple[str, str]] = Counter()
"""What was done outside: by name and idempotency key."""

_diary: int | None = None


def keep_diary(path: Path) -> None:
    """Write what happens outside to this file too, a world that survives the process; what it holds counts.

    One JSON object per line: `did` and `key` of an effect, or `body`, `step` and `path` of a node's begin.
    """
    global _diary
    done.clear()
    for line in read_diary(path):
        if "did" in line:
            done[line["did"], line["key"]] += 1
    _diary = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)


def read_diary(path: Path) -> list[dict[str, Any]]:
    """What was written so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def note(**line: Any) -> None:
    """Write a line, if there is a diary."""
    if _diary is not None:
        os.write(_diary, f"{json.dumps(line)}\n".encode())


def do(name: str, key: str) -> None:
    """Something happens outside."""
    done[name, key] += 1
    note(did=name, key=key)


def begin() -> None:
    """A node's body begins."""
    step = this_step()
    number, path = step.key
    note(body=step.node, step=number, path=path)


class Trip(TypedDict, total=False):
    refuse: bool
    night: int
    booked: Annotated[list[str], operator.add]
    verdict: str
    letter: str
    paid: str


async def book(what: str, idempotency_key: str) -> str:
    do("book", idempotency_key)
    return f"booked {what}"


@kernel_compensation()
async def cancel(result: str, what: str, idempotency_key: str) -> str:
    do("cancel", idempotency_key)
    return f"cancelled {what}"


def pay(refuse: bool, idempotency_key: str) -> str:
    do("pay", idempotency_key)
    if refuse:
        raise ValueError("the card is refused")
    return "paid"


async def flight(state: Trip) -> dict[str, Any]:
    begin()
    step = current_step()
    got = await step.effect("book", book, "flight", effect_class=IDEMPOTENT, compensate=cancel)
    return {"booked": [got]}


async def hotel(state: Trip) -> dict[str, Any]:
    begin()
    step, what = current_step(), f"night {state['night']}"
    return {"booked": [await step.effect("book", book, what, effect_class=IDEMPOTENT, compensate=cancel)]}


async def sights(state: Trip) -> dict[str, Any]:
    begin()
    step = current_step()
    names = ("museum", "tower")
    return {
        "booked": await asyncio.gather(
            *(step.effect("look", book, name, effect_class=SideEffectClass.PURE) for name in names)
        )
    }


def pack(state: Trip) -> dict[str, Any]:
    begin()
    return {"booked": ["packed"]}


@kernel_node()
async def plan(state: Trip) -> dict[str, Any]:
    begin()
    return {"booked": ["planned"]}


async def flaky(state: Trip) -> dict[str, Any]:
    begin()
    outcome = await current_step().effect("try", _third_time, effect_class=IDEMPOTENT)
    return {"booked": [outcome]}


def _third_time(idempotency_key: str) -> str:
    do("try", idempotency_key)
    if len({key for name, key in done if name == "try"}) < 3:
        raise ConnectionError("not yet")
    return "at last"


async def confirm(state: Trip) -> dict[str, Any]:
    begin()
    return {"verdict": (await current_step().interrupt("Go?")).value}


def post(idempotency_key: str) -> str:
    do("letter", idempotency_key)
    return "posted"


async def letter(state: Trip) -> dict[str, Any]:
    begin()
    return {"letter": await current_step().effect("letter", post, effect_class=EXTERNAL)}


async def buy(state: Trip) -> dict[str, Any]:
    begin()
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
    graph.add_node("letter", letter)
    graph.add_node("buy", buy)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "flight")
    graph.add_conditional_edges("plan", lambda s: [Send("hotel", {"night": n}) for n in NIGHTS], ["hotel"])
    graph.add_edge("plan", "stay")
    graph.add_edge("plan", "flaky")
    graph.add_edge(["flight", "stay", "flaky"], "confirm")
    graph.add_edge("confirm", "letter")
    graph.add_edge("letter", "buy")
    return graph
