"""Offers `text.upper`."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event.standard import Capability, SideEffectClass

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class HelperState(TypedDict, total=False):
    question: str
    text: str


class Helper(BaseGraphicAgent):
    agent_type = "helper"
    capabilities = (
        Capability(id="text.upper", input_schema=TEXT, output_schema=TEXT, side_effects=SideEffectClass.PURE),
    )

    def get_state_class(self) -> type[Any]:
        return HelperState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(HelperState)
        graph.add_node("upper", self.upper)
        graph.add_edge(START, "upper")
        return graph

    async def upper(self, state: HelperState) -> dict[str, Any]:
        return {"text": (state.get("text") or state["question"]).upper()}


AGENT = Helper
