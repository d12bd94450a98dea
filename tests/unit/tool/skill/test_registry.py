"""The registry of skills."""

from __future__ import annotations

import pytest

from noesium_stream.errors import ConfigError, SkillNotFoundError
from noesium_stream.tool.skill import Skill, SkillRegistry, SkillStep


def made(name: str, *tools: str) -> Skill:
    return Skill(name, "", {}, steps=tuple(SkillStep(tool, tool) for tool in tools))


def test_skills_are_found_by_name_id_and_tools() -> None:
    registry = SkillRegistry()
    second = registry.register(made("second", "a", "b"))
    first = registry.register(made("first", "a"))
    assert registry.get("first") is first
    assert registry.get("skill.second") is second
    assert registry.list_skills() == [first, second]
    assert registry.list_skills(tools=["a", "b"]) == [second]
    assert registry.register(first) is first


def test_an_unknown_name_gets_a_hint_and_a_second_skill_of_a_name_is_refused() -> None:
    registry = SkillRegistry()
    registry.register(made("report", "a"))
    with pytest.raises(SkillNotFoundError) as refused:
        registry.get("reprot")
    assert refused.value.hint == "Did you mean 'report'?"
    with pytest.raises(ConfigError, match="two skills report"):
        registry.register(made("report", "b"))
