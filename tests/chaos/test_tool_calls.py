"""Worker, tool process and MCP server killed at each instant of a call, on both logs.

An external call reaches the outside once at most: where nobody knows whether it did, a person says. What may
be repeated is repeated under the same key. What holds of every play is in `desk_run`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest

from noesium_stream.client import Run
from noesium_stream.errors import ApprovalClosedError
from tests.chaos.desk_run import (
    ASKING_DESK,
    BY_HAND,
    PIPE_DESK,
    WEB_DESK,
    DeskRun,
    programs_with,
    until,
)
from tests.chaos.one_run import PATIENCE_S
from tests.chaos.play import folder_for
from tests.chaos.plays import Played, Plays, play_all
from tests.sim.world import result_of
from tests.support.chosen import chosen, on_a_log_in_turn
from tests.support.kafka import KafkaServer
from tests.support.mcp import lines

pytestmark = pytest.mark.timeout(3_600)

PLAYS: Final = Plays()
play = PLAYS.play

ANNOUNCING, ANNOUNCED = "before:tool.invoked", "after:tool.invoked"
ENDING, ENDED = "before:tool.completed", "after:tool.completed"
WITHIN, DONE = "during-effect", "after-effect"


async def result(run: Run) -> Any:
    return (await run.result(timeout=PATIENCE_S))["got"]


# -- a function ----------------------------------------------------------------------------------------------


@play("an external call is killed before it is announced", ANNOUNCING, 0, [])
@play("an external call is killed when it is announced", ANNOUNCED, 0, ["retry"])
@play("an external call is killed while it is made", WITHIN, 1, ["retry"])
@play("an external call is killed when it is done, and nobody has heard", DONE, 1, ["result"])
@play("an external call is killed before its end is recorded", ENDING, 1, ["result"])
@play("an external call is killed when its end is recorded", ENDED, 1, [])
async def external(one: DeskRun, point: str, begun: int, decisions: list[str]) -> None:
    victim = await one.start("victim", point)
    run = await one.order(["send", {"words": "a"}], ["send", {"words": "b"}])
    await one.stands(victim)
    assert len(one.calls()) == begun
    await one.kill(victim)
    await one.start("next")
    async with one.person(run) as decided:
        assert await result(run) == [result_of("external", "a"), result_of("external", "b")]
    assert decided == decisions
    assert [call.words for call in one.calls() if call.outcome == "done"] == ["a", "b"]


@play("an idempotent call is killed when it is announced", ANNOUNCED, 0)
@play("an idempotent call is killed while it is made", WITHIN, 1)
@play("an idempotent call is killed when it is done, and nobody has heard", DONE, 1)
@play("an idempotent call is killed before its end is recorded", ENDING, 1)
async def idempotent(one: DeskRun, point: str, begun: int) -> None:
    victim = await one.start("victim", point)
    run = await one.order(["label", {"words": "a"}])
    await one.stands(victim)
    await one.kill(victim)
    await one.start("next")
    assert await result(run) == [result_of("idempotent", "a")]
    calls = one.calls()
    assert [call.process for call in calls] == ["victim"] * begun + ["next"]
    assert len({call.key for call in calls}) == 1
    assert (await one.types(run))["effect.outcome.unknown"] == 0


# -- a program in the sandbox --------------------------------------------------------------------------------

WAIT = "echo x >> begun; until [ -e go ]; do sleep 0.02; done; echo x >> done"


def command_of(one: DeskRun, script: str) -> tuple[str, str]:
    """A command line, and a text by which its processes are found."""
    mark = f"mark-{one.outside.parent.parent.name}"
    return f"{script} # {mark}", mark


@play("the worker is killed while a command runs in the sandbox", None)
@play("the worker is killed before the end of a command is recorded", ENDING)
async def command(one: DeskRun, point: str | None) -> None:
    workspace = one.outside / "workspace"
    script, mark = command_of(one, WAIT)
    victim = await one.start("victim", point)
    run = await one.order(["shell", {"command": script, "timeout_s": one.deadline.total_seconds()}])
    await until(lambda: lines(workspace, "begun"))
    if point is not None:
        (workspace / "go").touch()
        await one.stands(victim)
    else:
        assert programs_with(mark)
    await one.kill(victim)
    await until(lambda: not programs_with(mark))
    (workspace / "go").touch()
    await one.start("next")
    async with one.person(run, lambda effect_id: BY_HAND) as decided:
        assert await result(run) == [BY_HAND]
    assert decided == ["result"]
    assert (len(lines(workspace, "begun")), len(lines(workspace, "done"))) == (1, int(point is not None))


@play("the process of a tool is killed")
async def tool_process(one: DeskRun) -> None:
    workspace = one.outside / "workspace"
    script, mark = command_of(one, WAIT)
    await one.start("worker")
    run = await one.order(["shell", {"command": script}], ["label", {"words": "after"}])
    await until(lambda: lines(workspace, "begun"))
    for process in programs_with(mark):
        kill(process)
    got, after = await result(run)
    assert (got["ended"], got["stdout"]) == ("signal", "")
    assert after == result_of("idempotent", "after")
    assert (lines(workspace, "begun"), lines(workspace, "done")) == (["x"], [])


def kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


# -- an MCP server that is a program -------------------------------------------------------------------------


@play("the worker is killed in a call of an MCP server", True, False)
@play("an MCP server is killed in a call", False, True)
@play("an MCP server and its worker are killed in a call", True, True)
async def pipe(one: DeskRun, worker_dies: bool, server_dies: bool) -> None:
    one.kind = PIPE_DESK
    victim = await one.start("victim")
    run = await one.order(["pipe__slow", {}], ["pipe__echo", {"text": "again"}])
    await until(lambda: lines(one.outside / "pipe", "waiting"))
    server = int((one.outside / "pipe" / "pid").read_text())
    if server_dies:
        kill(server)
    if worker_dies:
        await one.kill(victim)
        await until(lambda: not os.path.exists(f"/proc/{server}"))
        await one.start("next")
    async with one.person(run, lambda effect_id: BY_HAND) as decided:
        assert await result(run) == [BY_HAND, "again"]
    assert decided == ["result"]
    assert [text.split()[0] for text in one.made("pipe")] == ["slow", "echo"]


@play("a call of an MCP server is killed before its end is recorded", ENDING, ["result"])
@play("a call of an MCP server is killed when its end is recorded", ENDED, [])
async def pipe_answered(one: DeskRun, point: str, decisions: list[str]) -> None:
    one.kind = PIPE_DESK
    victim = await one.start("victim", point)
    run = await one.order(["pipe__echo", {"text": "once"}])
    await one.stands(victim)
    await one.kill(victim)
    await one.start("next")
    async with one.person(run, lambda effect_id: "once") as decided:
        assert await result(run) == ["once"]
    assert decided == decisions
    assert [text.split()[0] for text in one.made("pipe")] == ["echo"]


@play("an MCP server is killed in a call that may be repeated", False)
@play("the worker is killed in a call of an MCP server that may be repeated", True)
async def safe(one: DeskRun, worker_dies: bool) -> None:
    """Another worker makes the same call; a retry of one that has failed is a call of its own."""
    one.kind = PIPE_DESK
    folder = one.outside / "safe"
    victim = await one.start("victim")
    run = await one.order(["safe__slow", {}])
    await until(lambda: lines(folder, "waiting"))
    if worker_dies:
        await one.kill(victim)
        await one.start("next")
    else:
        kill(int((folder / "pid").read_text()))
    await until(lambda: len(lines(folder, "waiting")) == 2)
    (folder / "go").touch()
    assert await result(run) == ["done"]
    first, second = one.made("safe")
    assert (first == second) == worker_dies
    types = await one.types(run)
    assert types["tool.invoked"] == 2 - worker_dies
    assert types["tool.failed"] == 1 - worker_dies
    assert types["effect.outcome.unknown"] == 0


# -- an MCP server at a URL ----------------------------------------------------------------------------------


@play("the worker is killed in a call of an MCP server at a URL", True, False)
@play("an MCP server at a URL is killed in a call", False, True)
@play("an MCP server at a URL and the worker are killed in a call", True, True)
async def web(one: DeskRun, worker_dies: bool, server_dies: bool) -> None:
    one.kind = WEB_DESK
    async with one.web_server() as server:
        port = one.web_port
        victim = await one.start("victim")
        run = await one.order(["web__slow", {}], ["web__echo", {}])
        await until(lambda: one.made("web"))
        if server_dies:
            server.kill()
            await server.wait()
        if worker_dies:
            await one.kill(victim)
        if not server_dies:
            (one.outside / "web" / "go").touch()
            await _goes_on(one, run, worker_dies)
            return
    async with one.web_server(port):
        await _goes_on(one, run, worker_dies)


async def _goes_on(one: DeskRun, run: Run, next_worker: bool) -> None:
    if next_worker:
        await one.start("next")
    async with one.person(run, lambda effect_id: BY_HAND) as decided:
        assert await result(run) == [BY_HAND, "x"]
    assert decided == ["result"]
    assert one.made("web") == ["slow", "echo"]


# -- a person is asked ---------------------------------------------------------------------------------------


@play("killed when a person is asked about a call", "after:approval.requested", 0, [])
@play("killed before an approval is recorded", "before:approval.answered", 0, [])
@play("killed when an approval is recorded", "after:approval.answered", 0, [])
@play("killed before an approval is consumed", ANNOUNCING, 0, [])
@play("killed when an approval is consumed", ANNOUNCED, 0, ["retry"])
@play("killed while what was approved is done", WITHIN, 1, ["retry"])
@play("killed before the end of what was approved is recorded", ENDING, 1, ["result"])
async def approved(one: DeskRun, point: str, begun: int, decisions: list[str]) -> None:
    """What is called is what a person has made of it, once; two equal calls need two answers."""
    one.kind = ASKING_DESK
    victim = await one.start("victim", point)
    run = await one.order(["send", {"words": "a"}], ["send", {"words": "a"}])
    await one.seen(run, "approval.requested")
    if point != "after:approval.requested":
        await run.approve(value={"arguments": {"words": "b"}}, by="anna")
    await one.stands(victim)
    assert len(one.calls()) == begun
    await one.kill(victim)
    await one.start("next")
    if point == "after:approval.requested":
        await run.approve(value={"arguments": {"words": "b"}}, by="anna")
    async with one.person(run) as decided:
        second = await one.seen(run, "approval.requested", 2)
        approval_id = second.payload["approval_id"]
        await run.approve(approval_id, by="anna")
        assert await result(run) == [result_of("external", "b"), result_of("external", "a")]
    assert decided == decisions
    assert [call.words for call in one.calls() if call.outcome == "done"] == ["b", "a"]
    types = await one.types(run)
    assert types["approval.requested"] == types["approval.answered"] == 2


@play("two people answer at once, and the worker is killed with the first answer recorded")
async def two_answers(one: DeskRun) -> None:
    one.kind = ASKING_DESK
    victim = await one.start("victim", "after:approval.answered")
    run = await one.order(["send", {"words": "a"}])
    await one.seen(run, "approval.requested")
    said = await asyncio.gather(
        run.approve(value={"arguments": {"words": "b"}}, by="anna"),
        run.approve(value={"arguments": {"words": "c"}}, by="otto"),
        return_exceptions=True,
    )
    [refused] = [one for one in said if isinstance(one, BaseException)]
    assert isinstance(refused, ApprovalClosedError), refused
    words = "b" if said[1] is refused else "c"
    await one.stands(victim)
    await one.kill(victim)
    await one.start("next")
    assert await result(run) == [result_of("external", words)]
    assert [call.words for call in one.calls()] == [words]


# -- the tests -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, kafka_server: KafkaServer) -> Iterator[Played]:
    """What came of each, by name and log."""
    wanted = chosen(request, "name", "log")
    with folder_for(None) as folder:
        yield asyncio.run(play_all(folder, kafka_server.bootstrap, PLAYS, wanted, DeskRun))


@pytest.mark.parametrize(("name", "log"), on_a_log_in_turn(PLAYS))
def test_a_call_is_made_once_and_has_one_end(
    request: pytest.FixtureRequest, played: Played, name: str, log: str
) -> None:
    if log == "kafka":
        request.getfixturevalue("kafka")  # counts the test as one on it
    error = played[name, log]
    if error is not None:
        raise error
