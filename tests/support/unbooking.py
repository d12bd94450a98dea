"""A holiday whose parts are undone by graphs: of a module, of the agent, and one for the run as a whole.

What undoes is found by its name, so the world is the module's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, kernel_compensation, kernel_node
from tests.support.effects import World

WORLD = World()
BODIES: Counter[str] = Counter()
"""How often bodies of nodes that undo were begun."""
GIVEN: dict[str, Any] = {}
"""What graphs that undo were given."""


def new_world(**options: Any) -> World:
    """Begin again with a world in which nothing has happened."""
    global WORLD
    WORLD = World(**options)
    BODIES.clear()
    GIVEN.clear()
    return WORLD


async def act(what: str, *, idempotency_key: str) -> Any:
    return await WORLD.act(what, idempotency_key=idempotency_key)


class Unbook(TypedDict, total=False):
    name: str
    result: str
    args: list[Any]
    kwargs: dict[str, Any]
    refunded: str


async def refund(state: Unbook) -> dict[str, Any]:
    BODIES["refund"] += 1
    GIVEN["refund"] = dict(state)
    return {"refunded": await current_step().effect("refund", act, "refund")}


async def apologise(state: Unbook) -> dict[str, Any]:
    BODIES["apologise"] += 1
    idempotent = SideEffectClass.IDEMPOTENT
    await current_step().effect("letter", act, "letter", effect_class=idempotent)
    assert state["refunded"] == "refund 1"
    return {}


async def close(state: Unbook) -> dict[str, Any]:
    BODIES["close"] += 1
    return {}


def unbook() -> StateGraph[Any, Any, Any, Any]:
    """Refund, then a graph within that writes a letter, then close."""
    inner = StateGraph(Unbook)
    inner.add_node("apologise", apologise)
    inner.add_edge(START, "apologise")
    inner.add_edge("apologise", END)
    return chain(refund=refund, polite=inner.compile(), close=close)


def chain(**nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(Unbook)
    previous = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(previous, name)
        previous = name
    graph.add_edge(previous, END)
    return graph


async def erase(state: Unbook) -> dict[str, Any]:
    BODIES["erase"] += 1
    GIVEN["erase"] = dict(state)
    await current_step().effect("erase", act, "erase", effect_class=SideEffectClass.IDEMPOTENT)
    return {}


class Report(TypedDict, total=False):
    input: dict[str, Any]
    cause: str
    error_type: str
    message: str


async def report(state: Report) -> dict[str, Any]:
    BODIES["report"] += 1
    GIVEN["report"] = dict(state)
    await current_step().effect("report", act, "report", effect_class=SideEffectClass.IDEMPOTENT)
    return {}


def reporting() -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(Report)
    graph.add_node("report", report)
    graph.add_edge(START, "report")
    return graph


UNBOOK = kernel_compensation()(unbook().compile())
REPORT = reporting().compile()


class Holiday(TypedDict, total=False):
    place: str
    booking: str
    noted: str


class Holidays(BaseGraphicAgent):
    """Books, notes, and fails: then the note is erased, the booking undone, and a report is made."""

    agent_type = "holidays"
    on_failure = "tests.support.unbooking:REPORT"

    def __init__(self, options: Any, context: Any) -> None:
        super().__init__(options, context)
        self.unnote = chain(erase=erase).compile()

    def get_state_class(self) -> type[Any]:
        return Holiday

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Holiday)
        previous = START
        for name, node in {"book": self.book, "note": self.note, "leave": self.leave}.items():
            graph.add_node(name, node)
            graph.add_edge(previous, name)
            previous = name
        graph.add_edge(previous, END)
        return graph

    async def book(self, state: Holiday) -> dict[str, Any]:
        BODIES["book"] += 1
        idempotent = SideEffectClass.IDEMPOTENT
        booked = await current_step().effect(
            "booking", act, "booking", effect_class=idempotent, compensate="tests.support.unbooking:UNBOOK"
        )
        return {"booking": booked}

    @kernel_node(compensate="unnote")
    async def note(self, state: Holiday) -> dict[str, Any]:
        return {"noted": state["booking"]}

    async def leave(self, state: Holiday) -> dict[str, Any]:
        raise LookupError("no trains today")
