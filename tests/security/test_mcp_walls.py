"""MCP servers in a sandbox reach what was granted, and end with the worker."""

from __future__ import annotations

import json
import os
import signal
import socket
import uuid
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ConfigError, OutcomeUnknownError, SandboxError, ToolServerError
from noesium_stream.tool.mcp import McpToolkit, ServerSandbox, mcp
from noesium_stream.tool.sandbox import Limits
from tests.support.mcp import context, lines, tool
from tests.support.mcp_walled import WHOLE, walled
from tests.support.npm import installed, needs_npm
from tests.support.processes import Program
from tests.support.reading import eventually
from tests.support.sandboxes import PYTHON, alive, sandbox_named

MIB = 2**20


@pytest.fixture(params=["bubblewrap"])
def provider(request: pytest.FixtureRequest) -> str:
    return sandbox_named(request.param).name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    (made / "docs").mkdir(parents=True)
    (made / "notes").write_text("inside")
    (tmp_path / "secret").write_text("s3cret")
    return made


@pytest.fixture
def mark() -> str:
    """A word that no other process has among its arguments."""
    return f"mark-{uuid.uuid4().hex}"


async def reached(kit: McpToolkit, folder: Path, *paths: str) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as port:
        arguments = {"paths": paths, "port": port.getsockname()[1]}
        said = await tool(kit, "reach").execute(arguments, context(folder))
    found: dict[str, Any] = json.loads(said)
    return found


async def test_it_reaches_its_folder_and_nothing_else(
    provider: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    monkeypatch.setenv("CRM_TOKEN", "given")
    secret = str(folder.parent / "secret")
    async with walled(folder, "reach", env=("CRM_TOKEN",), provider=provider) as kit:
        found = await reached(kit, folder, "notes", secret, "../secret", "/etc/passwd")
    assert (found["read"], found["wrote"], found["connected"]) == (["notes"], ["notes"], False)
    assert set(found["variables"]) == {"CRM_TOKEN", "HOME", "LANG", "PATH", "PWD", "TMPDIR"}
    assert found["processes"] < 6


async def test_a_subtree_is_writable_and_the_rest_is_read(provider: str, folder: Path) -> None:
    for name in ("calls", "lists", "pid", "starts"):
        (folder / name).touch()
    granted = (
        "fs:read",
        "fs:write:docs/**",
        *(f"fs:write:{name}" for name in ("calls", "lists", "pid", "starts")),
    )
    async with walled(folder, "reach", permissions=granted, provider=provider) as kit:
        found = await reached(kit, folder, "notes", "docs/new")
    assert (found["read"], found["wrote"]) == (["notes"], ["docs/new"])


async def test_the_network_is_granted(provider: str, folder: Path) -> None:
    async with walled(folder, "reach", permissions=(*WHOLE, "net:outbound"), provider=provider) as kit:
        assert (await reached(kit, folder))["connected"] is True


async def test_a_limit_ends_the_server_and_not_the_session(provider: str, folder: Path) -> None:
    limits = Limits(wall_s=600, memory_bytes=64 * MIB)
    async with walled(folder, "reach", limits=limits, provider=provider) as kit:
        with pytest.raises(OutcomeUnknownError):
            await tool(kit, "grow").execute({"bytes": 90 * MIB}, context(folder))
        assert await tool(kit, "echo").execute({"text": "again"}, context(folder)) == "again"
    assert len(lines(folder, "starts")) == 2


async def test_a_stopped_session_leaves_no_process(provider: str, tmp_path: Path, mark: str) -> None:
    async with walled(tmp_path, mark, provider=provider):
        assert alive(mark)
    assert not alive(mark)


async def test_a_killed_worker_leaves_no_server(provider: str, tmp_path: Path, mark: str) -> None:
    worker = await Program.start("tests.support.mcp_walled", tmp_path, provider, mark)
    try:
        await worker.line("started")
        assert set(alive(mark)) - {str(worker.pid)}
        os.kill(worker.pid, signal.SIGKILL)
        await eventually(lambda: not alive(mark))
    finally:
        await worker.kill()


async def test_a_program_that_cannot_be_seen_is_refused(provider: str, tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    kit = mcp([str(program)], name="crm", sandbox=True)
    with pytest.raises(SandboxError, match="cannot be seen in its sandbox"):
        await kit.start()


async def test_walls_that_cannot_be_built_start_nothing(provider: str, tmp_path: Path) -> None:
    missing = ServerSandbox(programs=(tmp_path / "missing",), provider=provider)
    kit = mcp([PYTHON, "-c", f"open({str(tmp_path / 'made')!r}, 'w')"], name="crm", sandbox=missing)
    with pytest.raises((SandboxError, ToolServerError), match="missing"):
        await kit.start()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("permissions", "why"),
    [
        (("shell:execute",), "cannot grant"),
        (("nonsense",), "cannot grant"),
        (("net:outbound:example.com",), "cannot tell hosts apart"),
        (("fs:read:*.md",), "cannot express"),
        (("fs:write:../x/**",), "cannot express"),
    ],
)
def test_a_grant_that_no_wall_expresses_is_refused(permissions: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        mcp(["server"], folder=".", sandbox=ServerSandbox(permissions))


def test_files_of_no_folder_and_variables_of_the_loader_are_refused() -> None:
    with pytest.raises(ConfigError, match="of no folder"):
        mcp(["server"], sandbox=ServerSandbox(("fs:read",)))
    with pytest.raises(ConfigError, match="LD_PRELOAD"):
        mcp(["server"], env=["LD_PRELOAD=/tmp/x.so"], sandbox=True)
    with pytest.raises(ConfigError, match="at a URL"):
        mcp("https://crm.example.com/mcp", sandbox=True)


@needs_npm
async def test_the_server_of_files_from_npm_works_inside(provider: str, folder: Path) -> None:
    programs = installed("@modelcontextprotocol/server-filesystem@2026.8.31").parents[1]
    server = programs / "node_modules" / ".bin" / "mcp-server-filesystem"
    walls = ServerSandbox(("fs:read", "fs:write:docs/**"), (programs,), provider=provider)
    # It is told that all is its own: only the walls say no.
    kit = mcp([str(server), "/"], name="crm", folder=folder, sandbox=walls)
    await kit.start()
    try:
        read, write = tool(kit, "read_text_file"), tool(kit, "write_file")
        found = await read.execute({"path": "/workspace/notes"}, context(folder))
        assert found == {"content": "inside"}
        await write.execute({"path": "/workspace/docs/a", "content": "new"}, context(folder))
        assert (folder / "docs" / "a").read_text() == "new"
        for path in ("/workspace/notes", "/etc/passwd", str(folder.parent / "secret")):
            with pytest.raises(Exception, match=r"EROFS|ENOENT|does not exist"):
                await write.execute({"path": path, "content": "changed"}, context(folder))
        with pytest.raises(Exception, match=r"ENOENT|does not exist"):
            await read.execute({"path": str(folder.parent / "secret")}, context(folder))
    finally:
        await kit.stop()
    assert (folder / "notes").read_text() == "inside"
