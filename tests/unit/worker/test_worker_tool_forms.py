"""`agent_from_tools` offers tools of every form to other agents."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.tools import tool as langchain_tool

from noesium_stream import Client, ConfigError, Worker, agent_from_tools, open_log
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import AtomicTool, BaseToolkit, tool


class Clock(BaseToolkit):
    name = "clock"

    @tool(side_effects=SideEffectClass.PURE)
    def seconds(self, minutes: int) -> int:
        """How many seconds these minutes have."""
        return 60 * minutes


def plain(text: str) -> str:
    """A plain function."""
    return text.upper()


@langchain_tool
def length(text: str) -> str:
    """The length of a text."""
    return str(len(text))


DOUBLE = AtomicTool(
    "double",
    "Twice a number",
    {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    side_effect_class=SideEffectClass.PURE,
    function=lambda arguments, context: 2 * arguments["number"],
)


async def test_tools_of_every_form_are_offered_and_called(tmp_path: Path) -> None:
    agent = agent_from_tools("kit", "kit", [plain, Clock(), DOUBLE, length])
    assert [one.id for one in agent.capabilities] == [
        "tool.kit.plain",
        "tool.kit.seconds",
        "tool.kit.double",
        "tool.kit.length",
    ]
    log = await open_log("memory://")
    async with Worker(log, [agent], home=tmp_path), Client(log) as client:
        for name, given, result in (
            ("plain", {"text": "a"}, "A"),
            ("seconds", {"minutes": 2}, 120),
            ("double", {"number": 4}, 8),
        ):
            run = await client.start("kit", given, capability=f"tool.kit.{name}")
            assert await run.result() == result
        run = await client.start("kit", {"number": "x"}, capability="tool.kit.double")
        with pytest.raises(Exception, match=r"tool\.kit\.double does not take these arguments"):
            await run.result()
    await log.close()


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools double"):
        agent_from_tools("kit", "kit", [DOUBLE, DOUBLE])
