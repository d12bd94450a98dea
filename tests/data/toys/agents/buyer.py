"""Buys from a shop that may not answer; the question says how it goes on: `die`, `fail`, `die later` or well.

What the shop was asked stands in `shop.txt`, in the folder of the worker.
"""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.kernel import current_step, kernel_compensation

SHOP = Path("shop.txt")


class Purchase(TypedDict, total=False):
    question: str
    answer: str


def ask_the_shop(line: str) -> int:
    """Write a line; return how many there are."""
    with SHOP.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    return len(SHOP.read_text(encoding="utf-8").splitlines())


def order(what: str, idempotency_key: str) -> int:
    number = ask_the_shop(f"order {what} {idempotency_key}")
    if what == "die" and number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@kernel_compensation()
def send_back(number: int, what: str) -> None:
    first = ask_the_shop(f"send back {what}") == 2
    if first and what == "fail":
        raise ConnectionError("the shop is closed")
    if first and what == "die later":
        os.kill(os.getpid(), signal.SIGKILL)


class Buyer(BaseGraphicAgent):
    agent_type = "buyer"

    def get_state_class(self) -> type[Any]:
        return Purchase

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Purchase)
        graph.add_node("buy", self.buy)
        graph.add_edge(START, "buy")
        return graph

    async def buy(self, state: Purchase) -> dict[str, Any]:
        what = state["question"]
        number = await current_step().effect(
            "order", order, what, timeout=timedelta(seconds=8), compensate=send_back
        )
        if what in ("fail", "die later"):
            raise ValueError("it does not fit")
        return {"answer": f"bought number {number}"}


AGENT = Buyer
