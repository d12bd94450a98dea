"""Somebody is told once of a question that waits; what tells may fail or hang, and no run notices."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.config import load_all
from noesium_stream.errors import ConfigError
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import ApprovalRequested
from noesium_stream.kernel import current_step
from noesium_stream.log import EventLog, open_log
from noesium_stream.worker import ApprovalHook, Worker, approval_hook
from tests.support.effects import reached
from tests.support.reading import PATIENCE_S, eventually


class State(TypedDict, total=False):
    question: str
    said: Any


async def ask(state: State) -> dict[str, Any]:
    answer = await current_step().interrupt(state["question"], approvers=["ann"])
    return {"said": answer.value}


ASKER = agent_from_graph(StateGraph(State).add_node("ask", ask).add_edge(START, "ask"), "asker")
APPEND = """
import sys
with open(sys.argv[1], "a") as file:
    file.write(sys.stdin.read() + "\\n")
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_hook, "PAUSES_S", (0.0, 0.0))


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    found = await open_log("memory://?partitions=1")
    yield found
    await found.close()


def python(code: str, *words: str) -> str:
    return shlex.join([sys.executable, "-c", code, *words])


def hook(said: list[str], command: str | None = None, webhook: str | None = None) -> ApprovalHook:
    return ApprovalHook(
        command=command, webhook=webhook, log="kafka://h", progress=said.append, clock=SystemClock()
    )


def asked(question: Any = "Pay?") -> EventEnvelope:
    event = ApprovalRequested(
        run_id="r 1",
        approval_id="q",
        node="ask",
        question=question,
        fingerprint="f",
        approvers=["ann"],
        minimum=2,
    )
    return event.to_envelope(
        AgentRef("asker", "asker"), TraceContext("1" * 32, "2" * 16), partition_key="r 1"
    )


async def test_a_command_gets_each_question_once_also_when_another_worker_goes_on(
    log: EventLog, tmp_path: Path
) -> None:
    told, said = tmp_path / "told.jsonl", list[str]()
    command = python(APPEND, str(told))

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    async with Client(log) as client:
        async with hook(said, command) as first, Worker(log, [ASKER], home=tmp_path, on_approval=first.tell):
            run = await client.start("asker", {"question": "Pay?"})
            await eventually(lambda: len(lines()) == 1)
        async with (
            hook(said, command) as second,
            Worker(log, [ASKER], home=tmp_path, on_approval=second.tell),
        ):
            other = await client.start("asker", {"question": "More?"})
            await eventually(lambda: len(lines()) == 2)
            for one in (run, other):
                await one.approve(by="ann", value=1)
                await one.result(timeout=PATIENCE_S)
        [question] = await run.approvals()
    assert said == []
    first_line, second_line = lines()
    assert (first_line["run_id"], first_line["approval_id"]) == (run.id, question.approval_id)
    assert (first_line["question"], first_line["approvers"], first_line["node"]) == ("Pay?", ["ann"], "ask")
    assert first_line["approve"] == f"noesium approve {run.id} {question.approval_id} --log kafka://h"
    assert (second_line["run_id"], second_line["agent_type"]) == (other.id, "asker")


async def test_a_command_that_fails_is_not_tried_again_as_it_may_have_told_somebody(tmp_path: Path) -> None:
    told, said = tmp_path / "told", list[str]()
    fails = APPEND + 'sys.exit("no\\x1b[31m route to ann")'
    async with hook(said, python(fails, str(told))) as found:
        found.tell(asked())
        await eventually(lambda: said)
    assert len(told.read_text().splitlines()) == 1
    assert len(said) == 1
    assert said[0].startswith(
        f"somebody may have been told of a question by the command {sys.executable}, or nobody: "
        "exit code 1: no"
    )


async def test_a_command_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, said = tmp_path / "tell", list[str]()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.setattr(approval_hook, "PAUSES_S", (1.0, 5.0))
    pauses: list[float] = []

    class Pausing(SystemClock):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    async with ApprovalHook(
        command=str(program), webhook=None, log="kafka://h", progress=said.append, clock=Pausing()
    ) as found:
        program.unlink()
        found.tell(asked())
        await eventually(lambda: said)
    assert pauses == [1.0, 5.0]
    assert said[0].startswith(f"nobody was told of a question by the command {program}: ")


