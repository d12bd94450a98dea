"""States, events and node functions of the agents whose runs lie in this folder.

Do not change this file: journals name its classes and functions, and runs are replayed against its code.
"""

from __future__ import annotations

import asyncio
import operator
import os
import signal as signals
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt
from pydantic import BaseModel

from tests.data.earlier_log.names import (
    DomainEvent,
    ask,
    call_tool,
    compensation,
    effect,
    effect_in_two_attempts,
    invoke,
    now,
    signal,
    sleep,
)

BODIES: list[str] = []
"""Bodies that ran in this process, as `RUN'S TAG/NODE`."""

OUTSIDE: list[tuple[str, str]] = []
"""Calls that reached the outside in this process, with their idempotency keys."""

DIES, HOLDS = "EARLIER_LOG_DIES", "EARLIER_LOG_HOLDS"
"""Environment variables: a process kills itself where a run says so; a node never ends."""


def reach(words: str, idempotency_key: str) -> str:
    OUTSIDE.append((words, idempotency_key))
    return words


def die() -> None:
    if os.environ.get(DIES):
        os.kill(os.getpid(), signals.SIGKILL)


# -- purchase: parallel nodes, a subgraph, sends, typed values, messages, all kinds of effects ---------------


class Bought(DomainEvent, event_type="shop.bought"):
    receipt: str
    found: list[str]


class Mood(Enum):
    CALM = "calm"
    BUSY = "busy"


class Ticket(BaseModel):
    text: str
    amount: Decimal
    bought: date


@dataclass
class Place:
    street: str
    number: int


class Purchase(TypedDict, total=False):
    text: str
    items: list[int]
    item: int
    ticket: Ticket
    place: Place
    mood: Mood
    when: datetime
    waits: timedelta
    data: bytes
    tags: set[str]
    found: Annotated[list[str], operator.add]
    messages: Annotated[list[AnyMessage], add_messages]
    total: int
    receipt: str


class Weighing(TypedDict, total=False):
    found: list[str]
    tags: set[str]
    total: int


class Weighed(TypedDict, total=False):
    tags: set[str]
    total: int


def read(state: Purchase) -> dict[str, Any]:
    return {
        "ticket": Ticket(text=state["text"], amount=Decimal("12.50"), bought=date(2026, 11, 2)),
        "place": Place("Elm Street", 7),
        "mood": Mood.CALM,
        "when": now(),
        "waits": timedelta(days=2, seconds=1),
        "data": b"\x00\xff",
        "tags": {"new", "blue"},
        "messages": [HumanMessage(state["text"], id="question")],
    }


def left(state: Purchase) -> dict[str, Any]:
    return {"found": [f"left {state['ticket'].amount + 1}"], "messages": [AIMessage("left", id="left")]}


def right(state: Purchase) -> dict[str, Any]:
    return {
        "found": [f"right {state['place'].street} {state['mood'].name}"],
        "messages": [AIMessage("right")],
    }


def weigh(state: Weighing) -> dict[str, Any]:
    return {"total": sum(len(text) for text in state["found"])}


def pack(state: Weighing) -> dict[str, Any]:
    return {"tags": state["tags"] | {"packed"}}


def spread(state: Purchase) -> list[Send]:
    return [Send("each", {"item": item}) for item in state["items"]]


def each(state: Purchase) -> dict[str, Any]:
    return {"found": [f"item {state['item']}"]}


async def buy(state: Purchase) -> dict[str, Any]:
    price = await effect("price", reach, f"price of {len(state['items'])}", kind="pure")
    await effect("reserve", reach, f"reserve {state['total']}", kind="idempotent")
    paid = await effect("pay", reach, f"pay {state['ticket'].amount}", kind="external")
    receipt = f"{price}, {paid} on {state['when'].year > 2000}"
    said = AIMessage(receipt, id="answer", additional_kwargs={"found": len(state["found"])})
    bought = Bought(receipt=receipt, found=state["found"])
    return {"receipt": receipt, "mood": Mood.BUSY, "messages": [said], "_pending_events": [bought]}


# -- chain: dies between steps or in an effect ---------------------------------------------------------------


class Chain(TypedDict, total=False):
    dies: str
    done: Annotated[list[str], operator.add]


def charge(words: str, dies: str, idempotency_key: str) -> str:
    OUTSIDE.append((words, idempotency_key))
    if dies == "effect":
        die()
    return words


async def first(state: Chain) -> dict[str, Any]:
    BODIES.append("first")
    return {"done": [await effect("first", reach, "first", kind="idempotent")]}


async def second(state: Chain) -> dict[str, Any]:
    BODIES.append("second")
    return {"done": [await effect("second", reach, "second", kind="external")]}


async def third(state: Chain) -> dict[str, Any]:
    BODIES.append("third")
    if state["dies"] == "step":
        die()
    return {"done": [await effect("third", charge, "third", state["dies"], kind="idempotent")]}


