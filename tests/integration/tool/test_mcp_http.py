"""MCP servers at a URL: one request that fails ends nothing else, and says whether it was sent."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ConfigError, OutcomeUnknownError, ToolExecutionError, ToolServerError
from noesium_stream.tool.mcp import Bearer, ClientCredentials, McpToolkit, mcp
from tests.support.mcp import context, lines, tool, until

SERVER = Path(__file__).parents[2] / "support" / "mcp_http_server.py"


@asynccontextmanager
async def serving(folder: Path, port: int = 0, **variables: str) -> AsyncIterator[int]:
    """A process of the server; its port."""
    words = [sys.executable, "-I", "-S", str(SERVER), str(folder), str(port)]
    (folder / "port").unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(*words, env=variables)
    try:
        await until(lambda: (folder / "port").exists() and (folder / "port").read_text())
        yield int((folder / "port").read_text())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[McpToolkit]:
    kit = mcp(f"http://127.0.0.1:{port}/mcp", name="crm", **options)
    await kit.start()
    try:
        yield kit
    finally:
        await kit.stop()


async def refused_at(port: int) -> None:
    """Return when nobody listens at a port of this machine any more."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            continue
        writer.close()
        await asyncio.sleep(0.01)


async def test_a_session_goes_on_behind_a_restart_of_its_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        kit = mcp(f"http://127.0.0.1:{port}/mcp", name="crm")
        await kit.start()
        try:
            assert await tool(kit, "echo").execute({}, context(tmp_path)) == "x"
            with pytest.raises(OutcomeUnknownError):
                await tool(kit, "die").execute({}, context(tmp_path))
            await refused_at(port)  # until then a call may reach the server that is ending
            with pytest.raises(ToolServerError, match="was not called: it cannot be reached"):
                await tool(kit, "echo").execute({}, context(tmp_path))
            async with serving(tmp_path, port):
                assert await tool(kit, "echo").execute({}, context(tmp_path)) == "x"
        finally:
            await kit.stop()
    assert lines(tmp_path, "calls") == ["echo", "die", "echo"]


@pytest.mark.parametrize("how", ["status", "cut"])
async def test_an_answer_that_is_lost_leaves_the_outcome_unknown(tmp_path: Path, how: str) -> None:
    async with serving(tmp_path) as port, connected(port) as kit:
        with pytest.raises(OutcomeUnknownError):
            await tool(kit, how).execute({}, context(tmp_path))
        assert await tool(kit, "echo").execute({}, context(tmp_path)) == "x"
    assert lines(tmp_path, "calls") == [how, "echo"]


async def test_an_answer_is_bounded(tmp_path: Path) -> None:
    async with serving(tmp_path) as port, connected(port, max_message=100_000) as kit:
        with pytest.raises(ToolExecutionError, match="more than 100,000 bytes"):
            await tool(kit, "large").execute({}, context(tmp_path))
        assert await tool(kit, "echo").execute({}, context(tmp_path)) == "x"


async def test_a_token_comes_from_the_environment_and_is_in_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, TOKEN="s3cret-value") as port:
        with pytest.raises(ConfigError, match="CRM_TOKEN, which is not set"):
            async with connected(port, auth=Bearer("CRM_TOKEN")):
                pass
        monkeypatch.setenv("CRM_TOKEN", "wrong-s3cret")
        with pytest.raises(ToolServerError) as caught:
            async with connected(port, auth=Bearer("CRM_TOKEN")):
                pass
        assert "s3cret" not in str(caught.value)
        monkeypatch.setenv("CRM_TOKEN", "s3cret-value")
        async with connected(port, auth=Bearer("CRM_TOKEN")) as kit:
            assert await tool(kit, "echo").execute({}, context(tmp_path)) == "x"
            assert "s3cret" not in repr(kit.server)


async def test_client_credentials_need_their_secret() -> None:
    with pytest.raises(ConfigError, match="CRM_SECRET"):
        async with connected(1, auth=ClientCredentials("clerk", "CRM_SECRET")):
            pass
