"""What a person sees of a graph or an answer that no run can take: two lines, an exit code, no traceback."""

from __future__ import annotations

import json
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client.sync import SyncClient
from tests.support.command import Folder

SHOP = '''
"""Graphs of a person's own, with what goes wrong in them."""

import threading
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from noesium_stream.kernel import current_step


class State(TypedDict, total=False):
    what: str
    value: Any


async def act(state):
    what = state["what"]
    if what == "lock":
        return {"value": {"open": [threading.Lock()]}}
    if what == "mistyped":
        return {"valeu": 1}
    if what == "large":
        return {"value": {"scan": "y" * 100_000_000}}
    if what == "ask":
        return {"value": (await current_step().interrupt("Go on?")).value}
    return {"value": "done"}


def graph_of(state):
    built = StateGraph(state)
    built.add_node("act", act)
    built.add_edge(START, "act")
    return built


class Keep:
    def __call__(self, old, new):
        return new


class Kept(TypedDict, total=False):
    what: str
    value: Annotated[Any, Keep()]


class Order(BaseModel):
    what: str
    number: int = 1
    value: Any = None


async def fill(order):
    return {"value": order.number}


ordering = StateGraph(Order)
ordering.add_node("fill", fill)
ordering.add_edge(START, "fill")
shop = graph_of(State)
kept = graph_of(Kept)
endless = graph_of(State)
endless.add_conditional_edges("act", lambda state: "act", ["act"])
'''


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "shop.py").write_text(SHOP)
    return Folder(tmp_path)


def asked(what: str) -> tuple[str, str]:
    return "--input", json.dumps({"what": what})


def refused(folder: Folder, code: int, message: str, hint: str, *args: str) -> None:
    """The command ends with this code and with these two lines, and all else is as it was."""
    done = folder.run(*args)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    *_, error, advice = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert advice == f"  {hint}"


def unharmed(folder: Folder) -> None:
    """Another run goes on normally, and no journal record is missing from its run's numbers."""
    result: dict[str, Any] = folder.json("run", "shop:shop", *asked("ok"), "--json")
    assert result["answer"] == {"what": "ok", "value": "done"}
    with SyncClient(f"sqlite:///{folder.path}/.noesium/log.db") as client:
        for run in client.list_runs():
            kinds = [event.event_type for event in client.get_run(run.run_id).events(follow=False)]
            assert kinds[0] == "run.requested"
            assert kinds[-1] in ("run.completed", "run.failed")
    with sqlite3.connect(folder.path / ".noesium" / "log.db") as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize(
    ("what", "message", "hint"),
    [
        (
            "lock",
            "StateError: The node act: delta.value.open[0] is of type lock, which cannot be recorded.",
            "State is recorded as JSON: use JSON types, dates, sets, tuples, dataclasses, enums or pydantic "
            "models; keep files, connections and arrays elsewhere, with a reference in the state.",
        ),
        (
            "mistyped",
            "StateError: The node act returned valeu, which the graph's state does not have.",
            "Did you mean value?",
        ),
        (
            "large",
            "RecordTooLargeError: The node act: delta.value.scan has 100,000,002 bytes as JSON, and a step "
            "records at most 1,000,000.",
            "Store it elsewhere (a file, an object store) and keep its address and its hash in the state.",
        ),
    ],
)
def test_a_state_that_no_log_takes_fails_its_run_and_again_when_it_is_resumed(
    folder: Folder, what: str, message: str, hint: str
) -> None:
    refused(folder, 1, message, hint, "run", "shop:shop", *asked(what))
    [run] = folder.json("runs", "--json")
    refused(folder, 1, message, hint, "run", "shop:shop", "--resume", run["run_id"])
    assert message.partition(": ")[2] in folder.ok("show", run["run_id"])
    unharmed(folder)


def test_a_loop_without_an_end_is_ended_by_its_limit(folder: Folder) -> None:
    refused(
        folder,
        1,
        "NodeExecutionError: The graph had not ended after 1,000 supersteps, its limit.",
        "Bound the loop, or raise the agent's max_supersteps.",
        *("run", "shop:endless", *asked("ok")),
    )
    unharmed(folder)


