"""Scripts of skills, in real sandboxes: what they see, and what neither grant nor skill gives them."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ToolExecutionError, ToolInputError, ToolPermissionError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.judge import judge, rules_for
from noesium_stream.tool.skill.folder import load_skill_folder
from noesium_stream.tool.skill.script import run_script
from noesium_stream.tool.skill.toolkit import skill_tools
from noesium_stream.tool.verdict import Denied
from tests.support.skill_folders import EXAMPLE, MINIMAL, skill_folder

ALL = ("shell:execute", "fs:read", "fs:write")
PROBE = """
import json, os, socket, sys
from pathlib import Path
def tried(do):
    try:
        return do()
    except OSError as error:
        return type(error).__name__
def connect():
    with socket.socket() as s:
        s.settimeout(1)
        s.connect(("1.1.1.1", 53))
print(json.dumps({
    "read": tried(lambda: Path("data/a.txt").read_text()),
    "other": tried(lambda: Path("secret.txt").read_text()),
    "write": tried(lambda: Path("reports/new.txt").write_text("x")),
    "elsewhere": tried(lambda: Path("data/new.txt").write_text("x")),
    "skill": tried(lambda: Path(__file__).write_text("changed")),
    "passwd": tried(lambda: Path("/etc/shadow").read_text()[:1]),
    "net": tried(connect),
    "env": os.environ.get("NOESIUM_TEST_SECRET"),
    "arguments": sys.argv[1:],
    "stdin": sys.stdin.read(),
}))
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    for path, text in {"data/a.txt": "a", "secret.txt": "s", "reports/old.txt": ""}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


async def ran(folder: Path, script: str, workspace: Path, granted: tuple[str, ...], *arguments: str) -> Any:
    context = ToolContext("clerk", workspace, granted)
    return await run_script(load_skill_folder(folder), script, arguments, "in", context)


async def probed(tmp_path: Path, workspace: Path, allowed: str | None, granted: tuple[str, ...]) -> Any:
    matter = MINIMAL if allowed is None else f"{MINIMAL}allowed-tools: {allowed}\n"
    folder = skill_folder(tmp_path, matter=matter, files={"scripts/probe.py": PROBE})
    result = await ran(folder, "scripts/probe.py", workspace, granted, "one", "two words")
    assert result["exit_code"] == 0, result
    return json.loads(result["stdout"])


async def test_the_script_of_the_example_makes_its_report(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders.csv").write_text(
        "date,item,cents\n2026-10-01,oil,1250\n2026-10-31,oil,750\n2026-10-02,salt,99\n2026-10-03,rye,\n"
        "2026-11-01,oil,1\n"
    )
    result = await ran(
        EXAMPLE, "scripts/report.py", tmp_path, ALL, "data/orders.csv", "2026-10", "reports/2026-10.md"
    )
    assert result["exit_code"] == 0, result
    totals = json.loads(result["stdout"])
    assert (totals["orders"], totals["cents"], totals["skipped"]) == (3, 2099, 1)
    report = (tmp_path / "reports" / "2026-10.md").read_text()
    assert "3 orders, 20.99 in all." in report
    assert "| oil | 2 | 20.00 |" in report


