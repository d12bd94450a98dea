"""A real chat that dies of SIGKILL at a commit of each kind: the next process shows the same conversation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.client.conversation import ConversationView
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log import open_log
from tests.support.chatting import folder_with_clerk
from tests.support.chosen import one_of
from tests.support.command import Folder
from tests.support.processes import ROOT
from tests.support.reading import PATIENCE_S
from tests.support.striking import of_a_run

SAID = ("call Ada", "order tea", "y", "call Bob", "/undo", "who")
HISTORY = [
    (1, "call Ada", "Ada", False),
    (2, "order tea", "ordered tea", False),
    (3, "call Bob", "Bob", True),
    (3, "who", "You are Ada.", False),
]
KINDS = (
    ("run.started", "after"),
    ("kernel.signal.awaited", "after"),
    ("run.signalled", "after"),
    ("kernel.node.entered", "before"),
    ("memory.written", "before"),
    ("approval.requested", "after"),
    ("approval.answered", "after"),
    ("tool.invoked", "after"),
    ("tool.completed", "before"),
    ("effect.completed", "after"),
    ("conversation.turn.completed", "before"),
    ("kernel.node.completed", "after"),
    ("run.segment.started", "before"),
    ("run.segment.started", "after"),
    ("memory.retracted", "before"),
    ("conversation.turn.undone", "after"),
)
"""The kinds of events, and whether the process dies before or after the commit with one."""


Ended = subprocess.CompletedProcess[str]


def chat(folder: Folder, lines: list[str], *more: str, before: tuple[str, ...] = ()) -> Ended:
    command = [sys.executable, "-m", *before, "chat", "clerk", "--as", "ada", *more]
    path = os.pathsep.join((str(ROOT), str(folder.path)))
    return subprocess.run(
        command,
        cwd=folder.path,
        env={**folder.env, "PYTHONPATH": path},
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )


async def read(folder: Folder) -> tuple[list[EventEnvelope], ConversationView]:
    log = await open_log(f"sqlite:///{folder.path}/.noesium/log.db")
    async with Client(log) as client:
        [info] = await client.list_runs()
        conversation = await client.conversation(info.run_id)
        events = [event async for event in conversation.run.events(follow=False)]
    await log.close()
    return events, conversation.view


def told(view: ConversationView) -> list[tuple[int, str, str, bool]]:
    return [(turn.number, turn.said, turn.answer, turn.undone) for turn in view.turns]


def left(events: list[EventEnvelope], view: ConversationView, ordered: bool) -> list[str]:
    """What the person has not said yet, or has to answer again; `ordered`: they see that it was done."""
    done = len(view.turns) + sum(turn.undone for turn in view.turns) + len(view.waiting)
    lines = [line for line in SAID if line != "y"][done:]
    kinds = [event.event_type for event in events]
    at = lines.index("order tea") + 1 if "order tea" in lines else 0
    if "order tea" in lines or any(_text(event) == "order tea" for event in view.waiting.values()):
        if "approval.answered" not in kinds:
            lines.insert(at, "y")
        elif "effect.requested" in kinds and "effect.completed" not in kinds:
            # The call was begun, and nobody knows what became of it: the person looks.
            lines.insert(at, "done ordered tea" if ordered else "again")
    return lines


def _text(event: EventEnvelope) -> str:
    value = event.payload["value"]
    return str(value.get("text"))


def nth_of(kind: str, events: list[EventEnvelope], last: bool) -> int:
    """The number of the first, or last, event of a kind among those that the worker commits."""
    numbers = [n for n, event in enumerate(filter(of_a_run, events), 1) if event.event_type == kind]
    return numbers[-1 if last else 0]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = folder_with_clerk(tmp_path_factory.mktemp("undisturbed"))
    done = chat(folder, list(SAID), before=("noesium_stream.cli",))
    assert done.returncode == 0, done.stderr
    return folder.path


@pytest.mark.parametrize(("kind", "when"), one_of(2, KINDS))
async def test_a_chat_that_was_killed_goes_on_in_the_next_process(
    kind: str, when: str, undisturbed: Path, tmp_path: Path
) -> None:
    events, view = await read(Folder(undisturbed))
    assert told(view) == HISTORY
    number = nth_of(kind, events, last=kind in ("run.signalled", "effect.completed"))
    folder = folder_with_clerk(tmp_path)
    killed = chat(folder, list(SAID), before=("tests.support.striking", str(number), when))
    assert killed.returncode == -signal.SIGKILL, (killed.returncode, killed.stderr)
    events, view = await read(folder)
    lines = left(events, view, (folder.path / "orders.txt").exists())
    on = chat(folder, lines, "--resume", before=("noesium_stream.cli",))
    assert on.returncode == 0, (on.stdout, on.stderr)
    _, view = await read(folder)
    assert told(view) == HISTORY
    orders = (folder.path / "orders.txt").read_text().splitlines()
    assert orders == ["tea"], "the tool was called once"
