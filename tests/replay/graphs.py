"""Agents whose golden histories lie beside this file; to change one is to change what is recorded of it."""

from __future__ import annotations

import asyncio
import operator
from datetime import timedelta
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send
from pydantic import BaseModel

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event import DomainEvent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, kernel_node

Graph = StateGraph[Any, Any, Any, Any]


class Weighed(DomainEvent, event_type="shop.weighed"):
    grams: int


class Approval(BaseModel):
    amount: int


class ShopState(TypedDict, total=False):
    order: list[int]
    item: int
    weights: Annotated[list[int], operator.add]
    price: int
    mood: str
    paid: Any


class Shop(BaseGraphicAgent):
    """Fans out, weighs in a subgraph, asks others and a person, sleeps, and pays."""

    agent_type = "shop"
    version = "1.0.0"
    events = (Weighed,)

    def get_state_class(self) -> type[Any]:
        return ShopState

    def _build_graph(self) -> Graph:
        inner = StateGraph(ShopState)
        inner.add_node("weigh", self.weigh)
        inner.add_node("pack", lambda state: {"mood": "packed"})
        inner.add_edge(START, "weigh")
        inner.add_edge("weigh", "pack")
        graph = StateGraph(ShopState)
        graph.add_node("take", self.take, destinations=("each",))
        graph.add_node("each", self.weigh)
        graph.add_node("last", inner.compile())
        graph.add_node("price", self.price)
        graph.add_node("confirm", self.confirm)
        graph.add_node("pay", self.pay)
        graph.add_edge(START, "take")
        graph.add_edge("each", "last")
        graph.add_edge("last", "price")
        graph.add_conditional_edges("price", self.way, ["confirm", "pay"])
        graph.add_edge("confirm", "pay")
        graph.add_edge("pay", END)
        return graph

    def take(self, state: ShopState) -> Command[Any]:
        sends = [Send("each", {"item": item}) for item in state["order"]]
        return Command(update={"mood": "busy", "item": 0}, goto=sends)

    async def weigh(self, state: ShopState) -> dict[str, Any]:
        grams = 100 * (state["item"] + 1)
        return {"weights": [grams], "_pending_events": [Weighed(grams=grams)]}

    async def price(self, state: ShopState) -> dict[str, Any]:
        step = current_step()
        asked = [step.invoke("price.of", {"grams": grams}, version="^1") for grams in state["weights"]]
        found = await asyncio.gather(*asked)
        return {"price": sum(answer["cents"] for answer in found)}

    def way(self, state: ShopState) -> str:
        return "confirm" if state["price"] > 100 else "pay"

    async def confirm(self, state: ShopState) -> dict[str, Any]:
        step = current_step()
        await step.sleep(timedelta(days=30))
        answer = await step.interrupt({"pay": state["price"]}, schema=Approval)
        return {"price": answer.value.amount if answer.approved else 0}

    @kernel_node(deterministic=False, entropy_sources=["bank"])
    async def pay(self, state: ShopState) -> dict[str, Any]:
        step = current_step()
        effect_class = SideEffectClass.IDEMPOTENT
        paid = await step.effect("pay", self.transfer, state["price"], effect_class=effect_class)
        return {"paid": [paid, step.uuid(), step.now().isoformat()], "mood": await step.signal("mood")}

    async def transfer(self, cents: int) -> str:
        return f"{cents} paid"


class Flaky(BaseGraphicAgent):
    """Fails for good after three attempts, each with an effect of its own."""

    agent_type = "flaky"

    def get_state_class(self) -> type[Any]:
        return ShopState

    def _build_graph(self) -> Graph:
        graph = StateGraph(ShopState)
        retry = RetryPolicy(max_attempts=3, initial_interval=1, jitter=True, retry_on=LookupError)
        graph.add_node("begin", lambda state: {"mood": "hopeful"})
        graph.add_node("fail", self.fail, retry_policy=retry)
        graph.add_edge(START, "begin")
        graph.add_edge("begin", "fail")
        return graph

    async def fail(self, state: ShopState) -> dict[str, Any]:
        found = await current_step().effect("look", self.look, state["mood"])
        raise LookupError(f"nothing but {found}")

    async def look(self, mood: str) -> str:
        return f"a {mood} nothing"
