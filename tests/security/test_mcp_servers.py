"""MCP servers that lie: what is wrong stops nothing but itself."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from noesium_stream.errors import OutcomeUnknownError, ToolExecutionError, ToolServerError
from noesium_stream.tool.mcp import session
from noesium_stream.tool.mcp.backoff import Backoff
from noesium_stream.tool.mcp.session import McpSession
from tests.support.mcp import context, lines, started, tool, until

GOOD = 11
BOTH = pytest.mark.parametrize("revision", [(), ("previous",)], ids=["2026-07-28", "2025-11-25"])


@BOTH
@pytest.mark.parametrize(("lie", "dropped"), [("names", 14), ("schemas", 10)])
async def test_a_tool_that_is_wrong_is_left_out_with_a_line_of_warning(
    tmp_path: Path, lie: str, dropped: int, revision: tuple[str, ...]
) -> None:
    async with started(tmp_path, lie, *revision) as kit:
        assert len(kit.tools()) == GOOD
        assert len(kit.warnings) == dropped
        assert all(tool.name.startswith("crm__") for tool in kit.tools())
        assert all(line.isprintable() and len(line) < 1_000 for line in kit.warnings)
        assert await tool(kit, "echo").execute({"text": "still"}, context(tmp_path)) == "still"


async def test_a_list_is_bounded_in_number_size_and_pages(tmp_path: Path) -> None:
    async with started(tmp_path, "sizes", "pages", max_tools=100) as kit:
        assert len(kit.tools()) == 100
        assert any("only 100 are used" in line for line in kit.warnings)
        assert any("'large'" in line and "over 65,536" in line for line in kit.warnings)


async def test_answers_with_foreign_ids_and_noise_are_not_heard(tmp_path: Path) -> None:
    async with started(tmp_path, "ids", "noise") as kit:
        assert await tool(kit, "echo").execute({"text": "mine"}, context(tmp_path)) == "mine"


async def test_a_flood_of_standard_error_is_read_and_little_of_it_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "noesium_stream.tool.mcp"):
        async with started(tmp_path, "flood") as kit:
            for number in range(20):
                assert await tool(kit, "echo").execute({"text": str(number)}, context(tmp_path)) == str(
                    number
                )
    said = [record.getMessage() for record in caplog.records]
    assert 40 < len(said) < 60
    assert not any("\x1b" in line for line in said)


async def test_a_message_that_is_too_long_ends_the_connection_and_not_the_session(tmp_path: Path) -> None:
    async with started(tmp_path, max_message=500_000) as kit:
        with pytest.raises(OutcomeUnknownError):
            await tool(kit, "huge").execute({}, context(tmp_path))
        assert await tool(kit, "echo").execute({"text": "again"}, context(tmp_path)) == "again"


async def test_the_hints_of_a_server_are_shown_and_not_believed(tmp_path: Path) -> None:
    async with started(tmp_path) as kit:
        echo = tool(kit, "echo")
        assert {"server-says:read-only", "server-says:idempotent"} <= set(echo.all_tags)
        assert echo.side_effect_class == "external"


async def test_a_list_that_nobody_can_read_is_told_and_nothing_else_is_lost(tmp_path: Path) -> None:
    with pytest.raises(ToolServerError, match="did not list its tools within"):
        async with started(tmp_path, "depth", connect_timeout=0.5):
            pass


@BOTH
async def test_a_server_whose_tools_change_without_a_rest_is_asked_more_and_more_seldom(
    tmp_path: Path, revision: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    class Told(Backoff):
        def next_s(self, chance: float) -> float:
            pauses.append(super().next_s(1.0))
            return 0.0

    monkeypatch.setattr(session, "Backoff", Told)
    async with started(tmp_path, "changes", *revision) as kit:
        await until(lambda: len(pauses) > 10)
        assert await tool(kit, "echo").execute({"text": "still"}, context(tmp_path)) == "still"
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses[10] == McpSession.list_pause_s
    assert len(lines(tmp_path, "lists")) >= 10


async def test_a_result_that_is_not_what_the_server_has_promised_is_no_result(tmp_path: Path) -> None:
    async with started(tmp_path) as kit:
        with pytest.raises(ToolExecutionError, match="text"):
            await tool(kit, "typed").execute({}, context(tmp_path))
