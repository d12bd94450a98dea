"""`noesium run` with an agent that answers in pieces, in pipes and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.support.command import TIMEOUT_S, Folder

TELLER = ("run", "agents.teller:graph", "--input")
WORDS = json.dumps({"words": ["It ", "rains.", {"n": 1}, "\x1b[2J"]})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder.with_toys(tmp_path)


def test_with_stream_the_pieces_are_the_output(folder: Folder) -> None:
    assert folder.ok(*TELLER, WORDS, "--stream") == 'It rains.\n{"n": 1}\n\\x1b[2J\n'


def test_in_pipes_the_output_is_the_answer_and_progress_has_no_pieces(folder: Folder) -> None:
    done = folder.run(*TELLER, WORDS)
    assert json.loads(done.stdout)["told"] == 4
    assert "rains" not in done.stderr


def test_an_agent_that_writes_no_pieces_has_its_answer_printed(folder: Folder) -> None:
    assert json.loads(folder.ok(*TELLER, '{"words": []}', "--stream"))["told"] == 0


def test_a_run_that_has_ended_shows_its_pieces_again(folder: Folder) -> None:
    done = folder.run(*TELLER, WORDS, "--stream")
    run_id = done.stderr.splitlines()[0].removeprefix("run ")
    again = folder.ok("run", "agents.teller:graph", "--resume", run_id, "--stream")
    assert again == done.stdout


def test_text_and_one_object_exclude_each_other(folder: Folder) -> None:
    done = folder.run(*TELLER, WORDS, "--stream", "--json")
    assert done.returncode == 2
    assert "--stream prints text, and --json one object" in done.stderr
    assert not (folder.path / ".noesium").exists()


def test_on_a_terminal_pieces_are_progress_and_obeyed_by_nobody(folder: Folder) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*folder.command, *TELLER, WORDS],
        cwd=folder.path,
        env=folder.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    while chunk := _read(ours):
        said += chunk
    os.close(ours)
    answer, _ = process.communicate(timeout=TIMEOUT_S)
    assert json.loads(answer)["told"] == 4
    assert b'    It rains.\r\n    {"n": 1}\r\n    \\x1b[2J\r\n' in said


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # nobody writes to it any more
        return b""
