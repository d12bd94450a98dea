"""A function in a sandbox reaches what it declares and was granted, and nothing else."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import (
    ConfigError,
    OutcomeUnknownError,
    SandboxError,
    ToolExecutionError,
    ToolTimeoutError,
)
from noesium_stream.tool import AtomicTool, Mode, ToolContext, sandboxed
from noesium_stream.tool.sandbox import Limits
from tests.support import walled_tools
from tests.support.sandboxes import sandbox_named

MIB = 2**20


@pytest.fixture(params=["bubblewrap"])
def provider(request: pytest.FixtureRequest) -> str:
    return sandbox_named(request.param).name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    (made / "docs").mkdir(parents=True)
    (made / "docs" / "a").write_text("document")
    (made / "notes").write_text("inside")
    (tmp_path / "secret").write_text("s3cret")
    return made


def context(folder: Path, *granted: str, **said: Any) -> ToolContext:
    return ToolContext("clerk", folder, granted, **{"call_id": "key-1", "mode": Mode.AUTO, **said})


async def lied(tool: AtomicTool, folder: Path, *granted: str) -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as port:
        arguments = {"port": port.getsockname()[1], "secret": str(folder.parent / "secret")}
        found: dict[str, str] = await tool.execute(arguments, context(folder, *granted))
    return found


async def test_a_tool_that_lies_about_its_needs_meets_a_wall(
    provider: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    tool = sandboxed(walled_tools.lies, sandbox=provider)
    # The agent may do much; the tool says that it needs little.
    found = await lied(tool, folder, "fs:read", "fs:write", "net:outbound", "env:read")
    assert found.pop("docs") == "done: document"
    assert found.pop("program") == "done: True"
    assert "API_TOKEN" not in found.pop("variables")
    worker = found.pop("worker")
    assert not worker.startswith("done") or worker == "done: b''"
    assert not [name for name, how in found.items() if how.startswith("done")]
    assert (folder / "docs" / "a").read_text() == "document"
    assert not (folder / "docs" / "new").exists()


async def test_what_was_not_granted_is_closed_whatever_a_tool_declares(provider: str, folder: Path) -> None:
    found = await lied(sandboxed(walled_tools.lies, sandbox=provider), folder)
    assert not found["docs"].startswith("done")


async def test_the_walls_follow_the_arguments(provider: str, folder: Path) -> None:
    tool = sandboxed(walled_tools.copy, sandbox=provider)
    granted = context(folder, "fs:read", "fs:write")
    said = await tool.execute({"name": "notes", "folder": "reports"}, granted)
    assert not said.startswith("done")
    assert (folder / "reports" / "copy").read_text() == "inside"
    assert not (folder / "notes.copy").exists()
    reading = context(folder, "fs:read", "fs:write", mode=Mode.ASK)
    with pytest.raises(ToolExecutionError, match=r"Errno"):
        await tool.execute({"name": "notes", "folder": "reports"}, reading)


async def test_arguments_and_results_have_their_types(provider: str, folder: Path) -> None:
    tool = sandboxed(walled_tools.typed, sandbox=provider)
    given = {"item": {"name": "tea", "price": 2}}
    assert await tool.execute(given, context(folder)) == {"name": "tea", "price": 4.0}


async def test_a_decorated_function_is_found_in_its_module(folder: Path) -> None:
    sandbox_named("bubblewrap")
    assert await walled_tools.decorated.execute({"word": "three"}, context(folder)) == 5
    assert walled_tools.decorated.name == "decorated"


@pytest.mark.parametrize(
    ("how", "kind", "why"),
    [
        ("raise", ToolExecutionError, "LookupError: .*nothing there"),
        ("exit", ToolExecutionError, "SystemExit: 3"),
        ("kill", ToolExecutionError, "exit code 0.* without a result"),
        ("long", ToolExecutionError, "over 8,388,608 bytes"),
        ("sleep", ToolTimeoutError, "timeout"),
        ("grow", ToolExecutionError, "memory"),
    ],
)
async def test_what_goes_wrong_is_an_error(
    provider: str, folder: Path, how: str, kind: type[Exception], why: str
) -> None:
    limits = Limits(wall_s=120, memory_bytes=80 * MIB if how == "grow" else 512 * MIB)
    tool = sandboxed(walled_tools.fails, limits=limits, sandbox=provider)
    left_ms = 8_000 if how == "sleep" else 120_000
    with pytest.raises(kind, match=why):
        await tool.execute({"how": how}, context(folder, timeout_ms=left_ms))


async def test_what_a_function_prints_is_no_result(provider: str, folder: Path) -> None:
    tool = sandboxed(walled_tools.fails, sandbox=provider)
    assert await tool.execute({"how": "forge"}, context(folder)) == "heard"


async def test_an_external_call_without_a_result_has_an_unknown_outcome(provider: str, folder: Path) -> None:
    with pytest.raises(OutcomeUnknownError, match="was called, and its process ended"):
        await sandboxed(walled_tools.pays, sandbox=provider).execute({}, context(folder))


def test_a_function_that_another_process_cannot_find_is_refused() -> None:
    def inner() -> None: ...

    with pytest.raises(ConfigError, match="another process cannot find it"):
        sandboxed(inner)


async def test_without_a_sandbox_nothing_is_called(folder: Path) -> None:
    with pytest.raises(SandboxError):
        await sandboxed(walled_tools.pays, sandbox="none").execute({}, context(folder))
