"""An agent that books a journey and then fails, or waits to be cancelled; everything it did can be undone.

What undoes it are functions of this module and methods of the agent, so the world is the module's too.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.kernel.decorators import kernel_compensation
from tests.support.effects import World

WORLD = World()
UNDONE: list[tuple[Any, ...]] = []
"""What the compensations were called with, in order; those that failed too."""


def new_world(**options: Any) -> World:
    """Begin again with a world in which nothing has happened."""
    global WORLD
    WORLD = World(**options)
    UNDONE.clear()
    return WORLD


@kernel_compensation()
async def cancel_flight(booking: Any, name: str, *, idempotency_key: str) -> None:
    UNDONE.append(("cancel_flight", booking, name))
    await WORLD.act("cancel flight", idempotency_key=idempotency_key)


@kernel_compensation()
def strangely(booking: Any, name: str) -> object:
    """Sync, and its result has no JSON form."""
    UNDONE.append(("strangely", booking, name))
    return object()


class Journey(TypedDict, total=False):
    ending: str
    effect_class: str
    places: list[str]
    flight: str
    hotel: str


class Traveller(BaseGraphicAgent):
    """Books a flight and a hotel, notes it, and ends as its input says: fails, waits or is done."""

    agent_type = "traveller"
    bodies: ClassVar[list[str]] = []

    def get_state_class(self) -> type[Any]:
        return Journey

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Journey)
        previous = START
        for name, node in {"fly": self.fly, "sleep": self.sleep, "note": self.note, "end": self.end}.items():
            graph.add_node(name, node)
            graph.add_edge(previous, name)
            previous = name
        graph.add_edge(previous, END)
        return graph

    async def fly(self, state: Journey) -> dict[str, Any]:
        booked = await current_step().effect(
            "flight",
            WORLD.act,
            "flight",
            effect_class=SideEffectClass(state.get("effect_class", "external")),
            compensate=cancel_flight,
        )
        return {"flight": booked}

    async def sleep(self, state: Journey) -> dict[str, Any]:
        booked = await current_step().effect(
            "hotel",
            WORLD.act,
            "hotel",
            effect_class=SideEffectClass(state.get("effect_class", "external")),
            compensate=self.cancel_hotel,
        )
        return {"hotel": booked}

    @kernel_compensation()
    async def cancel_hotel(self, booking: Any, name: str, idempotency_key: str) -> None:
        UNDONE.append(("cancel_hotel", booking, name))
        await WORLD.act("cancel hotel", idempotency_key=idempotency_key)

    @kernel_node(compensate="forget")
    def note(self, state: Journey) -> dict[str, Any]:
        return {"places": [state["flight"], state["hotel"]]}

    async def forget(self, delta: Any) -> None:
        UNDONE.append(("forget", delta))

    async def end(self, state: Journey) -> dict[str, Any]:
        self.bodies.append("end")
        if state["ending"] == "wait":
            await asyncio.Event().wait()
        if state["ending"] == "hang":
            await current_step().effect("taxi", WORLD.act, "taxi", compensate=strangely)
        if state["ending"] == "fail":
            raise LookupError("no taxi to be had")
        return {}
