"""Skills: their contract, and their execution by the executor that they are bound to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import (
    ConfigError,
    KernelError,
    ToolExecutionError,
    ToolInputError,
    ToolNotFoundError,
)
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.function import tool_of_function
from noesium_stream.tool.skill.skill import Skill, SkillRun
from noesium_stream.tool.skill.step import SkillStep

CONTEXT = ToolContext("clerk", Path())
INPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


def add(a: int, b: int) -> int:
    """A sum."""
    return a + b


TOOLS = [tool_of_function(double), tool_of_function(add)]
SUM = Skill(
    "sum",
    "Three times a number.",
    INPUT,
    {"type": "integer"},
    steps=(
        SkillStep("twice", "double", {"n": "$input.n"}),
        SkillStep("total", "add", {"a": "$twice", "b": "$input.n"}),
    ),
)


class Bare:
    """Calls tools without events, and remembers the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ToolContext | None]] = []

    async def run(self, tool: AtomicTool, context: ToolContext | None = None, /, **arguments: Any) -> Any:
        self.calls.append((tool.name, context))
        return await tool.execute(arguments, context or CONTEXT)


async def test_a_skill_is_executed_by_the_executor_that_it_is_bound_to() -> None:
    bare = Bare()
    bound = SUM.bind_executor(bare, TOOLS, CONTEXT)
    assert await bound.execute(n=5) == 15
    assert bare.calls == [("double", CONTEXT), ("add", CONTEXT)]
    assert bound == SUM


def test_it_names_itself_and_its_tools() -> None:
    assert SUM.skill_id == "skill.sum"
    assert SUM.tool_names == ("double", "add")
    assert list(SUM.tools_from(TOOLS)) == ["double", "add"]


async def test_a_function_may_only_call_the_tools_that_the_skill_uses() -> None:
    async def serve(run: SkillRun, input: dict[str, Any]) -> Any:
        return await run.tool(input["tool"], n=1)

    skill = Skill("f", "", {"type": "object"}, function=serve, uses=("double",))
    bound = skill.bind_executor(Bare(), TOOLS)
    assert await bound.execute(tool="double") == 2
    with pytest.raises(ToolNotFoundError, match="The skill f has no tool 'add'") as refused:
        await bound.execute(tool="add")
    assert refused.value.hint == "It has double."


async def test_input_and_output_are_judged() -> None:
    bare = Bare()
    with pytest.raises(ToolInputError, match="sum: input"):
        await SUM.bind_executor(bare, TOOLS).execute(n="x")
    assert bare.calls == []
    wrong = Skill("w", "", INPUT, {"type": "string"}, steps=SUM.steps)
    with pytest.raises(ToolExecutionError, match="w: output"):
        await wrong.bind_executor(bare, TOOLS).execute(n=1)


@pytest.mark.parametrize(
    ("output", "value"),
    [(None, None), ("$twice", 10), ({"twice": "$twice", "total": "$total?"}, {"twice": 10, "total": None})],
)
async def test_the_output_is_a_template_over_all_results(output: Any, value: Any) -> None:
    steps = (SUM.steps[0], SkillStep("total", "add", {"a": 1, "b": 1}, when="twice > 10"))
    skill = Skill("o", "", INPUT, steps=steps, output=output)
    assert await skill.bind_executor(Bare(), TOOLS).execute(n=5) == value


async def test_nested_loops_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (
        SkillStep("a", "double", {"n": 1}, repeat_until="a == 0", max_repeats=100),
        SkillStep("b", "double", {"n": 1}, repeat_until="b == 0", repeat_from="a", max_repeats=100),
    )
    bare = Bare()
    with pytest.raises(ToolExecutionError, match="has done 1,000 steps, and not ended"):
        await Skill("l", "", {}, steps=steps).bind_executor(bare, TOOLS).execute()
    assert len(bare.calls) == 1_000


async def test_without_an_executor_it_needs_a_node() -> None:
    with pytest.raises(KernelError):
        await SUM.execute(n=1)


def test_a_missing_tool_is_named_when_it_is_bound() -> None:
    with pytest.raises(ToolNotFoundError, match="The skill sum needs the tools add, which are not there"):
        SUM.bind_executor(Bare(), TOOLS[:1])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "a b", "steps": SUM.steps}, "cannot name a skill"),
        ({"name": "x" * 101, "steps": SUM.steps}, "cannot name a skill"),
        ({"name": "a"}, "needs steps or a function"),
        ({"name": "a", "steps": SUM.steps, "uses": ("double",)}, "has steps, which say themselves"),
        ({"name": "a", "steps": SUM.steps, "output": "$absent"}, "refers to absent"),
        ({"name": "a", "steps": SUM.steps, "output_schema": {"type": "wrong"}}, "The output schema"),
    ],
)
def test_a_wrong_skill_is_refused_when_it_is_made(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Skill(**{"description": "", "input_schema": INPUT, **given})
