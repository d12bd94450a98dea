"""MCP servers at a URL that are enemies: a call ends, in bounded space, and the next one is answered."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from noesium_stream.errors import OutcomeUnknownError, ToolExecutionError
from noesium_stream.tool.mcp import McpToolkit, mcp
from tests.support.hostile_mcp_http import Enemy, enemy
from tests.support.mcp import context, tool
from tests.support.reading import PATIENCE_S

MAX_MESSAGE = 1_000_000
SPACE = 40_000_000
"""Bytes that a call may take at most: a few copies of a message, and what the libraries need."""


async def called(made: Enemy, name: str, folder: Path, timeout_ms: int) -> tuple[object, int]:
    """What came of a call, and the most bytes that it has taken; then the server is called once more."""
    kit = mcp(made.url, name="crm", max_message=MAX_MESSAGE)
    await kit.start()
    try:
        found: object
        tracemalloc.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await tool(kit, name).execute({}, context(folder, timeout_ms=timeout_ms))
        except (OutcomeUnknownError, ToolExecutionError) as error:
            found = error
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert await again(kit, folder) == "mine"
    finally:
        await kit.stop()
    return found, peak


async def again(kit: McpToolkit, folder: Path) -> object:
    return await tool(kit, "echo").execute({}, context(folder))


@pytest.mark.parametrize("attack", ["endless", "slow", "silent"])
async def test_an_answer_without_an_end_is_left_at_the_limit_of_the_call(attack: str, tmp_path: Path) -> None:
    async with enemy() as made:
        found, peak = await called(made, attack, tmp_path, 500)
    assert isinstance(found, OutcomeUnknownError)
    assert peak < SPACE


@pytest.mark.parametrize("attack", ["event", "large", "bomb"])
async def test_an_answer_that_is_too_large_is_not_read(attack: str, tmp_path: Path) -> None:
    async with enemy() as made:
        found, peak = await called(made, attack, tmp_path, round(PATIENCE_S * 1_000))
    assert isinstance(found, OutcomeUnknownError | ToolExecutionError)
    assert peak < SPACE
    assert made.sent.get(attack, 0) < 50_000_000


async def test_answers_to_what_was_not_asked_disturb_no_later_call(tmp_path: Path) -> None:
    async with enemy() as made:
        found, _ = await called(made, "others", tmp_path, round(PATIENCE_S * 1_000))
    assert found in ("forged", "mine")  # what comes on a request's own stream is the server's answer to it


async def test_a_redirect_is_followed_within_the_server_alone(tmp_path: Path) -> None:
    async with enemy() as made:
        found, _ = await called(made, "elsewhere", tmp_path, round(PATIENCE_S * 1_000))
        assert isinstance(found, ToolExecutionError)
        assert "not followed" in found.message
        assert made.reached == 0
        assert (await called(made, "moved", tmp_path, round(PATIENCE_S * 1_000)))[0] == "mine"
