"""What commands say to a person who has to decide, or who asks for what is under way already."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import KernelExecutor
from noesium_stream.cli import app
from noesium_stream.cli.commands.runs import effect, runs
from noesium_stream.client import Client, RunInfo, UnresolvedEffect, Wait
from noesium_stream.client.operate.fork import fork
from tests.support.reading import PATIENCE_S
from tests.unit.client.operate.test_replay import target

DUE = datetime(2026, 3, 1, 12, tzinfo=UTC)
REASON = "the process that called it died before it could record what came of it " * 3


class State(TypedDict, total=False):
    n: int
    label: str


def node(state: State) -> dict[str, Any]:
    return {"n": 1}


def copy(state: State) -> dict[str, Any]:
    return {"n": len(state.get("label", ""))}


BUILDER = StateGraph(State).add_node(node).add_node(copy).add_edge(START, "node").add_edge("node", "copy")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands keep in their home is not shared with other tests, nor with the next run of them."""
    monkeypatch.setenv("NOESIUM_HOME", str(tmp_path / "home"))


def test_an_effect_s_reason_is_whole_and_its_arguments_are_shown() -> None:
    found = UnresolvedEffect(
        "r", "a", "e", "pay", "external", REASON, 0, "k", ["x" * 200, {"amount": 5}], None, "o"
    )
    first, second = effect._below(found)
    assert first == REASON.strip()
    assert second.startswith('called with ["xxx')
    assert len(second) < 140
    assert effect._below(replace(found, arguments=None)) == [REASON.strip()]


def test_the_reason_of_a_stranded_run_is_whole_and_an_error_is_not() -> None:
    stranded = RunInfo("r", "a", "stranded", "", 0, reason=REASON)
    assert runs._below(stranded) == REASON.strip()
    failed = RunInfo("r", "a", "failed", "", 0, error=REASON * 2)
    assert len(runs._below(failed)) == 160


def test_a_run_that_is_being_cancelled_is_not_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/log.db"

    async def begin() -> str:
        async with Client(url) as client:
            return (await client.start("sample", {})).id

    run_id = asyncio.run(begin())
    assert app.run(["signal", run_id, "go", "--log", url]) == 0
    assert "until the run asks for a signal of that name" in capsys.readouterr().err
    assert app.run(["cancel", run_id, "--log", url]) == 0
    assert f"asked {run_id} to end" in capsys.readouterr().err
    assert app.run(["cancel", run_id, "--log", url]) == 0
    assert f"{run_id} is being cancelled already: client asked for it at " in capsys.readouterr().err


def test_a_diff_says_what_was_set_in_the_fork(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/log.db"

    async def begin() -> tuple[str, str]:
        async with KernelExecutor(BUILDER, url, "sample", home=tmp_path) as executor:
            parent = await executor.start({"n": 0})
            await parent.result(timeout=PATIENCE_S)
            made = await fork(executor.client, parent, 1, {"label": "late"}, target(BUILDER))
            await made.result(timeout=PATIENCE_S)
            return parent.id, made.id

    parent, made = asyncio.run(begin())
    for pair in ((parent, made), (made, parent)):
        assert app.run(["diff", *pair, "--log", url]) == 1
        assert f"{made} branches off {parent} after step 1, where label was set" in capsys.readouterr().err


def test_the_runs_that_wait_are_listed_with_what_they_wait_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/log.db?partitions=1"

    async def begin() -> str:
        async with Client(url) as client:
            return (await client.start("sample", {"customer": "acme"})).id

    run_id = asyncio.run(begin())

    def told(*options: str) -> str:
        assert app.run(["runs", "--log", url, *options]) == 0
        return capsys.readouterr().out

    shown = told("--status", "waiting", "--since", "1h", "--where", "customer=acme").splitlines()
    assert shown[1].split()[:3] == [run_id, "sample", "waiting"]
    assert shown[2] == "  waits for a worker of sample: nobody has partition 0"
    [listed] = json.loads(told("--json"))
    [wait] = listed["waits_for"]
    assert (wait["kind"], wait["whom"], wait["what"]) == ("worker", "sample", "0")
    assert told("--where", "customer=other") == told("--status", "running") == ""
    assert app.run(["runs", "--log", url, "--where", "customer"]) == 2
    assert "'customer' is no condition" in capsys.readouterr().err


def test_of_many_reasons_the_first_are_shown() -> None:
    waits = tuple(Wait("timer", "", f"node {n}", until_ms=0) for n in range(5))
    run = RunInfo("r", "a", "waiting", "", 0, waits_for=waits)
    assert runs._below(run).count("a timer of") == 3
    assert runs._below(run).endswith("; 2 more")


FAILING = """
from typing import TypedDict
from langgraph.graph import START, StateGraph


class State(TypedDict, total=False):
    question: str


def boom(state: State):
    raise ValueError("told to fail")


graph = StateGraph(State).add_node("boom", boom).add_edge(START, "boom")
"""


def test_the_failure_of_the_run_that_is_shown_is_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "failing_graph.py").write_text(FAILING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert app.run(["run", "failing_graph:graph", "why?", "--log", f"sqlite:///{tmp_path}/log.db"]) == 1
    said = capsys.readouterr().err
    assert said.count("failed: ValueError: told to fail") == 1
    assert "error: Run " in said


def test_runs_are_listed_by_their_attributes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/log.db?partitions=1"

    async def begin() -> str:
        async with Client(url) as client:
            await client.start("sample", {}, attributes={"customer": 8})
            return (await client.start("sample", {}, attributes={"customer": 7, "due": DUE})).id

    run_id = asyncio.run(begin())
    where = ("--where", "customer = 7 and due < 2027-01-01", "--where", "status = open")
    assert app.run(["runs", "--log", url, "--json", *where]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["run_id"], listed["status"]) == (run_id, "waiting")
    assert listed["attributes"] == {"customer": 7, "due": "2026-03-01T12:00:00.000Z"}
    assert app.run(["runs", "--log", url, "--where", "customer = 7 or"]) == 2
    said = capsys.readouterr().err
    assert (
        "'customer = 7 or' is no condition: at character 16, the end stands where a name is expected." in said
    )


def test_attributes_of_a_new_run_are_checked_before_anything_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given, said in (
        ("customer", "'customer' is no attribute."),
        ("no name=1", "'no name' cannot name an attribute."),
        ("status=open", "No attribute can be called status"),
    ):
        options = ("--log", f"sqlite:///{tmp_path}/log.db", "--attribute", given)
        assert app.run(["run", "agents.researcher", "why?", *options]) == 2
        assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
