"""Tools of one agent that another one calls: each call is an event, and a run of the shop.

    noesium run agents.examples.shop --input '{"items": ["bread", "oil"]}'

The buyer is STRICT: it calls nothing outside by itself. `noesium show` draws its run and those of the shop.
"""

from __future__ import annotations

from typing import TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream import ExecutionMode, SideEffectClass, agent_from_graph, agent_from_tools, current_step

PRICES = {"bread": 3, "oil": 9}


class Basket(TypedDict, total=False):
    """What is to be bought, and what it costs."""

    items: list[str]
    total: int


async def price(item: str, currency: str = "EUR") -> int:
    """What an item costs."""
    return PRICES[item]


async def sum_up(state: Basket) -> Basket:
    """Ask the shop for each price."""
    step = current_step()
    return {"total": sum([await step.call_tool("shop", "price", {"item": item}) for item in state["items"]])}


SHOP = agent_from_tools("shop", "shop", [price], effect_class=SideEffectClass.PURE)

AGENT = agent_from_graph(
    StateGraph(Basket).add_node("sum_up", sum_up).add_edge(START, "sum_up"),
    "buyer",
    execution_mode=ExecutionMode.STRICT,
    companions=("agents.examples.shop:SHOP",),
)
