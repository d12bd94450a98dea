"""`noesium approvals`, `approve` and `reject` between real processes on one SQLite log."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noesium_stream.client.sync import SyncClient
from tests.support.command import Folder, Running
from tests.support.reading import PATIENCE_S

ASKER = '''
from datetime import timedelta
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.kernel import current_step


class Amount(BaseModel):
    euros: int


class State(TypedDict, total=False):
    question: str
    answer: str
    citations: list[str]
    sources: list[str]


class Cashier(BaseGraphicAgent):
    """Asks before it pays."""

    agent_type = "cashier"

    def get_state_class(self):
        return State

    def _build_graph(self):
        graph = StateGraph(State)
        graph.add_node("ask", self.ask)
        graph.add_edge(START, "ask")
        graph.add_edge("ask", END)
        return graph

    async def ask(self, state: State):
        step = current_step()
        if state["question"] == "plain":
            verdict = await step.interrupt("Go on?")
        elif state["question"] == "past":
            verdict = await step.interrupt("Too late?", timeout=timedelta(0), on_timeout="reject")
            await step.signal("never")
        elif state["question"] == "two":
            verdict = await step.interrupt("First?")
            verdict = await step.interrupt("Second?")
        else:
            verdict = await step.interrupt(
                "Pay how much?", schema=Amount, approvers=["ann", "carl"], timeout=timedelta(days=3)
            )
        return {"answer": f"{verdict.decision} by {verdict.answered_by}: {verdict.value!r}"}


AGENT = Cashier
'''


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text('"""Toys."""\n')
    (tmp_path / "agents" / "cashier.py").write_text(ASKER)
    return Folder(tmp_path)


@pytest.fixture
def worker(folder: Folder) -> Iterator[Running]:
    with folder.running("worker", "agents.cashier") as process:
        process.wait_for_error_line("at work")
        yield process


def ask(folder: Folder, question: str) -> str:
    """Start a run from this process; return its id when it has asked."""
    with SyncClient(f"sqlite:///{folder.path}/.noesium/log.db") as client:
        run = client.start("cashier", {"question": question})
        for event in run.events():
            if event.event_type in ("approval.requested", "run.failed"):
                assert event.event_type == "approval.requested", event.payload
                break
        return run.id


def result(folder: Folder, run_id: str) -> str:
    with SyncClient(f"sqlite:///{folder.path}/.noesium/log.db") as client:
        answer: str = client.get_run(run_id).result(timeout=PATIENCE_S)["answer"]
        return answer


def questions(folder: Folder, run_id: str) -> list[dict[str, object]]:
    with SyncClient(f"sqlite:///{folder.path}/.noesium/log.db") as client:
        found = client.get_run(run_id).approvals()
    return [{"approval_id": q.approval_id, "status": q.status} for q in found]


def refused(folder: Folder, *args: str) -> tuple[str, str]:
    """The error and the hint of a command that writes nothing and ends with 2."""
    done = folder.run(*args)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    error, *hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    return error, "\n".join(hint)


def test_a_question_is_listed_and_answered_from_another_process(folder: Folder, worker: Running) -> None:
    assert "No run on" in folder.run("approvals").stderr
    run_id = ask(folder, "pay")
    [line] = folder.ok("approvals").splitlines()[1:]
    assert line.split()[0] == run_id
    for part in ("cashier", "ask", '"Pay how much?"', "ann, carl"):
        assert part in line
    [listed] = folder.json("approvals", "--json")
    assert (listed["run_id"], listed["approvers"], listed["status"]) == (run_id, ["ann", "carl"], "open")
    assert listed["deadline_ms"] - listed["asked_ms"] == pytest.approx(3 * 86_400_000, abs=60_000)

    assert "--value" in folder.ok("approve", "--help")
    assert "bob may not answer" in refused(folder, "approve", run_id, "--as", "bob", "--value", "{}")[0]
    error, hint = refused(folder, "approve", run_id, "--as", "ann", "--value", '{"euros": "many"}')
    assert "value.euros" in error
    assert '"euros"' in hint
    assert "none was given" in refused(folder, "approve", run_id, "--as", "ann")[0]

    done = folder.run("approve", run_id[:13], "--as", "ann", "--value", '{"euros": 7}')
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f'approved "Pay how much?" of {run_id}\n'
    assert result(folder, run_id) == "approve by ann: Amount(euros=7)"
    assert "has ended already: completed" in refused(folder, "approve", run_id)[0]


def test_reject_answers_no_in_the_name_of_the_user(folder: Folder, worker: Running) -> None:
    run_id = ask(folder, "plain")
    assert folder.run("reject", run_id).returncode == 0
    assert result(folder, run_id) == f"reject by {getpass.getuser()}: False"


def test_what_cannot_be_answered_is_one_line_of_error(folder: Folder, worker: Running) -> None:
    assert "There is no run nothing" in refused(folder, "approve", "nothing")[0]
    assert "RUN is empty" in refused(folder, "approve", "")[0]
    late = ask(folder, "past")
    with SyncClient(f"sqlite:///{folder.path}/.noesium/log.db") as client:
        for event in client.get_run(late).events():
            if event.event_type == "approval.expired":
                break
    assert 'The deadline of the question "Too late?" passed at 20' in refused(folder, "approve", late)[0]
    two = ask(folder, "two")
    folder.ok("approve", two, "--as", "ann")
    with SyncClient(f"sqlite:///{folder.path}/.noesium/log.db") as client:
        asked = 0
        for event in client.get_run(two).events():
            asked += event.event_type == "approval.requested"
            if asked == 2:
                break
    first = next(q for q in questions(folder, two) if q["status"] == "answered")
    assert (
        'The question "First?" was approved by ann at 20'
        in refused(folder, "reject", two, first["approval_id"], "--as", "bob")[0]
    )
    assert "has asked no question zzz" in refused(folder, "approve", two, "zzz")[0]


def test_an_answer_given_while_nobody_runs_is_taken_by_the_next_worker(folder: Folder) -> None:
    with folder.running("worker", "agents.cashier") as first:
        first.wait_for_error_line("at work")
        run_id = ask(folder, "plain")
        first.signal(9)
        first.wait()
    for wrong in (("--value", "{bad"), ("--value", "yes"), ("--value", "1", "--text", "1")):
        done = folder.run("approve", run_id, "--as", "ann", *wrong)
        assert done.returncode == 2, done.stderr
    assert "--value is no JSON" in folder.run("approve", run_id, "--value", "{bad").stderr
    folder.ok("approve", run_id, "--as", "ann", "--text", "{bad")
    error, hint = refused(folder, "reject", run_id, "--as", "bob")
    assert 'The question "Go on?" was approved by ann at 20' in error
    assert "No worker has taken the answer up yet" in hint
    listing = folder.ok("approvals")
    assert "approved by ann; no worker has taken that up yet" in listing
    with folder.running("worker", "agents.cashier") as second:
        second.wait_for_error_line("at work")
        assert result(folder, run_id) == "approve by ann: '{bad'"
    assert folder.ok("events", run_id, "--json").count('"approval.requested"') == 1


TELLING = """
import json, sys
with open("told.jsonl", "a") as file:
    file.write(json.dumps(json.load(sys.stdin)["question"]) + "\\n")
"""


def test_a_worker_runs_a_command_for_each_question(folder: Folder) -> None:
    (folder.path / "tell.py").write_text(TELLING)
    told = folder.path / "told.jsonl"
    command = f"{sys.executable} tell.py"
    with folder.running("worker", "agents.cashier", "--on-approval", command) as process:
        process.wait_for_error_line("at work")
        run_id = ask(folder, "plain")
        process.wait_for(lambda _: told.exists() and told.read_text().endswith("\n"))
        folder.ok("approve", run_id, "--as", "ann")
        result(folder, run_id)
    assert told.read_text() == '"Go on?"\n'
    done = folder.run("worker", "agents.cashier", "--on-approval", "no-such-program")
    assert done.returncode == 2
    assert "error: The command for questions is not there: no-such-program." in done.stderr