async def third_external(state: Chain) -> dict[str, Any]:
    BODIES.append("third")
    return {"done": [await effect("third", charge, "third", state["dies"], kind="external")]}


async def fourth(state: Chain) -> dict[str, Any]:
    BODIES.append("fourth")
    return {"done": [await effect("fourth", reach, "fourth", kind="external")]}


# -- queue: a run that holds the only place, and others behind it --------------------------------------------


class Queued(TypedDict, total=False):
    n: int
    twice: int


async def hold(state: Queued) -> dict[str, Any]:
    BODIES.append(f"hold {state['n']}")
    if os.environ.get(HOLDS):
        await asyncio.Event().wait()
    return {"twice": 2 * state["n"]}


# -- waiter: everything that a run can wait for --------------------------------------------------------------


class Wait(TypedDict, total=False):
    kind: str
    heard: Any
    last: str


async def wait(state: Wait) -> dict[str, Any]:
    kind = state["kind"]
    if kind == "question":
        return {"heard": await ask("May I?")}
    if kind == "signal":
        return {"heard": await signal("go")}
    await sleep(timedelta(milliseconds=10) if kind == "short sleep" else timedelta(seconds=30))
    return {"heard": kind}


def last(state: Wait) -> dict[str, Any]:
    return {"last": f"after {state['kind']}"}


# -- asker and helper: calls of a capability and of a tool ---------------------------------------------------


class Asked(TypedDict, total=False):
    text: str
    upper: str
    price: int


async def ask_helper(state: Asked) -> dict[str, Any]:
    return {"upper": (await invoke("text.upper", {"text": state["text"]}))["text"]}


async def ask_shop(state: Asked) -> dict[str, Any]:
    return {"price": await call_tool("shop", "price", {"item": state["upper"]})}


class Text(TypedDict, total=False):
    text: str


def upper(state: Text) -> dict[str, Any]:
    return {"text": state["text"].upper()}


async def price(item: str) -> int:
    """What an item costs."""
    return 10 * len(item)


# -- trip: what it did is undone -----------------------------------------------------------------------------


class Trip(TypedDict, total=False):
    card: str
    receipt: str


class Undo(TypedDict, total=False):
    name: str
    result: Any
    args: list[Any]
    fee: int


def reserve(seat: str, idempotency_key: str) -> str:
    return f"reservation of {seat}"


@compensation
def release(reserved: str, seat: str) -> str:
    return f"released {reserved}"


def charge_card(card: str) -> str:
    if card == "stolen":
        raise ValueError("the card is stolen")
    return f"{card} charged"


async def book(state: Trip) -> dict[str, Any]:
    await effect("seat", reserve, "12A", kind="idempotent", compensate=release)
    await effect("bus", reach, "bus", kind="external", compensate="tests.data.earlier_log.agents:UNDO")
    return {"receipt": await effect_in_two_attempts("charge", charge_card, state["card"])}


async def refund(state: Undo) -> dict[str, Any]:
    await effect("refund", reach, f"refund of {state['result']}", kind="external")
    return {"fee": 10}


async def bill(state: Undo) -> dict[str, Any]:
    await effect("bill", reach, f"bill of {state['fee']}", kind="external")
    return {}


def apologise(end: dict[str, Any]) -> str:
    return f"sorry: {end['message']}"


# -- flaky: fails for good after a retry ---------------------------------------------------------------------


class Flaky(TypedDict, total=False):
    what: str


async def fail(state: Flaky) -> dict[str, Any]:
    found = await effect("look", reach, state["what"], kind="pure")
    raise LookupError(f"nothing but {found}")


# -- order: two versions of a graph --------------------------------------------------------------------------


class OldOrder(TypedDict, total=False):
    cents: int
    by: str
    receipt: str


class NewOrder(TypedDict, total=False):
    amount: str
    by: str
    receipt: str


def ask_person(state: dict[str, Any]) -> dict[str, Any]:
    return {"by": interrupt("Pay?")}


def pay_cents(state: OldOrder) -> dict[str, Any]:
    return {"receipt": f"{state['cents']} cents"}


def settle(state: NewOrder) -> dict[str, Any]:
    return {"receipt": state["amount"]}


def in_euros(old: dict[str, Any]) -> dict[str, Any]:
    return {"amount": f"{old['cents'] / 100} EUR"}


# -- facts ---------------------------------------------------------------------------------------------------


class Said(DomainEvent, event_type="fact.said"):
    n: int


class Tallied(DomainEvent, event_type="tally.tallied"):
    n: int
    total: int


# -- the checkpointer alone ----------------------------------------------------------------------------------


class Talk(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    place: Place
    mood: Mood


def reply(state: Talk) -> dict[str, Any]:
    number = len(state["messages"])
    said = AIMessage(f"answer {number}", id=f"a{number}")
    return {"messages": [said], "place": Place("Elm Street", number), "mood": Mood.BUSY}
