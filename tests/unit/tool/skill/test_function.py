"""Skills from typed async functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from noesium_stream.errors import ConfigError, ToolInputError
from noesium_stream.tool.skill import SkillRun, skill_of
from tests.unit.tool.skill.test_skill import TOOLS, Bare


@dataclass
class Report:
    day: date
    sums: list[int]


@skill_of("double", "add", version="1.2.0")
async def report(run: SkillRun, day: date, numbers: list[int], add: int = 0) -> Report:
    """Double numbers."""
    doubled = [await run.tool("double", n=number) for number in numbers]
    return Report(day, [await run.tool("add", a=number, b=add) for number in doubled] if add else doubled)


def test_its_schemas_come_from_the_annotations() -> None:
    assert (report.name, report.description, report.version) == ("report", "Double numbers.", "1.2.0")
    assert report.tool_names == ("double", "add")
    assert list(report.input_schema["properties"]) == ["day", "numbers", "add"]
    assert report.input_schema["required"] == ["day", "numbers"]
    assert report.output_schema is not None
    assert set(report.output_schema["properties"]) == {"day", "sums"}


async def test_it_takes_and_returns_the_declared_types() -> None:
    bound = report.bind_executor(Bare(), TOOLS)
    assert await bound.execute(day="2026-11-26", numbers=[1, 2]) == {"day": "2026-11-26", "sums": [2, 4]}
    assert await bound.execute(day="2026-11-26", numbers=[1], add=3) == {"day": "2026-11-26", "sums": [5]}
    with pytest.raises(ToolInputError):
        await bound.execute(day="2026-11-26", numbers="x")
    with pytest.raises(ToolInputError):
        await bound.execute(day="no day", numbers=[])


def test_what_is_no_skill_function_is_refused() -> None:
    def sync(run: SkillRun) -> int:
        return 1

    async def untyped(day: date) -> int:
        return 1

    async def star(run: SkillRun, *numbers: int) -> int:
        return 1

    function: Any
    for function, said in ((sync, "no async function"), (untyped, "no SkillRun"), (star, "no name to give")):
        with pytest.raises(ConfigError, match=said):
            skill_of()(function)
