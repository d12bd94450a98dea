"""MCP servers that are programs: their sessions outlive them, and calls that were sent are told apart."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from langgraph.graph import START, MessagesState, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.cli.pieces import show_progress
from noesium_stream.client import Client
from noesium_stream.errors import (
    ConfigError,
    OutcomeUnknownError,
    ToolExecutionError,
    ToolServerError,
    ToolTimeoutError,
)
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.tool.mcp import mcp
from noesium_stream.tool.mcp.stdio import StdioTransport
from noesium_stream.worker import Worker
from tests.support.mcp import command, context, lines, started, tool, until
from tests.support.processes import Program
from tests.support.reading import PATIENCE_S

IDEMPOTENT = {"side_effects": "idempotent"}
BOTH = pytest.mark.parametrize("revision", [(), ("previous",)], ids=["2026-07-28", "2025-11-25"])


def pid(folder: Path) -> int:
    return int((folder / "pid").read_text())


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@BOTH
async def test_a_call_has_the_key_and_gives_a_value(tmp_path: Path, revision: tuple[str, ...]) -> None:
    async with started(tmp_path, *revision) as kit:
        echo = tool(kit, "echo")
        assert await echo.execute({"text": "hello"}, context(tmp_path)) == "hello"
        assert (echo.source, echo.labels, echo.permissions) == ("mcp", ("mcp:crm",), ("mcp:connect:crm",))
        assert await tool(kit, "typed").execute({"text": "a"}, context(tmp_path)) == {"text": "a"}
    assert lines(tmp_path, "calls") == ["echo key-1", "typed key-1"]


@BOTH
async def test_a_server_that_is_killed_in_a_call_comes_back(
    tmp_path: Path, revision: tuple[str, ...]
) -> None:
    async with started(tmp_path, *revision) as kit:
        first = pid(tmp_path)
        call = asyncio.create_task(tool(kit, "slow").execute({}, context(tmp_path)))
        await until(lambda: lines(tmp_path, "waiting"))
        os.kill(first, signal.SIGKILL)
        with pytest.raises(OutcomeUnknownError):
            await call
        assert await tool(kit, "echo").execute({"text": "again"}, context(tmp_path)) == "again"
        assert pid(tmp_path) != first
    assert lines(tmp_path, "calls") == ["slow key-1", "echo key-1"]


async def test_a_killed_call_that_may_be_repeated_is_a_failure_of_the_server(tmp_path: Path) -> None:
    async with started(tmp_path, declare={"d*": IDEMPOTENT}) as kit:
        with pytest.raises(ToolServerError) as caught:
            await tool(kit, "die").execute({}, context(tmp_path))
    assert caught.value.retriable


async def test_many_calls_at_once_are_answered_each_by_its_own(tmp_path: Path) -> None:
    async with started(tmp_path) as kit:
        echo = tool(kit, "echo")
        texts = [str(number) for number in range(200)]
        answers = await asyncio.gather(*(echo.execute({"text": text}, context(tmp_path)) for text in texts))
    assert answers == texts


async def test_progress_is_told_and_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    told: list[tuple[float, float | None, str]] = []
    async with started(tmp_path) as kit:
        known = context(tmp_path, progress=lambda *said: told.append(said))
        call = asyncio.create_task(tool(kit, "slow").execute({}, known))
        await until(lambda: len(told) > 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: lines(tmp_path, "cancelled"))
    assert told[:2] == [(0, 9, "part 0"), (1, 9, "part 1")]


async def test_who_watches_a_run_sees_the_progress_that_a_server_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ask(state: MessagesState) -> None:
        await current_step().tool("crm__slow")

    kind = agent_from_graph(StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask"), "desk")
    kind.tools = (mcp(command(tmp_path), name="crm", declare={"*": IDEMPOTENT}),)
    kind.permissions = ("mcp:connect:crm",)
    log = await open_log("memory://")
    async with Worker(log, [kind], home=tmp_path / "home"), Client(log) as client:
        async with asyncio.timeout(PATIENCE_S):
            run = await client.start("desk", {"messages": []})
            async with aclosing(run.progress()) as told:
                first = await anext(told)
            shown = asyncio.create_task(show_progress(run))
            (tmp_path / "go").touch()
            await run.result()
            await shown
    await log.close()
    assert (first.tool, first.done, first.total, first.message) == ("crm__slow", 0, 9, "part 0")
    assert "  crm__slow  0 of 9  part 0\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("declared", "raised"), [({}, OutcomeUnknownError), ({"*": IDEMPOTENT}, ToolTimeoutError)]
)
async def test_a_call_ends_with_its_limit(
    tmp_path: Path, declared: dict[str, dict[str, str]], raised: type[Exception]
) -> None:
    async with started(tmp_path, declare=declared) as kit:
        with pytest.raises(raised):
            await tool(kit, "slow").execute({}, context(tmp_path, timeout_ms=200))
        await until(lambda: lines(tmp_path, "cancelled"))


@BOTH
async def test_a_definition_that_changes_is_shown_as_it_is_now(
    tmp_path: Path, revision: tuple[str, ...]
) -> None:
    changes: list[str] = []
    async with started(tmp_path, *revision) as kit:
        kit.on_change(lambda: changes.append(tool(kit, "echo").definition_hash))
        before = tool(kit, "echo").definition_hash
        (tmp_path / "definition").write_text("Sends it to somebody else.")
        await until(lambda: changes)
        assert tool(kit, "echo").description == "Sends it to somebody else."
    assert before not in changes


async def test_nothing_of_a_server_is_left_when_the_session_ends(tmp_path: Path) -> None:
    async with started(tmp_path, "flood") as kit:
        server = pid(tmp_path)
    await until(lambda: gone(server))
    with pytest.raises(ToolServerError, match="stopped"):
        await tool(kit, "echo").execute({"text": "x"}, context(tmp_path))


async def test_a_server_gets_the_variables_that_are_named_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", "t")
    monkeypatch.setenv("OTHER_TOKEN", "t")
    async with started(tmp_path, env=["CRM_TOKEN", "MODE=test"]):
        pass
    [found] = lines(tmp_path, "starts")
    assert "CRM_TOKEN" in found
    assert "MODE" in found
    assert "OTHER_TOKEN" not in found


async def test_a_server_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    with pytest.raises(ToolServerError, match="On standard error: cannot read the token secret=") as caught:
        async with started(tmp_path, "exit"):
            pass
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ToolServerError, match="not on this machine"):
        await mcp(["no-such-program"]).start()
    with pytest.raises(ToolServerError, match=r"was not connected within 0\.2 s"):
        await mcp(command(tmp_path, "hang"), name="crm", connect_timeout=0.2).start()


async def test_a_tool_that_says_that_it_failed_fails_with_its_words(tmp_path: Path) -> None:
    async with started(tmp_path) as kit:
        with pytest.raises(ToolExecutionError, match="No such customer"):
            await tool(kit, "fail").execute({}, context(tmp_path))


def test_a_text_is_no_list() -> None:
    with pytest.raises(ConfigError, match="is a text"):
        mcp("npx server", declare={"*": {"permissions": "fs:read"}})


async def test_a_server_ends_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    program = await Program.start("tests.support.mcp_holding", tmp_path)
    await program.line("started")
    server = pid(tmp_path)
    os.kill(program.pid, signal.SIGKILL)
    await until(lambda: gone(server))


async def test_two_agents_share_a_session_and_the_last_one_ends_it(tmp_path: Path) -> None:
    async with started(tmp_path) as kit:
        await kit.start()
        await kit.stop()
        assert await tool(kit, "echo").execute({"text": "on"}, context(tmp_path)) == "on"
    assert len(lines(tmp_path, "starts")) == 1
    await until(lambda: gone(pid(tmp_path)))


async def test_a_session_ends_although_its_connection_fails_to_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = StdioTransport.__aexit__

    async def fails(self: StdioTransport, *given: BaseException | None) -> None:
        await close(self, None, None, None)
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        raise anyio.ClosedResourceError  # so ends the SDK's HTTP when an answer comes meanwhile

    monkeypatch.setattr(StdioTransport, "__aexit__", fails)
    kit = mcp(command(tmp_path), name="crm")
    await kit.start()
    async with asyncio.timeout(PATIENCE_S):
        await kit.stop()
    assert len(lines(tmp_path, "starts")) == 1