async def test_without_allowed_tools_a_script_has_the_grant_and_no_more(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOESIUM_TEST_SECRET", "s")
    said = await probed(tmp_path, workspace, None, ("shell:execute", "fs:read:data/**"))
    assert said == {
        "read": "a",
        "other": "FileNotFoundError",
        "write": "FileNotFoundError",
        "elsewhere": "OSError",
        "skill": said["skill"],
        "passwd": "FileNotFoundError",
        "net": said["net"],
        "env": None,
        "arguments": ["one", "two words"],
        "stdin": "in",
    }
    assert said["skill"] in ("OSError", "PermissionError")
    assert "Error" in said["net"]


async def test_allowed_tools_narrow_the_grant(tmp_path: Path, workspace: Path) -> None:
    said = await probed(tmp_path, workspace, "Bash Read(data/**)", (*ALL, "net:outbound", "env:read"))
    assert (said["read"], said["other"], said["elsewhere"]) == ("a", "FileNotFoundError", "OSError")
    assert not (workspace / "reports" / "new.txt").exists()


async def test_allowed_tools_never_add_to_the_grant(tmp_path: Path, workspace: Path) -> None:
    everything = "Bash Read Write WebFetch WebSearch env:read net:outbound fs:write"
    said = await probed(tmp_path, workspace, everything, ("shell:execute", "fs:read:data/**"))
    assert (said["read"], said["other"], said["env"]) == ("a", "FileNotFoundError", None)
    assert "Error" in said["net"]
    assert "Error" in str(said["write"])


async def test_a_skill_that_allows_no_shell_runs_no_script(tmp_path: Path, workspace: Path) -> None:
    with pytest.raises(ToolPermissionError, match="its allowed-tools name no shell"):
        await probed(tmp_path, workspace, "Read", ALL)


@pytest.mark.parametrize(
    "script",
    [
        "report.py",
        "SKILL.md",
        "scripts/../SKILL.md",
        "/bin/sh",
        "scripts/absent",
        "references/x.py",
        "scripts",
    ],
)
async def test_only_files_below_scripts_are_run(script: str, tmp_path: Path, workspace: Path) -> None:
    folder = skill_folder(tmp_path, files={"scripts/a.py": "", "references/x.py": ""})
    with pytest.raises(ToolInputError, match="has no script"):
        await ran(folder, script, workspace, ALL)


async def test_a_script_that_has_changed_since_it_was_loaded_is_not_run(
    tmp_path: Path, workspace: Path
) -> None:
    folder = skill_folder(tmp_path, files={"scripts/a.py": "", "scripts/helper.py": ""})
    skill = load_skill_folder(folder)
    (folder / "scripts" / "helper.py").write_text("raise SystemExit(9)")
    with pytest.raises(ToolExecutionError, match=r"scripts/helper\.py of the skill some-skill has changed"):
        await run_script(skill, "scripts/a.py", [], "", ToolContext("clerk", workspace, ALL))


async def test_scripts_of_other_languages_and_with_a_first_line_of_their_own_are_run(
    tmp_path: Path, workspace: Path
) -> None:
    files = {
        "scripts/a.sh": 'echo "$1"',
        "scripts/b": "#!/bin/sh\ncat",
        "scripts/c": "x",
        "scripts/d.py": "import e",
    }
    folder = skill_folder(tmp_path, files={**files, "scripts/e.py": "print('helper')"})
    (folder / "scripts" / "b").chmod(0o755)
    assert (await ran(folder, "scripts/a.sh", workspace, ALL, "x; y"))["stdout"] == "x; y\n"
    assert (await ran(folder, "scripts/b", workspace, ALL))["stdout"] == "in"
    assert (await ran(folder, "scripts/d.py", workspace, ALL))["stdout"] == "helper\n"
    with pytest.raises(ToolInputError, match="Nothing here can run"):
        await ran(folder, "scripts/c", workspace, ALL)


async def test_a_run_leaves_no_copy_behind(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    await probed(tmp_path, workspace, None, ALL)
    assert os.listdir(tmp_path / "copies") == []


@pytest.mark.parametrize(
    ("grants", "denied"),
    [
        (("shell:execute",), False),
        (("shell:execute:some-skill/*",), False),
        (("shell:execute:some-skill/scripts/a.py",), False),
        (("shell:execute:other/*",), True),
        (("fs:read", "fs:write"), True),
    ],
)
def test_a_call_needs_a_grant_for_its_script(grants: tuple[str, ...], denied: bool, tmp_path: Path) -> None:
    (tool,) = [
        tool
        for tool in skill_tools([skill_folder(tmp_path, files={"scripts/a.py": ""})], tmp_path)
        if tool.name == "run_skill_script"
    ]
    assert tool.side_effect_class is SideEffectClass.EXTERNAL
    rules = rules_for(None, "clerk", (*grants, "fs:read:data/**"), "auto")
    verdict = judge(tool, {"name": "some-skill", "script": "scripts/a.py"}, rules)
    assert isinstance(verdict, Denied) is denied
    if not isinstance(verdict, Denied):
        assert verdict.granted == (*grants, "fs:read:data/**")
