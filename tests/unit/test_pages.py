"""What the README and the guides must have; tests/integration follows what they say."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from noesium_stream.cli import app
from noesium_stream.cli.guides import GUIDES
from noesium_stream.config import VARIABLES, load_all
from tests.support.pages import FOLDER, OUTPUT, README, ROOT, blocks, guide, pages

FOLLOWED = (
    "a2a",
    "agent",
    "capability",
    "tool",
    "tour",
    "builtin",
    "langchain",
    "permission",
    "skill",
    "chat",
    "memory",
    "goals",
    "models",
    "analyst",
    "sandbox",
    "subagent",
    "web",
    "schedule",
    "mcp",
    "projection",
    "operate",
    "test",
    "upgrade",
    "secure",
)
"""Guides whose commands are run by tests/integration/guides/test_NAME.py."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_block_is_named_and_each_page_with_commands_is_followed(page: Path) -> None:
    found = blocks(page)
    assert [block.body for block in found if block.name is None and block.language != OUTPUT] == []
    names = [block.name for block in found if block.name is not None]
    commands = [name for name in names if not name.startswith("file ")]
    followed = page == README or page.stem in FOLLOWED
    assert followed == bool(commands)
    if page.stem in FOLLOWED:
        assert (ROOT / "tests" / "integration" / "guides" / f"test_{page.stem}.py").exists()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_no_page_has_marks_of_a_merge(page: Path) -> None:
    assert not re.search(r"^(?:<{7}|>{7}) ", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_readme_is_short_and_its_two_commands_are_one_line_each() -> None:
    assert README.read_text(encoding="utf-8").count("\n") <= 250
    bodies = {block.name: block.body for block in blocks(README)}
    assert bodies["start"].count("\n") == 1
    assert bodies["tests"].count("\n") == 1


def test_every_file_in_the_folder_is_a_guide_that_the_readme_links() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.md" for name in GUIDES}
    text = README.read_text(encoding="utf-8")
    assert [name for name in GUIDES if f"(noesium_stream/guides/{name}.md)" not in text] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert not anchor or anchor in headings(path), f"{target}#{anchor}"


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_command_is_documented() -> None:
    text = guide("commands").read_text(encoding="utf-8")
    for name in app.COMMANDS:
        command = app.LazyGroup("x").get_command(click.Context(app.cli), name)
        names = [f"{name} {sub}" for sub in command.commands] if isinstance(command, click.Group) else [name]
        for full in names:
            assert re.search(rf"^\| `noesium {full}[ `]", text, re.MULTILINE), f"noesium {full}"


def test_every_exit_code_is_documented() -> None:
    text = guide("commands").read_text(encoding="utf-8")
    for code in (app.OK, app.FAILED, app.USAGE, app.UNAVAILABLE, app.CRASHED, app.INTERRUPTED):
        assert f"\n| {code} | " in text


def test_every_setting_is_documented_with_its_variable() -> None:
    text = guide("settings").read_text(encoding="utf-8")
    for name, variable in VARIABLES.items():
        assert f"| `{name}` | `{variable}` |" in text


def test_settings_come_from_the_file_that_is_shown(tmp_path: Path) -> None:
    (example,) = [block for block in blocks(guide("settings")) if block.name == "file noesium.toml"]
    (tmp_path / "noesium.toml").write_text(example.body, encoding="utf-8")
    loaded = load_all(env={}, folder=tmp_path)
    assert loaded.noesium.log == "kafka://localhost:9092"
    assert loaded.noesium.partitions == 16
    assert loaded.agent.llm_provider == "openai"
