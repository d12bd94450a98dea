"""The pytest plugin: histories beside their cases are tests; and what a change of code does to them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import agents.researcher.agent as researcher
from noesium_stream.errors import CheckpointError, ConfigError
from noesium_stream.kernel.recording.recorded_run import canonical_history
from noesium_stream.testing import Rehearsal
from noesium_stream.testing.golden import read_case, read_history, record_case, replay_history

HERE = Path(__file__).parent
GRAPH = """
from langgraph.graph import START, StateGraph
from noesium_stream.kernel import current_step

async def double(n): return n * 2

async def work(state):
    return {"n": await current_step().effect("double", double, state["n"])}

graph = StateGraph(dict)
graph.add_node("work", work)
graph.add_edge(START, "work")
"""


def run_pytest(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    # In a process and a project of its own: the plugin comes by its entry point alone.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(GRAPH)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "histories").mkdir()
    case = {"graph": "work:graph", "input": {"n": 4}}
    (tmp_path / "histories" / "once.case.json").write_text(json.dumps(case))
    return tmp_path


def test_a_case_is_recorded_replayed_and_fails_with_the_difference(project: Path) -> None:
    missing = run_pytest(project)
    assert missing.returncode == 1
    assert (
        "once.case.json has no once.history.jsonl: record it with pytest --noesium-record" in missing.stdout
    )
    recorded = run_pytest(project, "--noesium-record")
    assert recorded.returncode == 0, recorded.stdout
    history = project / "histories" / "once.history.jsonl"
    first = history.read_bytes()
    replayed = run_pytest(project)
    assert "1 passed" in replayed.stdout
    (project / "work.py").write_text(GRAPH.replace('state["n"])}', 'state["n"] + 1)}'))
    changed = run_pytest(project)
    assert changed.returncode == 1
    assert "step 1, node work: the first call differs" in changed.stdout
    assert "  recorded  double(4)\n  now       double(5)\n" in changed.stdout
    assert "Traceback" not in changed.stdout
    assert history.read_bytes() == first
    assert run_pytest(project, "--noesium-record").returncode == 0
    assert history.read_bytes() != first
    assert run_pytest(project).returncode == 0


async def test_the_same_code_records_the_same_case_the_same_way() -> None:
    recorded = read_history(HERE / "shop.history.jsonl")
    again = await record_case(read_case(HERE / "shop.case.json"))
    assert canonical_history(again) == canonical_history(recorded)


def crash_points() -> list[tuple[str, int]]:
    """After every record of the run but the first, which a client writes, and the last."""
    seen: Counter[str] = Counter()
    points = []
    for item in read_history(HERE / "shop.history.jsonl").events[1:-2]:
        seen[item.event.event_type] += 1
        points.append((item.event.event_type, seen[item.event.event_type]))
    return points


def killed_after(event_type: str, nth: int, killed: list[Rehearsal]) -> Callable[[Rehearsal], None]:
    def arm(rehearsal: Rehearsal) -> None:
        rehearsal.crash_after(event_type, nth)
        killed.append(rehearsal)

    return arm


async def test_a_run_that_was_killed_anywhere_did_the_same_and_verifies() -> None:
    case = read_case(HERE / "shop.case.json")
    undisturbed = canonical_history(read_history(HERE / "shop.history.jsonl"))
    points = crash_points()
    assert len(points) > 45
    killed: list[Rehearsal] = []
    for event_type, nth in points:
        run = await record_case(case, killed_after(event_type, nth, killed))
        assert killed[-1].crashes == 1, (event_type, nth)
        assert canonical_history(run) == undisturbed, (event_type, nth)
        verdict = await replay_history(run)
        assert verdict.is_same, (event_type, nth, verdict.difference)


async def test_the_gate_says_which_call_of_the_researcher_a_change_makes_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = read_history(HERE / "researcher.history.jsonl")
    assert (await replay_history(history)).is_same
    monkeypatch.setattr(researcher, "PASSAGES_PER_QUERY", 20)
    difference = (await replay_history(history)).difference
    assert difference is not None
    assert (difference.step, difference.node, difference.what) == (2, "gather", "the first call differs")
    assert difference.recorded.startswith('corpus.search {"query": "')
    assert '"limit": 12' in difference.recorded
    assert '"limit": 20' in difference.now


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is no recorded history"),
        ("[1]", "is no recorded history"),
        ('{"format": "noesium-history/9"}', "is of the format noesium-history/9"),
        ('{"format": "noesium-history/1"}', "does not hold the run from its beginning"),
    ],
)
def test_a_file_that_is_no_history_is_refused(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "x.history.jsonl"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=error):
        read_history(path)


@pytest.mark.parametrize(
    ("text", "error"),
    [("{", "is no JSON"), ("{}", "does not say what runs"), ('{"graph": "x", "imput": {}}', "has 'imput'")],
)
def test_a_case_that_cannot_be_read_is_refused(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "x.case.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=error):
        read_case(path)


def test_the_plugin_costs_a_project_without_histories_nothing_but_itself() -> None:
    code = (
        "import sys, noesium_stream.testing.pytest_plugin;"
        "print(sorted({'langgraph', 'pydantic', 'confluent_kafka'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_case_whose_input_the_state_does_not_have_records_nothing(project: Path) -> None:
    head = "from typing import TypedDict\nclass State(TypedDict):\n    n: int\n"
    (project / "work.py").write_text(head + GRAPH.replace("StateGraph(dict)", "StateGraph(State)"))
    case = {"graph": "work:graph", "input": {"n": 4, "nn": 5}}
    (project / "histories" / "once.case.json").write_text(json.dumps(case))
    refused = run_pytest(project, "--noesium-record")
    assert refused.returncode == 1
    assert "The input has 'nn', which the state State does not have." in refused.stdout
    assert "Traceback" not in refused.stdout
    assert len(refused.stdout.splitlines()) < 15, refused.stdout
    assert not (project / "histories" / "once.history.jsonl").exists()


def test_a_case_with_an_answer_that_nobody_asks_for_says_so_in_a_sentence(project: Path) -> None:
    case = {"graph": "work:graph", "input": {"n": 4}, "answers": [{"approved": True}]}
    (project / "histories" / "once.case.json").write_text(json.dumps(case))
    refused = run_pytest(project, "--noesium-record")
    assert refused.returncode == 1
    assert "The case answers question 1, and the run ended without asking it (completed)." in refused.stdout
    assert len(refused.stdout.splitlines()) < 15, refused.stdout
    assert not (project / "histories" / "once.history.jsonl").exists()
