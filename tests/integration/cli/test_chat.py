"""`noesium chat` on a terminal and in pipes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from noesium_stream.cli.exits import INTERRUPTED
from tests.support.chatting import folder_with_clerk
from tests.support.command import Folder
from tests.support.reading import PATIENCE_S
from tests.support.terminal import Terminal


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return folder_with_clerk(tmp_path)


def said(folder: Folder, *lines: str, more: tuple[str, ...] = (), code: int = 0) -> tuple[str, str]:
    """What a chat prints on standard output and on standard error, given lines by a pipe."""
    done = subprocess.run(
        [*folder.command, "chat", "clerk", "--as", "ada", *more],
        cwd=folder.path,
        env=folder.env,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def on_terminal(folder: Folder, *more: str) -> Terminal:
    return Terminal([*folder.command, "chat", "clerk", "--as", "ada", *more], folder.path, folder.env)


def test_nothing_that_a_model_says_is_obeyed_by_the_terminal(folder: Folder) -> None:
    with on_terminal(folder) as terminal:
        terminal.wait_for("> ")
        terminal.type("odd")
        terminal.wait_for("end whole")
        terminal.type("/why owned")
        terminal.wait_for("from nothing but the message")
        terminal.type("/quit")
        assert terminal.end() == 0
        assert "\\x1b[2J\\x1b]0;owned\\x07red \\x1b[31m \\u202e \\x9b1m end" in terminal.text
        for raw in (b"\x1b", b"\x07", b"\xe2\x80\xae", b"\xc2\x9b", b"\x9b"):
            assert raw not in terminal.shown


def test_a_tool_is_called_when_the_person_agrees_and_not_when_they_refuse(folder: Folder) -> None:
    with on_terminal(folder) as terminal:
        terminal.wait_for("> ")
        terminal.type("order tea")
        terminal.wait_for('? order(item="tea")')
        assert not (folder.path / "orders.txt").exists()
        terminal.type("what")
        terminal.wait_for("Answer y or n")
        terminal.type("y")
        terminal.wait_for("ordered tea")
        terminal.type("order oil")
        terminal.wait_for('? order(item="oil")')
        terminal.type("n")
        terminal.wait_for("I could not answer: ada has refused the call of order.")
        terminal.type("/quit")
        assert terminal.end() == 0
    assert (folder.path / "orders.txt").read_text() == "tea\n"


def test_pieces_of_an_answer_are_shown_before_it_is_whole_and_once(folder: Folder) -> None:
    with on_terminal(folder) as terminal:
        terminal.wait_for("> ")
        terminal.type("slow")
        terminal.wait_for("first ")
        [run] = json.loads(folder.ok("runs", "--json"))
        folder.ok("signal", run["run_id"], "go")
        terminal.wait_for("third")
        terminal.type("who")
        text = terminal.wait_for("You are None.")
        assert "first second third\n" in text
        assert text.count("first") == 1


def test_ctrl_c_leaves_the_conversation_on_the_log_and_says_how_to_go_on(folder: Folder) -> None:
    with on_terminal(folder) as terminal:
        terminal.wait_for("> ")
        terminal.type("call Ada")
        terminal.wait_for("\nAda\n")
        terminal.interrupt()
        assert terminal.end() == INTERRUPTED
        assert "Go on with: noesium chat clerk --resume" in terminal.text
    out, err = said(folder, "who", more=("--resume",))
    assert out == "You are Ada.\n"
    assert "1> call Ada\n   Ada\n" in err


def test_lines_of_a_pipe_wait_for_each_other_and_answers_alone_are_the_output(folder: Folder) -> None:
    out, err = said(
        folder, "call Ada", "order tea", "y", "", "call Bob", "/undo", "who", "/nonsense", "/help"
    )
    assert out.splitlines()[:4] == ["Ada", "ordered tea", "Bob", "You are Ada."]
    assert "Taken back, with all that was remembered because of it: call Bob" in err
    assert "There is no /nonsense." in err
    assert "/why ID|KEY|WORDS" in out
    listed = json.loads(folder.ok("chat", "clerk", "--list", "--json", "--as", "ada"))
    assert [one["about"] for one in listed] == ["ada"]
    assert folder.ok("chat", "clerk", "--list", "--as", "bob") == ""


def test_what_is_known_is_listed_explained_and_forgotten(folder: Folder) -> None:
    out, err = said(
        folder,
        "call Ada",
        "/memory",
        "/memory ada",
        "/why name",
        "/why nothing",
        "/forget name",
        "who",
        "/memory",
    )
    lines = out.splitlines()
    assert lines[1].startswith("name = Ada  (ada, ")
    assert lines[2] == lines[1]
    assert lines[3].startswith("name = Ada  said by ada, ")
    assert lines[4] == "  in turn 1 of this conversation: call Ada"
    assert lines[5].startswith("  event:")
    assert lines[6] == "You are None."
    assert "Nothing that is remembered, and no answer of this conversation, has these words." in err
    assert "name is forgotten." in err
    assert "Nothing is remembered." in err


def test_a_conversation_that_was_closed_is_not_gone_on_with(folder: Folder) -> None:
    _, err = said(folder, "call Ada", "/close")
    assert "The conversation has ended." in err
    _, err = said(folder, more=("--resume",), code=2)
    assert "ada has no open conversation with clerk." in err


@pytest.mark.parametrize("wanted", ["zzzz", "018f0000-0000-7000-8000-000000000001"])
def test_a_conversation_that_is_not_there_is_said_to_be_none(folder: Folder, wanted: str) -> None:
    said(folder, "call Ada")
    _, err = said(folder, more=("--resume", wanted), code=2)
    assert err.splitlines() == [
        f"error: There is no conversation {wanted}.",
        f"  Yours are listed by: noesium chat{' clerk' if wanted[0] == '0' else ''} --list",
    ]


def test_the_word_after_resume_is_an_agent_or_a_conversation(folder: Folder) -> None:
    done = folder.run("chat", "--as", "ada", "--resume", "zzzz")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: There is no conversation zzzz.")
    said(folder, "call Ada")
    done = folder.run("chat", "--as", "ada", "--resume", "clerk")
    assert (done.returncode, "Go on with: noesium chat clerk --resume" in done.stderr) == (0, True)
    done = folder.run("chat", "--as", "ada", "--resume", "agents.nobody")
    assert (done.returncode, "There is no agent module 'agents.nobody'" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("chat", "agents.librarian"), "agents.librarian is no agent to talk to"),
        (("chat", "clerk", "--resume", "--title", "x"), "A conversation keeps its title, limits and subject"),
        (("chat", "clerk", "--json"), "--json is for --list"),
        (("chat", "clerk", "--resume"), "There is no log at"),
        (("run", "clerk", "Hello"), "takes no single question"),
    ],
)
def test_a_mistake_gets_one_line(folder: Folder, arguments: tuple[str, ...], message: str) -> None:
    done = folder.run(*arguments)
    assert done.returncode in (2, 3)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
