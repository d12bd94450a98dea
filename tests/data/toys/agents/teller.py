"""Answers in pieces: the words of its input."""

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream import current_step


class Told(TypedDict, total=False):
    words: list[Any]
    told: int


async def tell(state: Told) -> Told:
    for word in state["words"]:
        await current_step().write(word)
    return {"told": len(state["words"])}


graph = StateGraph(Told).add_node(tell).add_edge(START, "tell").compile()
