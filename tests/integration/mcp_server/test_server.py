"""`noesium mcp serve`, by the SDK's own client and by requests as they are written."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from noesium_stream.client import Client
from noesium_stream.mcp_server.calls import KEY_FIELD
from tests.support.a2a import Desk
from tests.support.mcp_agents import Kit
from tests.support.mcp_serving import Place, Task


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def text(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def agree(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_capabilities_are_tools_in_both_revisions(place: Place, mode: str) -> None:
    async with place.working(Desk):
        with place.serving() as server:
            async with server.client(mode=mode) as client:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                said = await client.call_tool("desk.upper", {"text": "good day"})
                failed = await client.call_tool("desk.upper", {"text": "fail"})
                wrong = await client.call_tool("desk.upper", {"text": 7})
                with pytest.raises(MCPError, match=r"no tool desk\.none"):
                    await client.call_tool("desk.none", {})
                revision = client.protocol_version
    assert sorted(tools) == ["desk.name", "desk.refund", "desk.talk", "desk.upper", "desk.wait"]
    assert tools["desk.upper"].description == "Say it in capitals."
    assert tools["desk.upper"].input_schema["required"] == ["text"]
    assert text(said) == "GOOD DAY"
    assert failed.is_error
    assert "told to fail" in text(failed)
    assert wrong.is_error
    assert "text" in text(wrong)
    assert revision == ("2026-07-28" if mode == "auto" else "2025-11-25")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_standard_input_serves_as_well(place: Place, mode: Any) -> None:
    args = ["-m", "noesium_stream.cli", "mcp", "serve", "--log", place.url]
    parameters = StdioServerParameters(command=sys.executable, args=args, env=place.folder.env)
    async with place.working(Desk) as log:
        async with McpClient(parameters, mode=mode) as client:
            assert text(await client.call_tool("desk.upper", {"text": "good day"})) == "GOOD DAY"
        async with Client(log) as runs:
            [run] = await runs.list_runs()
    assert run.status == "completed"


async def test_a_call_with_a_key_meets_its_run_and_one_without_is_a_new_one(place: Place) -> None:
    async with place.working(Desk) as log, Client(log) as runs:
        with place.serving() as one, place.serving() as other:
            call = {"name": "desk.upper", "arguments": {"text": "a"}}
            keyed = {**call, "_meta": {KEY_FIELD: "k1"}}
            results = await asyncio.gather(
                *(server.ask("tools/call", dict(keyed), tasks=False) for server in (one, other) * 3)
            )
            assert len(await runs.list_runs()) == 1
            for wrong in ({"name": "desk.wait", "arguments": {}}, {**call, "arguments": {"text": "b"}}):
                refused = await other.post("tools/call", {**wrong, "_meta": {KEY_FIELD: "k1"}})
                assert refused.json()["error"]["code"] == types.INVALID_PARAMS
            await one.ask("tools/call", dict(call))
            await one.ask("tools/call", dict(call))
        assert len(await runs.list_runs()) == 3
    assert {result["content"][0]["text"] for result in results} == {"A"}


async def test_another_server_goes_on_with_a_task_whose_server_was_killed(place: Place) -> None:
    async with place.working(Desk):
        with place.serving("--task-after", "0") as first:
            async with first.client(tasks=True) as client:
                task = await client.session.call_tool(
                    "desk.refund", {"amount": 70}, allow_input_required=True, allow_claimed=True
                )
                assert isinstance(task, Task)
            first.process.signal(signal.SIGKILL)
            first.process.wait()
        with place.serving() as second:
            asked = await second.task(task.task_id, "input_required")
            [(question, request)] = asked["inputRequests"].items()
            assert request["params"]["message"] == "Refund 70?"
            answers = {question: {"action": "accept", "content": {}}}
            await second.ask("tasks/update", {"taskId": task.task_id, "inputResponses": answers})
            done = await second.task(task.task_id, "completed")
    assert done["result"]["structuredContent"] == {"approved": True, "amount": 70, "by": "mcp"}


async def test_a_question_is_answered_at_another_server_by_what_the_first_one_sealed(place: Place) -> None:
    call = {"name": "desk.refund", "arguments": {"amount": 7}}
    async with place.working(Desk) as log, Client(log) as runs:
        with place.serving() as first:
            asked = await first.ask("tools/call", dict(call), tasks=False)
        assert asked["resultType"] == "input_required"
        [question] = asked["inputRequests"]
        given = {"inputResponses": {question: {"action": "decline"}}}
        with place.serving() as second:
            forged = [asked["requestState"][:-4] + "AAAA", "desk." + "0" * 36, "x" * 5_000]
            for state in forged:
                refused = await second.post("tools/call", {**call, **given, "requestState": state})
                assert refused.json()["error"]["code"] == types.INVALID_PARAMS
            other = {"name": "desk.refund", "arguments": {"amount": 9_999}}
            state = {"requestState": asked["requestState"]}
            refused = await second.post("tools/call", {**other, **given, **state})
            assert refused.json()["error"]["code"] == types.INVALID_PARAMS
            done = await second.ask("tools/call", {**call, **given, **state}, tasks=False)
        assert len(await runs.list_runs()) == 1
    assert done["structuredContent"]["approved"] is False


async def test_the_client_of_the_sdk_answers_questions_in_the_call(place: Place) -> None:
    async with place.working(Desk):
        with place.serving() as server:
            async with server.client(elicitation_callback=agree) as client:
                done = await client.call_tool("desk.refund", {"amount": 5})
    assert done.structured_content == {"approved": True, "amount": 5, "by": "mcp"}


async def test_clients_are_told_that_the_tools_have_changed(place: Place) -> None:
    async with place.working(Desk):
        with place.serving() as server:
            async with (
                server.client() as client,
                client.listen(tools_list_changed=True) as events,
                place.working(Kit),
            ):
                await anext(aiter(events))
                names = [tool.name for tool in (await client.list_tools()).tools]
    assert "greet" in names


async def test_progress_tells_of_the_run(place: Place) -> None:
    seen: list[str | None] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with place.working(Desk):
        with place.serving() as server:
            async with server.client() as client:
                await client.call_tool("desk.upper", {"text": "a"}, progress_callback=progress)
    assert "completed" in seen