@pytest.mark.parametrize(("code", "expected"), [(0, []), (3, ["exit code 3: no"])])
async def test_what_a_command_leaves_in_the_background_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: list[str]
) -> None:
    monkeypatch.setattr(approval_hook, "STDERR_S", 0.01)
    pid, said = tmp_path / "pid", list[str]()
    monkeypatch.setattr(approval_hook, "message_about", lambda event, log: b"x" * 300_000)
    command = shlex.join(["sh", "-c", f"sleep 1000 <&0 & echo $! > {pid}; echo no >&2; exit {code}"])
    try:
        async with hook(said, command) as found:
            found.tell(asked())
            await eventually(lambda: not found._tasks)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    assert said == [
        f"somebody may have been told of a question by the command sh, or nobody: {one}" for one in expected
    ]


async def test_a_command_that_hangs_holds_no_run_and_is_ended(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, started = list[str](), tmp_path / "pid"
    command = shlex.join(["sh", "-c", f"echo $$ > {started}.new; mv {started}.new {started}; sleep 1000"])

    def ended() -> bool:
        try:
            os.kill(int(started.read_text()), 0)
        except ProcessLookupError:
            return True
        return False

    monkeypatch.setattr(approval_hook, "CLOSING_S", 0.0)
    async with Client(log) as client, hook(said, command) as found:
        async with Worker(log, [ASKER], home=tmp_path, on_approval=found.tell):
            run = await client.start("asker", {"question": "Pay?"})
            await reached(run, "approval.requested")
            await eventually(started.exists)
            await run.approve(by="ann", value=7)
            assert (await run.result(timeout=PATIENCE_S))["said"] == 7
        assert said == []
    assert said == [
        "1 message about a question was given up, and may not have been sent: "
        "noesium approvals lists what is asked"
    ]
    await eventually(ended)


async def test_what_does_not_end_in_time_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_hook, "TIMEOUT_S", 0.05)
    said: list[str] = []
    async with hook(said, "sleep 1000") as found:
        found.tell(asked())
        await eventually(lambda: said)
    assert said == [
        "somebody may have been told of a question by the command sleep, or nobody: it did not end in 0.05 s"
    ]


async def test_a_command_need_not_read_what_it_is_given_and_may_say_a_lot() -> None:
    said: list[str] = []
    async with hook(said, python("import sys; sys.stderr.write('x' * 10**6)")) as found:
        found.tell(asked("y" * 15_000))
        await eventually(lambda: not found._tasks)
    assert said == []


