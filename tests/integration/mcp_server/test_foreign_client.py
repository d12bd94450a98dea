"""MCP clients that others have made, with `noesium mcp serve`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client
from tests.support.a2a import Desk
from tests.support.mcp_serving import Place
from tests.support.npm import NODE, installed, needs_npm

pytestmark = [needs_npm, pytest.mark.conformance]

INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
CALL = ("--method", "tools/call", "--tool-name")


class Inspector:
    """The inspector of MCP at the command line; it keeps its files in a folder of its own."""

    def __init__(self, place: Place) -> None:
        self._programs = installed(INSPECTOR, NODE)
        self._env = {**place.folder.env, "HOME": str(place.folder.path)}

    async def says(self, *words: str) -> subprocess.CompletedProcess[str]:
        given = [str(self._programs / "node"), str(self._programs / "mcp-inspector"), "--cli", *words]
        return await asyncio.to_thread(
            subprocess.run,
            given,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    async def gets(self, *words: str) -> Any:
        done = await self.says(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_the_inspector_lists_and_calls_tools(transport: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    inspector = Inspector(place)
    async with place.working(Desk) as log, Client(log) as runs:
        with place.serving() as server:
            program = [sys.executable, "-m", "noesium_stream.cli", "mcp", "serve", "--log", place.url]
            target = [server.url] if transport == "http" else program
            # No tool's schema is one that other clients cannot read.
            listed = await inspector.gets(*target, "--method", "tools/list", "--strict")
            said = await inspector.gets(*target, *CALL, "desk.upper", "--tool-arg", "text=hello")
            failed = await inspector.says(*target, *CALL, "desk.upper", "--tool-arg", "text=fail")
            missing = await inspector.says(*target, *CALL, "desk.none")
        [_, run] = await runs.list_runs()
    assert {tool["name"] for tool in listed["tools"]} >= {"desk.upper", "desk.refund"}
    assert said["content"] == [{"type": "text", "text": "HELLO"}]
    assert "told to fail" in failed.stdout
    assert missing.returncode != 0
    assert "desk.none" in missing.stderr
    assert run.agent_type == "desk"
