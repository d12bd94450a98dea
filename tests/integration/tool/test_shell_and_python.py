"""The toolkits `shell` and `python`, in the sandbox of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.tool import AtomicTool, BaseToolkit, ToolContext
from noesium_stream.tool.builtin.python import PythonToolkit
from noesium_stream.tool.builtin.shell import ShellToolkit
from tests.support.sandboxes import sandbox_named


def one(toolkit: BaseToolkit) -> AtomicTool:
    [found] = toolkit.tools()
    return found


def context(folder: Path, *granted: str) -> ToolContext:
    sandbox_named("bubblewrap")
    return ToolContext("clerk", folder, granted)


async def test_a_command_has_its_result(tmp_path: Path) -> None:
    shell = one(ShellToolkit())
    shell.check_input({"command": "echo out; echo err >&2; exit 3"})
    result = await shell.execute(
        {"command": "echo out; echo err >&2; exit 3"}, context(tmp_path, "shell:execute")
    )
    assert result == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n", "ended": "exit"}
    assert (shell.tool_id, shell.permissions) == ("builtin:shell.shell", ("shell:execute",))


async def test_a_command_writes_only_what_was_granted(tmp_path: Path) -> None:
    shell = one(ShellToolkit())
    granted = context(tmp_path, "shell:execute", "fs:read", "fs:write:reports/**")
    await shell.execute({"command": "echo x > reports/a; echo x > b"}, granted)
    assert [path.name for path in tmp_path.iterdir()] == ["reports"]
    assert (tmp_path / "reports" / "a").read_text() == "x\n"


async def test_a_command_ends_in_time(tmp_path: Path) -> None:
    result = await one(ShellToolkit()).execute({"command": "sleep 60", "timeout_s": 0.2}, context(tmp_path))
    assert result["ended"] == "timeout"


async def test_a_program_reads_its_input(tmp_path: Path) -> None:
    python = one(PythonToolkit())
    code = "import json, sys; print(json.load(sys.stdin)['a'] + 1)"
    result = await python.execute({"code": code, "stdin": '{"a": 41}'}, context(tmp_path))
    assert (result["stdout"], result["exit_code"]) == ("42\n", 0), result


@pytest.mark.parametrize("settings", [{"processes": 0}, {"unknown": 1}])
def test_settings_are_checked(settings: dict[str, int]) -> None:
    with pytest.raises(Exception, match="toolkit shell"):
        ShellToolkit(None, **settings)
