"""What a conversation's terminal shows of questions to the person."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.cli.commands.chat.talk import Talk


@pytest.fixture
def talk() -> Talk:
    nothing: Any = None
    return Talk(nothing, nothing, "ada", lambda event: None)


def test_a_question_is_one_line_with_how_it_is_answered(
    talk: Talk, capsys: pytest.CaptureFixture[str]
) -> None:
    talk._ask("780e5dae", {"tool": "order", "arguments": {"item": "tea"}})
    assert capsys.readouterr().err == '  ? order(item="tea")  [y]es, [n]o, always\n'


def test_a_question_that_its_line_cuts_stands_whole_above_it(
    talk: Talk, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "echo 'all is well'; " * 50 + "rm -rf /srv/last"
    talk._ask("780e5dae", {"tool": "shell", "arguments": {"command": command}})
    *whole, line = capsys.readouterr().err.splitlines()
    assert line.endswith("…)  [y]es, [n]o, always")
    assert whole == ['  │ "tool": "shell"', '  │ "arguments":', f'  │   "command": "{command}"']
