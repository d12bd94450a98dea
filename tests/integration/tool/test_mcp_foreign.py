"""MCP servers that others have made."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.errors import OutcomeUnknownError, ToolExecutionError
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.mcp import mcp
from tests.support.mcp import context
from tests.support.npm import installed, needs_npm

pytestmark = [needs_npm, pytest.mark.conformance]


def by_name(tools: list[AtomicTool]) -> dict[str, AtomicTool]:
    return {tool.name.partition("__")[2]: tool for tool in tools}


async def test_the_server_that_has_everything_is_used(tmp_path: Path) -> None:
    told: list[float] = []
    programs = installed("@modelcontextprotocol/server-everything@2026.8.31")
    kit = mcp([str(programs / "mcp-server-everything")], name="every")
    await kit.start()
    try:
        assert kit.warnings == ()
        tools, known = by_name(kit.tools()), context(tmp_path, progress=lambda *said: told.append(said[0]))
        assert await tools["echo"].execute({"message": "hi"}, known) == "Echo: hi"
        forecast = await tools["get-structured-content"].execute({"location": "New York"}, known)
        assert set(forecast) == {"temperature", "conditions", "humidity"}
        image = await tools["get-tiny-image"].execute({}, known)
        assert image[1]["media_type"] == "image/png"
        long = tools["trigger-long-running-operation"]
        await long.execute({"duration": 0.1, "steps": 3}, known)
        assert told == [1, 2, 3]
        with pytest.raises(OutcomeUnknownError):
            await long.execute({"duration": 60, "steps": 1}, context(tmp_path, timeout_ms=300))
    finally:
        await kit.stop()


async def test_the_server_of_files_is_used_within_its_folder(tmp_path: Path) -> None:
    programs = installed("@modelcontextprotocol/server-filesystem@2026.8.31")
    kit = mcp([str(programs / "mcp-server-filesystem"), str(tmp_path)], name="files")
    await kit.start()
    try:
        tools = by_name(kit.tools())
        path = str(tmp_path / "a.txt")
        await tools["write_file"].execute({"path": path, "content": "hello"}, context(tmp_path))
        assert (tmp_path / "a.txt").read_text() == "hello"
        found = await tools["read_text_file"].execute({"path": path}, context(tmp_path))
        assert found == {"content": "hello"}
        with pytest.raises(ToolExecutionError, match="outside allowed directories"):
            await tools["read_text_file"].execute({"path": "/etc/passwd"}, context(tmp_path))
    finally:
        await kit.stop()
