"""`noesium chat` on a real Kafka: the worker and the terminal die, and the next ones know it all."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.client.conversation import ConversationView
from noesium_stream.kernel.segment_state import STARTED
from noesium_stream.log import open_log
from tests.support.chatting import folder_with_clerk
from tests.support.command import Folder
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S
from tests.support.terminal import Terminal


@pytest.fixture
def folder(tmp_path: Path, kafka: KafkaServer, namespace: str) -> Folder:
    folder = folder_with_clerk(tmp_path)
    folder.env |= {"NOESIUM_LOG": kafka.url(namespace), "NOESIUM_PARTITIONS": "1"}
    return folder


def chat(folder: Folder, *lines: str, more: tuple[str, ...] = ()) -> str:
    """What a chat prints on standard output, given lines by a pipe."""
    done = subprocess.run(
        [*folder.command, "chat", "clerk", "--as", "ada", *more],
        cwd=folder.path,
        env=folder.env,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


async def read(folder: Folder) -> tuple[str, ConversationView, list[str]]:
    """The conversation: its id, what was said, and the types of its events."""
    log = await open_log(folder.env["NOESIUM_LOG"])
    async with Client(log) as client:
        [info] = await client.list_runs()
        conversation = await client.conversation(info.run_id)
        kinds = [event.event_type async for event in conversation.run.events(follow=False)]
    await log.close()
    return info.run_id, conversation.view, kinds


async def test_a_chat_whose_worker_and_terminal_are_killed_goes_on_and_knows(folder: Folder) -> None:
    with folder.running("worker", "clerk") as first:
        first.wait_for_error_line("clerk 1.0.0: at work on kafka://")
        assert "Ada" in chat(folder, "call Ada", "order tea", "y")
        resumed = [*folder.command, "chat", "clerk", "--as", "ada", "--resume"]
        with Terminal(resumed, folder.path, folder.env) as at:
            at.wait_for("> ")
            at.type("slow")
            at.wait_for("first ")
            at.kill()
        first.signal(signal.SIGKILL)
        first.wait()
    run_id, view, _ = await read(folder)
    assert [turn.said for turn in view.turns] == ["call Ada", "order tea"]
    assert len(view.waiting) == 1, "the message is on the log, and has no answer"
    folder.ok("signal", run_id, "go")
    with folder.running("worker", "clerk") as second:
        second.wait_for_error_line("clerk 1.0.0: at work on kafka://")
        printed = chat(folder, "who", "/undo", "who", "/history", more=("--resume",))
        assert "first second third" in printed
        assert printed.count("You are Ada.") >= 2
        _, view, kinds = await read(folder)
    assert [(turn.number, turn.said, turn.answer, turn.undone) for turn in view.turns] == [
        (1, "call Ada", "Ada", False),
        (2, "order tea", "ordered tea", False),
        (3, "slow", "first second third", False),
        (4, "who", "You are Ada.", True),
        (4, "who", "You are Ada.", False),
    ]
    assert (folder.path / "orders.txt").read_text().splitlines() == ["tea"], "the tool was called once"
    assert kinds.count(STARTED) >= 2