@asynccontextmanager
async def server(*answers: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives these answers in turn; its address, and the requests."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        requests.append(head + await reader.readexactly(length))
        writer.write(answers[min(len(requests), len(answers)) - 1])
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/services/T1/secret?x=1", requests


async def test_a_webhook_is_posted_to_until_it_has_answered_well() -> None:
    said: list[str] = []
    answers = b"HTTP/1.1 503 busy\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"
    async with server(*answers) as (url, requests), hook(said, webhook=url) as found:
        found.tell(asked({"amount": 7}))
        await eventually(lambda: not found._tasks)
    assert said == []
    assert len(requests) == 2
    head, _, body = requests[1].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /services/T1/secret?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    message = json.loads(body)
    assert (message["event"], message["question"], message["minimum"]) == (
        "approval.requested",
        {"amount": 7},
        2,
    )
    assert message["approve"] == "noesium approve 'r 1' q --log kafka://h"


@pytest.mark.parametrize(
    ("answer", "attempts", "outcome"),
    [
        (b"HTTP/1.1 429 slow down\r\n\r\n", 3, "nobody was"),
        (b"HTTP/1.1 503 busy\r\n\r\n", 3, "nobody was"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", 1, "nobody was"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", 1, "somebody may have been"),
        (b"HTTP/1.1 500 no\r\n\r\n", 1, "somebody may have been"),
        (b"HTTP/1.1 502 no\r\n\r\n", 1, "somebody may have been"),
        (b"nonsense\r\n", 1, "somebody may have been"),
        (b"", 1, "somebody may have been"),
        (b"\xff\xff", 1, "somebody may have been"),
    ],
)
async def test_only_a_webhook_that_is_busy_is_asked_again_and_its_path_is_not_shown(
    answer: bytes, attempts: int, outcome: str
) -> None:
    said: list[str] = []
    async with server(answer) as (url, requests):
        async with hook(said, webhook=url) as found:
            found.tell(asked())
            await eventually(lambda: said)
        assert len(requests) == attempts
    [line] = said
    assert line.startswith(f"{outcome} told of a question by the webhook at 127.0.0.1")
    assert ": it answered " in line
    assert "secret" not in line


async def test_a_connection_that_breaks_after_the_request_is_not_tried_again() -> None:
    said, requests = list[str](), list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()  # so that the other side gets a reset

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        async with hook(said, webhook=url) as found:
            found.tell(asked())
            await eventually(lambda: said)
    assert len(requests) == 1
    assert said[0].startswith(
        "somebody may have been told of a question by the webhook at 127.0.0.1, or nobody: "
    )


async def test_a_webhook_that_cannot_be_reached_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said, attempts = list[str](), list[str]()

    async def refused(host: str, port: int, **options: Any) -> None:
        attempts.append(host)
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(asyncio, "open_connection", refused)
    async with hook(said, webhook="https://hooks.example.com/secret") as found:
        found.tell(asked())
        await eventually(lambda: said)
    assert len(attempts) == 1 + len(approval_hook.PAUSES_S)
    assert said == ["nobody was told of a question by the webhook at hooks.example.com: nobody listens"]


async def test_a_webhook_that_takes_no_connection_in_time_has_told_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hanging(host: str, port: int, **options: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_connection", hanging)
    monkeypatch.setattr(approval_hook, "TIMEOUT_S", 0.01)
    said: list[str] = []
    async with hook(said, webhook="https://hooks.example.com/secret") as found:
        found.tell(asked())
        await eventually(lambda: said)
    assert said == [
        "nobody was told of a question by the webhook at hooks.example.com: "
        "it did not take the connection in 0.01 s"
    ]


async def test_more_questions_than_can_be_told_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_hook, "MOST_WAITING", 3)
    said: list[str] = []
    async with hook(said, "true") as found:
        for _ in range(5):
            found.tell(asked())
        await eventually(lambda: said)
    assert said == ["2 messages about questions were too many: noesium approvals lists what is asked"]


def test_a_large_question_is_cut() -> None:
    message = json.loads(approval_hook.message_about(asked({"text": "x" * 100_000}), "kafka://h"))
    assert message["question"].startswith("text=xxx")
    assert len(message["question"]) <= 100


@pytest.mark.parametrize(
    ("command", "webhook", "problem"),
    [
        ("no-such-program --x", None, "is not there: no-such-program"),
        ("'", None, "cannot be read"),
        ("  ", None, "it is empty"),
        (None, "ftp://host/secret", "no http:// or https:// address"),
        (None, "https:///secret", "no http:// or https:// address"),
        (None, "https://me:secret@host/", "a login in it"),
        (None, "https://host:99999/secret", "host or port"),
        (None, "https://host/secret\r\nX: y", "characters"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(
    command: str | None, webhook: str | None, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as told:
        hook([], command, webhook)
    assert "secret" not in str(told.value)
    assert (told.value.hint or "").startswith("Give ")


async def test_a_fault_of_who_is_told_is_not_the_run_s(log: EventLog, tmp_path: Path) -> None:
    def broken(event: EventEnvelope) -> None:
        raise RuntimeError("no")

    said: list[str] = []
    async with (
        Client(log) as client,
        Worker(log, [ASKER], home=tmp_path, on_approval=broken, progress=said.append),
    ):
        run = await client.start("asker", {"question": "Pay?"})
        await reached(run, "approval.requested")
        await run.approve(by="ann")
        await run.result(timeout=PATIENCE_S)
    assert len(said) == 1
    assert said[0].startswith(f"nobody was told of a question of run {run.id}: ")


def test_the_path_of_a_webhook_is_a_secret_of_the_settings(tmp_path: Path) -> None:
    env = {"NOESIUM_APPROVAL_WEBHOOK": "https://hooks.example.com/services/T1/hunter2"}
    loaded = load_all(env=env, folder=tmp_path)
    [shown] = [setting.value for setting in loaded.settings() if setting.name == "approval_webhook"]
    assert shown == "https://hooks.example.com/***"
    assert "hunter2" not in repr(loaded.noesium)
