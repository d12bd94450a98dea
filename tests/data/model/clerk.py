"""A STRICT agent that asks its model, whichever its options name."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from noesium_stream import BaseGraphicAgent, ExecutionMode, kernel_node


class Options(BaseModel):
    model: str | None = None


class State(TypedDict, total=False):
    question: str
    answer: str


class Clerk(BaseGraphicAgent):
    agent_type = "clerk"
    Options = Options
    execution_mode = ExecutionMode.STRICT

    def get_state_class(self) -> type[Any]:
        return State

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(State)
        graph.add_node("ask", self.ask)
        graph.add_edge(START, "ask")
        return graph

    @kernel_node(deterministic=False, entropy_sources=["model"])
    async def ask(self, state: State) -> dict[str, Any]:
        if self.llm is None:
            return {"answer": "nobody to ask"}
        return {"answer": await self.llm.complete(state["question"])}


AGENT = Clerk
