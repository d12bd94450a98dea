"""The tools of a process, by id, name, source, tag and words."""

from __future__ import annotations

import pytest

from noesium_stream.errors import ConfigError, ToolNotFoundError
from noesium_stream.tool import AtomicTool, BaseToolkit, ToolSource, tool
from noesium_stream.tool.registry import ToolRegistry


def refund(order: int) -> str:
    """Pay an order back."""
    return f"{order} is paid back"


def named(name: str, description: str = "", **more: object) -> AtomicTool:
    return AtomicTool(name, description, {"type": "object"}, **more)  # type: ignore[arg-type]


class Clock(BaseToolkit):
    name = "clock"

    @tool(tags=("category:time",))
    def seconds(self, minutes: int) -> int:
        """How many seconds these minutes have."""
        return 60 * minutes


def test_tools_are_found_by_id_name_source_and_tags() -> None:
    tools = ToolRegistry()
    tools.register_many([refund, Clock(), named("find", source=ToolSource.MCP, toolkit_name="crm")])
    assert [one.tool_id for one in tools] == ["user:refund", "user:clock.seconds", "mcp:crm.find"]
    assert tools.get_by_name("seconds") is tools.get_by_id("user:clock.seconds")
    assert [one.name for one in tools.list_tools("mcp")] == ["find"]
    assert [one.name for one in tools.list_tools(tags=["category:time", "toolkit:clock"])] == ["seconds"]
    assert tools.list_tools(ToolSource.MCP, ["category:time"]) == []
    assert len(tools) == 3
    assert "find" in tools
    with pytest.raises(ToolNotFoundError, match="no tool 'pay'") as caught:
        tools.get_by_name("pay")
    assert "refund" in str(caught.value.hint)


def test_two_tools_of_one_name_are_refused_and_nothing_is_added() -> None:
    tools = ToolRegistry()
    [first] = tools.register(refund)
    tools.register(first)
    with pytest.raises(ConfigError, match=r"two tools 'refund': user:refund and mcp:crm\.refund"):
        tools.register_many([Clock(), named("refund", source=ToolSource.MCP, toolkit_name="crm")])
    with pytest.raises(ConfigError, match="two tools 'x'"):
        tools.register_many([named("x", "one"), named("x", "another")])
    assert [one.name for one in tools] == ["refund"]


def test_the_words_of_a_text_choose_tools() -> None:
    tools = ToolRegistry()
    tools.register_many(
        [
            named("read_file", "Read a file of the workspace"),
            named("search_files", "Find a file by its name"),
            named("send_mail", "Send a mail, with a file", tags=("external",)),
        ]
    )
    assert [one.name for one in tools.choose("please SEND it")] == ["send_mail"]
    assert tools.choose("read the file")[0].name == "read_file"
    assert [one.name for one in tools.choose("file", tags=["external"])] == ["send_mail"]
    assert [one.name for one in tools.choose("", limit=2)] == ["read_file", "search_files"]
    assert tools.choose("nothing") == []


def test_tools_are_shown_to_langchain_under_valid_names() -> None:
    tools = ToolRegistry()
    tools.register_many([named("crm.find", "Find somebody"), named("crm_find", "Find something")])
    shown = [one.name for one in tools.to_langchain_tools()]
    assert shown[1] == "crm_find"
    assert shown[0].startswith("crm_find_")
