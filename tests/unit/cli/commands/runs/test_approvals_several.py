"""`noesium approve` and `reject` for several questions: listed, asked for, and each sent or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.cli import app
from noesium_stream.cli.commands.runs import approvals
from noesium_stream.client import Client
from noesium_stream.kernel import current_step
from noesium_stream.worker import Worker
from tests.support.effects import reached

Command = Callable[..., tuple[int, str, str]]
NUMBER = {"type": "number"}


class State(TypedDict, total=False):
    customer: str
    approvers: list[str]
    number: bool


async def ask(state: State) -> dict[str, Any]:
    step = current_step()
    schema = NUMBER if state.get("number") else None
    await step.interrupt(f"Pay {state['customer']}?", approvers=state.get("approvers"), schema=schema)
    return {}


ASKER = agent_from_graph(StateGraph(State).add_node("ask", ask).add_edge(START, "ask"), "asker")
INPUTS: tuple[State, ...] = (
    {"customer": "acme"},
    {"customer": "acme"},
    {"customer": "other"},
    {"customer": "acme", "approvers": ["bob"]},
    {"customer": "numbers", "number": True},
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


@pytest.fixture
def runs(url: str, tmp_path: Path) -> list[str]:
    """Runs of which each has asked, in the order of `INPUTS`; no worker is there any more."""

    async def begin() -> list[str]:
        async with Worker(url, [ASKER], home=tmp_path), Client(url) as client:
            begun = []
            for given in INPUTS:  # one after the other: questions are listed by the time of asking
                begun.append(await client.start("asker", dict(given)))
                await reached(begun[-1], "approval.requested")
            return [run.id for run in begun]

    return asyncio.run(begin())


@pytest.fixture
def command(url: str, runs: list[str], capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str) -> tuple[int, str, str]:
        code = app.run([*words, "--log", url])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def statuses(url: str) -> dict[str, tuple[str, bool | None]]:
    async def read() -> dict[str, tuple[str, bool | None]]:
        async with Client(url) as client:
            return {one.run_id: (one.status, one.approved) for one in await client.approvals()}

    return asyncio.run(read())


def test_all_that_fulfil_the_conditions_and_are_for_this_person_are_answered(
    command: Command, runs: list[str], url: str
) -> None:
    code, listed, said = command("approve", "--all", "--where", "customer=acme", "--yes", "--as", "ann")
    assert code == 0, said
    assert [line.split()[0] for line in listed.splitlines()[1:]] == runs[:2]
    assert said.splitlines() == [f'approved "Pay acme?" of {run_id}' for run_id in runs[:2]]
    assert statuses(url) == {
        **dict.fromkeys(runs[:2], ("sent", True)),
        **dict.fromkeys(runs[2:], ("open", None)),
    }
    code, _, said = command("approve", "--all", "--where", "customer=nobody", "--yes", "--as", "ann")
    assert (code, "is for ann to answer" in said) == (0, True)


def test_nothing_is_sent_before_a_person_has_said_yes(
    command: Command, runs: list[str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, said = command("approve", "--all", "--as", "ann")
    assert (code, "give --yes" in said) == (2, True)
    asked: list[str] = []

    def no(question: str) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(approvals, "_confirmed", no)
    code, listed, said = command("reject", "--all", "--agent", "asker", "--as", "ann")
    assert (code, said.strip()) == (1, "nothing was answered")
    assert asked == ["reject 4 questions as ann?"]
    assert runs[2] in listed
    assert set(statuses(url).values()) == {("open", None)}


def test_several_runs_are_answered_and_one_that_is_refused_keeps_no_other_from_it(
    command: Command, runs: list[str], url: str
) -> None:
    chosen = [runs[4], runs[2], runs[3], runs[0]]
    code, _, said = command("approve", *chosen, "--yes", "--as", "ann")
    assert code == 1
    assert said.count("error: ") == 2
    assert "none was given, and the question wants one" in said
    assert "ann may not answer" in said
    assert "2 of 4 questions could not be answered" in said
    found = statuses(url)
    assert [found[run_id] for run_id in chosen] == [
        ("open", None),
        ("sent", True),
        ("open", None),
        ("sent", True),
    ]


def test_two_ids_are_a_run_and_its_question_or_two_runs(command: Command, runs: list[str], url: str) -> None:
    code, _, said = command("reject", runs[0], runs[1], "--yes", "--as", "ann")
    assert (code, said.count("rejected")) == (0, 2)

    async def question_of(run_id: str) -> str:
        async with Client(url) as client:
            [question] = await (await client.get_run(run_id)).approvals()
            return question.approval_id

    code, _, said = command("approve", runs[2], asyncio.run(question_of(runs[2])), "--as", "ann")
    assert (code, said.strip()) == (0, f'approved "Pay other?" of {runs[2]}')
    code, _, said = command("approve", runs[3], "zzz", "--as", "bob")
    assert (code, "has asked no question zzz" in said) == (2, True)


def test_what_is_to_be_answered_has_to_be_said_in_one_way(command: Command, runs: list[str]) -> None:
    for wrong in (
        (),
        (runs[0], "--all"),
        (runs[0], "--where", "customer=acme"),
        (runs[0], "--agent", "asker"),
    ):
        code, _, said = command("approve", *wrong)
        assert code == 2
        assert "--all" in said


def test_the_list_of_questions_is_selected_by_the_same_conditions(command: Command, runs: list[str]) -> None:
    code, listed, _ = command("approvals", "--where", "customer=other")
    assert code == 0
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [runs[2]]
