"""The tools of skill folders: what a model gets to read, and how a changed skill shows."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.errors import (
    ConfigError,
    SkillNotFoundError,
    ToolError,
    ToolExecutionError,
    ToolInputError,
)
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.skill import toolkit
from noesium_stream.tool.skill.toolkit import SkillToolkit, skill_tools
from noesium_stream.tool.toolkit import TOOLKITS
from tests.support.skill_folders import EXAMPLE, skill_folder


def named(tools: list[AtomicTool], name: str) -> AtomicTool:
    (tool,) = [tool for tool in tools if tool.name == name]
    return tool


async def call(tools: list[AtomicTool], tool: str, **arguments: Any) -> Any:
    found = named(tools, tool)
    found.check_input(arguments)
    return await found.execute(arguments, ToolContext("clerk", Path.cwd()))


async def test_a_model_sees_descriptions_then_instructions_then_files() -> None:
    tools = skill_tools([EXAMPLE.name], EXAMPLE.parent)
    first = named(tools, "load_skill").description
    assert "Makes a monthly sales report" in first
    assert "Run the script" not in first
    loaded = await call(tools, "load_skill", name="monthly-report")
    assert "Run the script" in loaded["instructions"]
    assert loaded["files"] == ["assets/report.md", "references/FORMAT.md", "scripts/report.py"]
    read = await call(tools, "read_skill_file", name="monthly-report", path="references/FORMAT.md")
    assert read["text"].startswith("# Orders")


async def test_bytes_that_are_no_text_come_in_base64(tmp_path: Path) -> None:
    data = b"\x89PNG\xff"
    tools = skill_tools([skill_folder(tmp_path, files={"assets/a.png": data})], tmp_path)
    read = await call(tools, "read_skill_file", name="some-skill", path="assets/a.png")
    assert read == {
        "path": "assets/a.png",
        "media_type": "image/png",
        "base64": base64.b64encode(data).decode(),
    }


@pytest.mark.parametrize(
    "path",
    ["../other/SKILL.md", "/etc/passwd", "absent", "references/../SKILL.md", "", "a\x00b", "references"],
)
async def test_only_listed_files_are_read(path: str, tmp_path: Path) -> None:
    skill_folder(tmp_path, "other")
    tools = skill_tools([skill_folder(tmp_path, files={"references/a": ""})], tmp_path)
    with pytest.raises(ToolInputError, match="has no file"):
        await call(tools, "read_skill_file", name="some-skill", path=path)


async def test_a_skill_that_changes_after_it_was_loaded_is_not_read_any_more(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, files={"a.md": "good", "b.md": "good"})
    tools = skill_tools([folder], tmp_path)
    (folder / "a.md").write_text("bad")
    (folder / "b.md").unlink()
    os.symlink("/etc/passwd", folder / "b.md")
    (folder / "SKILL.md").write_text("bad")
    with pytest.raises(ToolExecutionError, match="has changed"):
        await call(tools, "read_skill_file", name="some-skill", path="a.md")
    with pytest.raises(ToolExecutionError, match="cannot be read"):
        await call(tools, "read_skill_file", name="some-skill", path="b.md")
    assert (await call(tools, "load_skill", name="some-skill"))["instructions"] == "Do it."


async def test_a_file_that_is_too_large_for_a_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = skill_tools([skill_folder(tmp_path, files={"a.md": "12345"})], tmp_path)
    monkeypatch.setattr(toolkit, "MAX_READ", 4)
    with pytest.raises(ToolInputError, match="has 5 bytes; a model may read 4"):
        await call(tools, "read_skill_file", name="some-skill", path="a.md")


async def test_another_name_is_refused_by_the_schema(tmp_path: Path) -> None:
    tools = skill_tools([skill_folder(tmp_path)], tmp_path)
    with pytest.raises(ToolError, match="name"):
        await call(tools, "load_skill", name="other")


def test_a_changed_skill_changes_the_definition_of_its_tools(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path, files={"references/a.md": "one"})
    before = skill_tools([folder], tmp_path)
    assert [tool.definition_hash for tool in skill_tools([folder], tmp_path)] == [
        tool.definition_hash for tool in before
    ]
    (folder / "references" / "a.md").write_text("two")
    after = skill_tools([folder], tmp_path)
    assert all(one.definition_hash != two.definition_hash for one, two in zip(before, after, strict=True))


def test_reading_is_pure_needs_no_permission_and_bears_the_label_of_the_skill(tmp_path: Path) -> None:
    for tool in skill_tools([skill_folder(tmp_path)], tmp_path):
        assert tool.side_effect_class is SideEffectClass.PURE
        assert tool.permissions == ()
        assert tool.labels == ("skill:some-skill",)


def test_folders_of_skills_are_searched_and_a_folder_may_be_named_twice(tmp_path: Path) -> None:
    skill_folder(tmp_path / "skills", "a")
    skill_folder(tmp_path / "skills" / "more", "b")
    toolkit = SkillToolkit("skills", "skills/a", base=tmp_path)
    assert [skill.name for skill in toolkit.skills] == ["a", "b"]
    assert [tool.tool_id for tool in toolkit.tools()] == [
        "builtin:skills.load_skill",
        "builtin:skills.read_skill_file",
    ]


def test_no_skills_are_no_tools_and_wrong_folders_are_refused(tmp_path: Path) -> None:
    assert skill_tools([], tmp_path) == []
    with pytest.raises(SkillNotFoundError, match="There is no folder"):
        skill_tools(["absent"], tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SkillNotFoundError, match=r"There is no SKILL\.md"):
        skill_tools(["empty"], tmp_path)


def test_two_skills_of_one_name_are_refused(tmp_path: Path) -> None:
    skill_folder(tmp_path / "x", "a")
    skill_folder(tmp_path / "y", "a")
    with pytest.raises(ConfigError, match="Two skills have the name a"):
        skill_tools(["x", "y"], tmp_path)


def test_it_is_a_registered_toolkit() -> None:
    assert TOOLKITS.get("skills") is SkillToolkit


class Found(TypedDict, total=False):
    found: list[Any]


async def test_an_agent_names_the_folders_of_its_skills(tmp_path: Path) -> None:
    async def read(state: Found) -> dict[str, Any]:
        loaded = await current_step().tool("load_skill", name="monthly-report")
        ran = await current_step().tool(
            "run_skill_script",
            name="monthly-report",
            script=loaded["files"][2],
            arguments=["data/orders.csv", "2026-10"],
        )
        return {"found": [json.loads(ran["stdout"])["orders"]]}

    graph = StateGraph(Found)
    graph.add_node("read", read)
    graph.add_edge(START, "read")
    kind: Any = agent_from_graph(graph, "clerk")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders.csv").write_text("date,item,cents\n2026-10-01,oil,1\n")
    kind.skills, kind.workspace, kind.mode = (str(EXAMPLE),), str(tmp_path), Mode.AUTO
    kind.permissions = ("fs:read", "shell:execute:monthly-report/*")
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({})
        assert await run.result() == {"found": [1]}
        invoked = [e.payload for e in await run.history() if e.event_type == "tool.invoked"]
    assert [one.get("permissions") for one in invoked] == [
        None,
        ["shell:execute:monthly-report/scripts/report.py"],
    ]
