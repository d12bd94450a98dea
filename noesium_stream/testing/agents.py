"""Agents for tests: with a scripted model, or as a provider that answers from scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from noesium_stream.agent import AgentContext, BaseGraphicAgent
from noesium_stream.event.standard import Capability
from noesium_stream.kernel import current_step
from noesium_stream.llm import BaseLLMClient, JournaledLLM
from noesium_stream.testing.script import Call, Script


def with_model(agent: type[BaseGraphicAgent], model: BaseLLMClient) -> type[BaseGraphicAgent]:
    """A subclass of the agent with `model` as its `llm`."""

    class WithModel(agent):  # type: ignore[valid-type, misc]
        def __init__(self, options: BaseModel, context: AgentContext) -> None:
            super().__init__(options, context)
            self.llm = JournaledLLM(model)

    WithModel.__name__ = WithModel.__qualname__ = agent.__name__
    return WithModel


class _Asked(TypedDict, total=False):
    capability: str
    input: dict[str, Any]
    output: Any


def provider_of(scripts: Mapping[str, Script]) -> type[BaseGraphicAgent]:
    """An agent that offers the capabilities named in `scripts` and answers from them.

    A call is identified by its run, so a repeated call gets the same answer again.
    """
    anything: dict[str, Any] = {}

    async def answer(state: _Asked) -> dict[str, Any]:
        call = Call((state["input"],), {}, current_step().run_id)
        return {"output": await scripts[state["capability"]].answer(call)}

    class ScriptedProvider(BaseGraphicAgent):
        agent_type = "scripted-provider"
        capabilities = tuple(
            Capability(id=name, input_schema=anything, output_schema=anything) for name in scripts
        )

        def get_state_class(self) -> type[Any]:
            return _Asked

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            graph = StateGraph(_Asked)
            graph.add_node("answer", answer)
            graph.add_edge(START, "answer")
            graph.add_edge("answer", END)
            return graph

        def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
            return {"capability": capability_id, "input": input}

        def result(self, state: dict[str, Any]) -> Any:
            return state["output"]

    return ScriptedProvider
