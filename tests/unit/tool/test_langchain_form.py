"""Tools as tools of LangChain: LangChain's own standard tests, and calls that wait."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from noesium_stream.agent import agent_from_graph
from noesium_stream.errors import ToolError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import AtomicTool, ToolRegistry, tool


@tool(side_effects=SideEffectClass.PURE)
def price(item: str, pieces: int = 1) -> dict[str, int]:
    """What an item costs."""
    return {"cents": len(item) * pieces}


async def called(tool: AtomicTool, arguments: dict[str, Any]) -> Any:
    """Call the function itself, as a test does."""
    return price(**arguments)


def shown(call: Any = called) -> BaseTool:
    """The tool as a model gets it."""
    registry = ToolRegistry()
    registry.register(price)
    (found,) = registry.to_langchain_tools(call)
    return found


class TestTheStandardUnitTestsOfLangChain(ToolsUnitTests):
    """`ToolsUnitTests` of `langchain-tests`."""

    @property
    def tool_constructor(self) -> BaseTool:
        """The tool under test."""
        return shown()

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        """Arguments of a call."""
        return {"item": "bread", "pieces": 2}


class TestTheStandardIntegrationTestsOfLangChain(ToolsIntegrationTests):
    """`ToolsIntegrationTests` of `langchain-tests`."""

    @property
    def tool_constructor(self) -> BaseTool:
        """The tool under test."""
        return shown()

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        """Arguments of a call."""
        return {"item": "bread", "pieces": 2}


class State(TypedDict, total=False):
    item: str
    done: str


async def test_a_sync_node_may_wait_for_a_call() -> None:
    def ask(state: State) -> State:
        return {"done": str(shown(None).invoke({"item": state["item"]}))}

    kind = agent_from_graph(StateGraph(State).add_node("ask", ask).add_edge(START, "ask"), "clerk")
    kind.tools = (price,)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"item": "oil"})
        assert (await run.result())["done"] == "{'cents': 3}"
        assert "tool.completed" in [event.event_type for event in await run.history()]


async def test_a_call_that_would_block_the_loop_is_refused() -> None:
    with pytest.raises(ToolError, match="price is called in an event loop"):
        shown().invoke({"item": "oil"})


def test_outside_a_node_the_agent_s_tools_are_not_called() -> None:
    with pytest.raises(ToolError, match="price is called by its executor alone"):
        shown(None).invoke({"item": "oil"})
