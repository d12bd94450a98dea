"""Tools in the forms of MCP, of function calling and of LangChain, and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool as langchain_tool

from noesium_stream.errors import ConfigError, ToolError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import AtomicTool, BaseToolkit, ToolContext, ToolSource, tool
from noesium_stream.tool.convert import ToolConverter, atomic_tools
from noesium_stream.tool.function import ToolMark

CONTEXT = ToolContext("a", Path())


@tool(side_effects=SideEffectClass.PURE, tags=("money",))
def price(item: str, pieces: int = 1) -> int:
    """What an item costs."""
    return len(item) * pieces


PRICE = atomic_tools(price)[0]


def test_a_tool_is_shown_to_mcp_and_read_back() -> None:
    form = ToolConverter.to_mcp(PRICE)
    assert form["name"] == "price"
    assert form["inputSchema"]["required"] == ["item"]
    assert "outputSchema" not in form  # a whole number, and MCP takes objects
    read = ToolConverter.from_mcp(
        {**form, "annotations": {"readOnlyHint": True}, "outputSchema": {"type": "object"}}, server="shop"
    )
    assert (read.tool_id, read.source) == ("mcp:shop.price", ToolSource.MCP)
    assert read.side_effect_class is SideEffectClass.EXTERNAL
    assert read.input_schema == form["inputSchema"]
    assert ToolConverter.to_mcp(read)["outputSchema"] == {"type": "object"}


def test_a_tool_is_shown_as_a_function_and_read_back() -> None:
    form = ToolConverter.to_function(PRICE, "buy")
    assert form["function"]["name"] == "buy"
    mark = ToolMark(name="price", side_effects=SideEffectClass.IDEMPOTENT, timeout=2.0)
    read = ToolConverter.from_function(form, mark=mark)
    assert (read.name, read.timeout_ms) == ("price", 2000)
    assert read.side_effect_class is SideEffectClass.IDEMPOTENT
    assert ToolConverter.from_function(form["function"]).name == "buy"


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"name": 7},
        {"name": "a b", "inputSchema": {"type": "object"}},
        {"name": "a", "inputSchema": []},
        {"name": "a", "description": {}},
        {"name": "a", "inputSchema": {"type": "nothing"}},
        {"name": "a", "inputSchema": {"$ref": "https://example.com/schema.json"}},
    ],
)
def test_a_form_that_is_no_tool_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ToolConverter.from_mcp(form, server="s")


async def test_a_tool_of_langchain_is_called_as_one() -> None:
    @langchain_tool
    def double(number: int) -> int:
        """Twice a number."""
        return 2 * number

    @langchain_tool(response_format="content_and_artifact")
    async def report(topic: str) -> tuple[str, dict[str, int]]:
        """Report about a topic."""
        return f"about {topic}", {"pages": 3}

    twice, reported = (atomic_tools(one)[0] for one in (double, report))
    assert (twice.tool_id, twice.side_effect_class) == ("langchain:double", SideEffectClass.EXTERNAL)
    assert twice.input_schema["properties"]["number"]["type"] == "integer"
    assert str(await twice.execute({"number": 4}, CONTEXT)) == "8"
    found = await reported.execute({"topic": "bread"}, CONTEXT)
    assert found == {"content": "about bread", "artifact": {"pages": 3}}


def test_a_tool_becomes_one_of_langchain_that_its_executor_calls() -> None:
    made = []

    async def call(called: AtomicTool, arguments: dict[str, Any]) -> Any:
        made.append((called.tool_id, arguments))
        return 12

    shown = ToolConverter.to_langchain(PRICE, call)
    assert asyncio.run(shown.ainvoke({"item": "bread", "pieces": 2})) == 12
    assert made == [("user:price", {"item": "bread", "pieces": 2})]
    with pytest.raises(ToolError, match="by its executor"):
        asyncio.run(ToolConverter.to_langchain(PRICE).ainvoke({"item": "bread"}))
    assert atomic_tools(shown)[0].input_schema["properties"] == PRICE.input_schema["properties"]


def test_a_toolkit_is_its_tools_and_anything_else_is_refused() -> None:
    class Clock(BaseToolkit):
        name = "clock"

        @tool
        def seconds(self, minutes: int) -> int:
            """How many seconds."""
            return minutes * 60

    assert [one.tool_id for one in atomic_tools(Clock())] == ["user:clock.seconds"]
    for wrong in (Clock, 7, None):
        with pytest.raises(ConfigError, match="is no tool"):
            atomic_tools(wrong)
