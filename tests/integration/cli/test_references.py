"""Agents given by files, inputs from elsewhere, and Ctrl-C while an agent is imported."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command import COMMAND, TIMEOUT_S, Folder

TRIAGE = """
from typing import TypedDict

from langgraph.graph import START, StateGraph


class Ticket(TypedDict, total=False):
    text: str
    size: int


def measure(ticket: Ticket) -> Ticket:
    return {"size": len(ticket["text"])}


graph = StateGraph(Ticket).add_node(measure)
"""
COMPLETE = TRIAGE + 'graph = graph.add_edge(START, "measure").compile()\n'


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "triage.py").write_text(COMPLETE)
    return Folder(tmp_path, NOESIUM_HOME=str(tmp_path / "home"))


@pytest.mark.parametrize("reference", ["triage", "./triage", "triage.py", "{path}/triage.py:graph"])
def test_a_graph_runs_however_its_module_is_given(folder: Folder, reference: str) -> None:
    given = reference.format(path=folder.path)
    found = folder.json("run", given, "--input", '{"text": "four"}', "--json")
    assert (found["answer"]["size"], folder.json("runs", "--json")[0]["agent_type"]) == (4, "triage")


@pytest.mark.parametrize("command", ["run", "worker"])
def test_a_graph_that_does_not_compile_is_bad_input(folder: Folder, command: str) -> None:
    (folder.path / "broken.py").write_text(TRIAGE)
    ended = folder.run(command, "broken:graph", *(["--input", "{}"] if command == "run" else []))
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: The graph broken:graph does not compile: ")
    assert "Traceback" not in ended.stderr
    assert not (folder.path / "home").exists()


def test_an_input_comes_from_standard_input(folder: Folder) -> None:
    done = subprocess.run(
        [*COMMAND, "run", "triage", "--input", "-", "--json"],
        cwd=folder.path,
        env=folder.env,
        input=json.dumps({"text": "größe"}).encode(),
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, json.loads(done.stdout)["answer"]["size"]) == (0, 5)


@pytest.mark.parametrize("command", ["run", "worker"])
def test_ctrl_c_while_an_agent_is_imported_is_quiet(folder: Folder, command: str) -> None:
    (folder.path / "slow.py").write_text(
        "import sys, threading\nprint('here', file=sys.stderr)\nthreading.Event().wait()\n"
    )
    with folder.running(command, "slow") as running:
        running.wait_for_error_line("here")
        running.signal(signal.SIGINT)
        assert running.wait() == 130
        assert running.err == ["here", "", "interrupted"]
