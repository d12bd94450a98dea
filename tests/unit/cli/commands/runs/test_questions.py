"""Questions as people see them before they answer: cut in the table of many, else whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.cli import app
from noesium_stream.cli.commands.runs.questions import whole_lines, wrapped
from noesium_stream.client import Client
from noesium_stream.escapes import escaped
from noesium_stream.kernel import current_step
from noesium_stream.worker import Worker
from tests.support.effects import reached

Command = Callable[..., tuple[int, str, str]]

PLAN = (
    "Read each file, then say what is in it. " * 5 + "Then delete all of them, with the last backup.\x1b[2J"
)
SHELL = {
    "tool": "shell",
    "arguments": {
        "command": "ls -l;  " + "echo 'all is well'; " * 10 + "rm -rf /srv/last\x1b[8m",
        "limit": 9,
    },
    "reason": None,
}
END = "rm -rf /srv/last"


class State(TypedDict, total=False):
    asked: Any


async def ask(state: State) -> dict[str, Any]:
    await current_step().interrupt(state["asked"])
    return {}


ASKER = agent_from_graph(StateGraph(State).add_node("ask", ask).add_edge(START, "ask"), "asker")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


@pytest.fixture
def asked(url: str, tmp_path: Path) -> Callable[..., list[str]]:
    """Starts runs that have asked these questions; no worker is there any more."""

    async def begin(questions: tuple[Any, ...]) -> list[str]:
        async with Worker(url, [ASKER], home=tmp_path), Client(url) as client:
            begun = []
            for question in questions:
                begun.append(await client.start("asker", {"asked": question}))
                await reached(begun[-1], "approval.requested")
            return [run.id for run in begun]

    return lambda *questions: asyncio.run(begin(questions))


@pytest.fixture
def command(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str) -> tuple[int, str, str]:
        code = app.run([*words, "--log", url])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def below(shown: str) -> list[str]:
    """The lines that show questions whole, without what stands before each."""
    return [line.strip().removeprefix("│").removeprefix(" ") for line in shown.splitlines() if "│" in line]


def test_of_many_questions_those_that_are_cut_are_followed_by_the_command_that_shows_them(
    command: Command, asked: Callable[..., list[str]], url: str
) -> None:
    short, long = asked("Go on?", SHELL)
    code, listed, said = command("approvals")
    rows = listed.splitlines()[1:]
    assert (code, len(rows), rows[1].count("…")) == (0, 2, 1)
    assert END not in listed
    assert said.splitlines() == [
        f"Questions that are cut here are shown whole by: noesium approvals {long} --log {url}"
    ]
    _, _, said = command("approvals", short)
    assert said == ""
    asked(PLAN)
    assert "by: noesium approvals RUN" in command("approvals")[2]


def test_the_questions_of_one_run_are_shown_whole(command: Command, asked: Callable[..., list[str]]) -> None:
    _, long, plan = asked("Go on?", SHELL, PLAN)
    _, listed, said = command("approvals", long)
    assert said == ""
    assert max(map(len, listed.splitlines()[2:])) <= 100
    assert "\x1b" not in listed
    assert "".join(below(listed)).count("echo") == 10
    assert END in listed
    assert 'command": "ls -l;  echo' in listed  # its spaces are those of the call
    assert '"limit": 9' in listed
    _, listed, _ = command("approvals", plan)
    assert "the last backup.\\x1b[2J" in " ".join(below(listed))


def test_the_only_open_question_is_shown_whole(command: Command, asked: Callable[..., list[str]]) -> None:
    asked(SHELL)
    assert END in command("approvals")[1]


def test_several_are_shown_whole_before_a_person_says_yes(
    command: Command, asked: Callable[..., list[str]]
) -> None:
    asked(SHELL, PLAN)
    code, listed, said = command("approve", "--all", "--as", "ann")
    assert (code, "give --yes" in said) == (2, True)
    assert END in listed
    assert "with the last backup." in " ".join(below(listed))


def test_an_answer_repeats_a_question_that_its_line_cuts(
    command: Command, asked: Callable[..., list[str]]
) -> None:
    short, long = asked("Go on?", SHELL)
    assert command("approve", short, "--as", "ann")[2] == f'approved "Go on?" of {short}\n'
    code, _, said = command("reject", long, "--as", "ann")
    assert (code, END in said, "\x1b" in said) == (0, True, False)


def test_a_text_has_its_lines_and_an_object_a_line_for_each_field() -> None:
    assert whole_lines("Go\n  on?") == ["│ Go", "│   on?"]
    assert whole_lines({"tool": "send", "arguments": {"to": "ada\nbob"}, "labels": {}}) == [
        '│ "tool": "send"',
        '│ "arguments":',
        '│   "to": "ada\\nbob"',
        '│ "labels": {}',
    ]
    assert whole_lines([1, "a"]) == ['│ [1, "a"]']


@given(st.text(), st.integers(min_value=2, max_value=50))
def test_wrapping_loses_nothing(line: str, width: int) -> None:
    parts = wrapped(line, width)
    assert "".join(parts) == escaped(line)
    assert max(map(len, parts)) <= width


def test_a_line_is_broken_after_spaces() -> None:
    assert wrapped("rm -rf /srv/last now", 12) == ["rm -rf ", "/srv/last ", "now"]