@pytest.mark.parametrize("command", [("run", "shop:kept", *asked("ok")), ("worker", "shop:kept")])
def test_a_graph_that_cannot_be_told_from_another_is_not_run(
    folder: Folder, command: tuple[str, ...]
) -> None:
    refused(
        folder,
        2,
        "The reducer of value (Keep) cannot be told from another one.",
        "Give a function with a name, so that a run knows the graph that it began with.",
        *command,
    )
    unharmed(folder)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            '{"what": "x", "number": "many"}',
            "The input is no Order: number: Input should be a valid integer, unable to parse string as an "
            "integer.",
        ),
        ('{"number": 2}', "The input is no Order: what: Field required."),
    ],
)
def test_an_input_that_the_state_refuses_begins_no_run(folder: Folder, given: str, message: str) -> None:
    fields = "The state's fields: what, number, value."
    refused(folder, 2, message, fields, "run", "shop:ordering", "--input", given)
    assert not (folder.path / ".noesium" / "log.db").exists()
    good = ("run", "shop:ordering", "--input", '{"what": "x", "number": 2}', "--json")
    assert folder.json(*good)["answer"]["value"] == 2


def test_what_is_to_be_typed_next_names_the_log_that_was_given(folder: Folder) -> None:
    log = f"sqlite:///{folder.path}/a log.db"
    with folder.running("run", "shop:shop", *asked("ask"), "--log", log) as running:
        running.wait_for_error_line("    noesium approve")
        [approve] = [line for line in running.err if line.startswith("    noesium approve")]
        running.signal()
        assert running.wait() == 130
        [resume] = [line for line in running.err if "Go on with: " in line]
    folder.ok(*shlex.split(approve)[1:])
    assert folder.ok(*shlex.split(resume.partition("Go on with: ")[2])[1:])
    again = folder.run(*shlex.split(approve)[1:])
    assert again.returncode == 2
    show = again.stderr.partition("See: noesium ")[2]
    assert shlex.split(show)[-2:] == ["--log", log]
    assert "completed" in folder.ok(*shlex.split(show))


def test_a_run_that_has_ended_gives_its_result_again_and_takes_no_more(folder: Folder) -> None:
    first = folder.json("run", "shop:shop", *asked("ok"), "--json")
    assert folder.json("run", "shop:shop", "--resume", first["run_id"], "--json") == first
    ended = f"Run {first['run_id']} has ended already: completed."
    see = f"See: noesium show {first['run_id']}"
    refused(folder, 2, ended, see, "approve", first["run_id"])
    refused(folder, 2, ended, see, "signal", first["run_id"], "go")
    refused(folder, 2, ended, see, "cancel", first["run_id"])
    assert folder.json("run", "shop:shop", "--resume", first["run_id"], "--json") == first
    unharmed(folder)


def test_an_answer_to_a_question_that_is_closed_is_refused(folder: Folder) -> None:
    with folder.running("run", "shop:shop", *asked("ask")) as running:
        running.wait_for_error_line("act")
        run_id = running.err[0].split()[1]
        with SyncClient(f"sqlite:///{folder.path}/.noesium/log.db") as client:
            for event in client.get_run(run_id).events():
                if event.event_type == "approval.requested":
                    break
        running.signal()
        assert running.wait() == 130
    folder.ok("approve", run_id, "--value", "1", "--as", "ann")
    done = folder.run("approve", run_id, "--value", "2", "--as", "bob")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert "ann" in done.stderr
    assert folder.json("run", "shop:shop", "--resume", run_id, "--json")["answer"]["value"] == 1
    unharmed(folder)


def test_an_input_that_is_empty_is_no_input_and_begins_no_run(folder: Folder) -> None:
    command = ("run", "shop:ordering", "--input", "")
    refused(folder, 2, "--input is not JSON", "See: noesium run --help", *command)
    assert not (folder.path / ".noesium" / "log.db").exists()
