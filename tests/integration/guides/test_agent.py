"""The guide "agent", followed from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noesium_stream.cli.exits import INTERRUPTED
from tests.support.pages import LONG_S, ROOT, Reader, read_guide, same_tree

MODEL = ROOT / "tests" / "data" / "model"
"""A provider's package with a scripted model in it."""


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return read_guide("agent", tmp_path)


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(reader: Reader) -> None:
    a_graph_survives(reader)
    an_agent_calls_others(reader)
    an_agent_offers_a_capability(reader)
    a_handler_makes_events_of_events(reader)
    a_watchdog_tells_what_does_not_happen(reader)
    a_node_calls_a_model(reader)
    runs_that_last_for_months(reader)
    tools_and_failures(reader)
    from_programs(reader)
    a_project_of_ones_own(reader)
    reader.end()


def a_graph_survives(reader: Reader) -> None:
    paid = reader.path / "paid.txt"
    killed = reader.bash("triage killed")
    assert '"Refund 120.50?"' in killed.stdout
    assert "asks: Refund 120.50?" in killed.stderr
    assert not paid.exists()
    with reader.terminal("triage worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        approved = reader.bash("triage approved")
        assert "run.completed" in approved.stdout
        assert approved.stderr.startswith('approved "Refund 120.50?" of 17efc21f')
        assert same_tree(approved.stdout, reader.output("triage 1.0.0"))
        assert paid.read_text().count("120.50 ") == paid.read_text().count("\n") == 1

        verified = reader.bash("triage verified").stdout
        assert verified.startswith("17efc21f-ea98-8e1f-a971-041b45210d60  as recorded (completed), 2 steps")
        state = json.loads(verified.partition("\n")[2])
        assert state["broken"] is True
        assert "receipt" not in state

        tried = reader.bash("triage tried")
        assert tried.stdout.strip() == reader.output("step 2, node refund  stops").strip()
        assert len(paid.read_text().splitlines()) == 1
        forked = reader.bash("triage forked", code=1).stdout
        assert "run.completed" in forked
        assert "differs at amount" in forked
        assert [line.split()[0] for line in paid.read_text().splitlines()] == ["120.50", "20"]

        changed = reader.bash("triage changed", code=1)
        assert changed.stdout.strip() == reader.output("17efc21f").strip()
        worker.signal()
        assert worker.wait() == INTERRUPTED


def an_agent_calls_others(reader: Reader) -> None:
    with reader.terminal("clerk worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        twice = reader.bash("clerk program").stdout.splitlines()
        first, second = twice[: len(twice) // 2], twice[len(twice) // 2 :]
        assert first == second
        assert "reply.drafted" in first
        assert "effect.completed" in first
        posted = (reader.path / "outbox.txt").read_text()
        assert first[-1].startswith("{'question'")
        assert f"sent, {len(posted)} characters" in first[-1]
        worker.signal()
        assert worker.wait() == INTERRUPTED


def an_agent_offers_a_capability(reader: Reader) -> None:
    offered = reader.bash("prices").stdout.splitlines()
    assert offered[0] == "9"
    assert any('"price.find"' in line for line in offered[1:])


def a_handler_makes_events_of_events(reader: Reader) -> None:
    with reader.terminal("alarms worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        assert "alarms.slow_step" in reader.bash("alarms seen").stdout
        worker.signal()
        assert worker.wait() == INTERRUPTED


def a_watchdog_tells_what_does_not_happen(reader: Reader) -> None:
    with reader.terminal("watchdog worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        seen = reader.bash("watchdog seen").stdout
        assert "order-2" in seen
        assert "order-1" not in reader.shell("noesium tail --type reminders.").stdout
        worker.signal()
        assert worker.wait() == INTERRUPTED


def a_node_calls_a_model(reader: Reader) -> None:
    said = reader.bash("poet", PYTHONPATH=str(MODEL)).stdout
    assert "Two lines about rain. t=0.0 s=7" in said
    assert "as recorded (completed), 1 step" in said
    assert reader.bash("teller").stdout == "Once upon a time \n"


def tools_and_failures(reader: Reader) -> None:
    assert '"total": 12' in reader.bash("shop").stdout

    failed = reader.bash("booking", code=1)
    assert failed.stdout == ""
    assert "ValueError: the card is stolen" in failed.stderr
    assert (reader.path / "released.txt").read_text() == "reservation of 12A\n"

    failed = reader.bash("tour", code=1)
    assert "ValueError: the tour is sold out" in failed.stderr
    lines = (reader.path / "tour.txt").read_text().splitlines()
    assert lines == ["the bus", "refund of the bus", "bill of 10", "sorry: the tour is sold out"]


def runs_that_last_for_months(reader: Reader) -> None:
    said = reader.bash("segments").stdout.splitlines()
    assert said == ["   segment 2 begins with step 21", "   segment 3 begins with step 41"]


def from_programs(reader: Reader) -> None:
    first = reader.bash("executor").stdout
    assert "'receipt': 'paid 12.50'" in first
    assert reader.shell("python one_program.py").stdout == first
    assert (reader.path / "paid.txt").read_text().count("12.50 ") == 1
    assert reader.bash("checkpointer").stdout == "{'n': 2} 3\n"


def a_project_of_ones_own(reader: Reader) -> None:
    said = reader.bash("new project").stdout.splitlines()
    assert said[0] == "greeter"
    assert said[-1] == "I have not learned to answer this yet: Who are you?"
    assert "2 passed" in "\n".join(said)
