"""Calls of MCP tools that ask a person, or go on as tasks: a later process goes on with what was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ToolExecutionError, ToolInputError, ToolTimeoutError
from noesium_stream.tool.legs import (
    InputRequired,
    Resumable,
    TaskStarted,
    Unfinished,
    class_of_leg,
    leg_of,
    leg_record,
    resumable,
)
from noesium_stream.tool.mcp import McpToolkit
from tests.support.mcp import context, lines, started, tool


def served(kit: McpToolkit, name: str) -> Resumable:
    found = resumable(tool(kit, name))
    assert found is not None
    return found


def recorded(leg: Any) -> Unfinished:
    """What a leg has left, after its record was on a log."""
    _, unfinished = leg_of(json.loads(json.dumps(leg_record(leg))))
    assert unfinished is not None
    return unfinished


async def test_a_question_is_answered_in_another_process_with_the_same_state(tmp_path: Path) -> None:
    async with started(tmp_path) as kit:
        asked = recorded(await tool(kit, "ask").execute({}, context(tmp_path)))
    assert isinstance(asked, InputRequired)
    assert asked.requests["count"]["params"]["message"] == "How many?"
    async with started(tmp_path) as kit:
        answers = {"count": {"action": "accept", "content": {"count": 3}}}
        assert await served(kit, "ask").resume({}, context(tmp_path), asked, answers) == "3 True"
        assert (
            await served(kit, "ask").resume({}, context(tmp_path), asked, asked.declined()) == "decline True"
        )


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"count": {"action": "accept", "content": {"count": "three"}}},
        {"count": {"action": "accept"}},
        {"count": {"action": "yes"}},
        {"count": {"action": "decline"}, "other": {"action": "decline"}},
    ],
)
async def test_an_answer_that_does_not_fit_is_not_sent(tmp_path: Path, answers: dict[str, Any]) -> None:
    async with started(tmp_path) as kit:
        asked = await tool(kit, "ask").execute({}, context(tmp_path))
        with pytest.raises(ToolInputError):
            await served(kit, "ask").resume({}, context(tmp_path), asked, answers)
    assert lines(tmp_path, "calls") == ["ask key-1"]


async def test_a_task_is_called_once_and_polled_by_a_later_process(tmp_path: Path) -> None:
    async with started(tmp_path) as kit:
        task = recorded(await tool(kit, "long").execute({}, context(tmp_path)))
        assert task == TaskStarted("task-1", 50)
        assert class_of_leg(tool(kit, "long"), task) == "idempotent"
        with pytest.raises(ToolTimeoutError):
            await served(kit, "long").resume({}, context(tmp_path, timeout_ms=150), task)
    async with started(tmp_path) as kit:
        (tmp_path / "go").touch()
        assert await served(kit, "long").resume({}, context(tmp_path), task) == "null"
    assert lines(tmp_path, "calls") == ["long key-1"]


async def test_a_task_asks_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    async with started(tmp_path) as kit:
        serves = served(kit, "long_ask")
        task = await tool(kit, "long_ask").execute({}, context(tmp_path))
        asked = recorded(await serves.resume({}, context(tmp_path), task))
        assert isinstance(asked, InputRequired)
        assert asked.task_id == "task-1"
        answers = {"count": {"action": "accept", "content": {"count": 4}}}
        again = recorded(await serves.resume({}, context(tmp_path), asked, answers))
        assert json.loads(await serves.resume({}, context(tmp_path), again)) == answers
    assert lines(tmp_path, "calls") == ["long.ask key-1"]


async def test_a_task_that_was_cancelled_or_is_unknown_has_failed(tmp_path: Path) -> None:
    async with started(tmp_path) as kit:
        serves = served(kit, "long")
        task = await tool(kit, "long").execute({}, context(tmp_path))
        await serves.cancel(task)  # type: ignore[attr-defined]
        with pytest.raises(ToolExecutionError, match="its task is cancelled"):
            await serves.resume({}, context(tmp_path), task)
        with pytest.raises(ToolExecutionError, match="no such task"):
            await serves.resume({}, context(tmp_path), TaskStarted("task-9"))


async def test_a_server_gets_no_model(tmp_path: Path) -> None:
    async with started(tmp_path) as kit:
        with pytest.raises(ToolExecutionError, match="sampling/createMessage"):
            await tool(kit, "sample").execute({}, context(tmp_path))
