"""Real processes killed before, in and after every append of a run: right end, each effect as its class says.

The run is `tests/support/trip.py`, what kills it `tests/support/dying.py`. On Kafka: `test_kill_points.py`.
The run in which a tool refuses, so that the others are undone; the one that completes only with soaks.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.chosen import chosen, one_of
from tests.support.dying import ALONE, MODES, Point
from tests.support.processes import ROOT
from tests.support.trip import BOOKED, NIGHTS

MEMORY = Path("/dev/shm")
WHATS = ("refused", "goes")
EVERYWHERE = {
    "agent.started",
    "partition.acquired",
    "run.requested",
    "run.started",
    "kernel.node.entered",
    "kernel.node.retried",
    "kernel.node.completed",
    "kernel.checkpoint.created",
    "effect.requested",
    "effect.completed",
    "effect.failed",
    "approval.requested",
    "approval.answered",
}
"""What was about to be written, or just had been, when a process died."""

ENDINGS = {
    "goes": {"run.completed"},
    "refused": {"kernel.node.failed", "run.compensation.started", "run.failed"},
}


def died(folder: Path, *whats: str) -> dict[str, list[str]]:
    """The lines that `tests.support.dying` prints, for each of these at the same time."""
    running = {}
    for what in whats:
        (folder / what).mkdir()
        words = [sys.executable, "-m", "tests.support.dying", str(folder / what), what]
        running[what] = subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    lines = {}
    for what, process in running.items():
        found, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        lines[what] = found.splitlines()
    return lines


@pytest.fixture(scope="module")
def points(request: pytest.FixtureRequest) -> dict[str, list[Point]]:
    """All kill points, by what becomes of the run."""
    whats = [what for (what,) in chosen(request, "what")]
    # A killed process loses nothing that it gave to the kernel, on a disk or not; a disk takes twice as long.
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        found = died(Path(folder), *whats)
    return {what: [json.loads(line) for line in lines] for what, lines in found.items()}


@pytest.mark.parametrize("what", one_of(2, WHATS))
@pytest.mark.parametrize("mode", MODES)
def test_the_appends_of_a_run_were_each_the_death_of_a_process(
    points: dict[str, list[Point]], what: str, mode: str
) -> None:
    cut = [point for point in points[what] if point["mode"] == mode]
    expected = signal.SIGXFSZ if mode == "torn" else signal.SIGKILL
    assert {point["signal"] for point in cut} == {expected}
    assert all(point["target"] in point["events"] for point in cut)
    if mode == "torn":
        assert len(cut) >= 8
    else:
        assert {type_of(point["target"]) for point in cut} >= EVERYWHERE | ENDINGS[what]
        assert len(cut) > (40 if mode in ALONE else 20)


@pytest.mark.parametrize("what", one_of(2, WHATS))
def test_a_killed_run_ends_as_one_that_nothing_happened_to(points: dict[str, list[Point]], what: str) -> None:
    for point in points[what]:
        if what == "goes":
            assert point["end"] == {
                "status": "completed",
                "refuse": False,
                "booked": BOOKED,
                "verdict": "yes",
                "letter": "posted",
                "paid": "paid",
            }, name(point)
        else:
            assert "the card is refused" in point["end"].pop("error"), name(point)
            undone = ["completed"] * (1 + len(NIGHTS))
            assert point["end"] == {"status": "failed", "compensated": undone}, name(point)
    steps = {json.dumps(sorted(point["completed"])) for point in points[what]}
    assert len(steps) == 1, "every run did the same steps"


@pytest.mark.parametrize("what", one_of(2, WHATS))
def test_no_body_runs_again_once_the_log_says_that_it_is_done(
    points: dict[str, list[Point]], what: str
) -> None:
    again = 0
    for point in points[what]:
        recorded = {tuple(step) for step in point["recorded"]["completed"]}
        begun = [(line["step"], line["path"]) for line in point["second"] if "body" in line]
        assert not recorded.intersection(begun), name(point)
        assert len(point["completed"]) == len({tuple(step) for step in point["completed"]}), name(point)
        again += len({(line["step"], line["path"]) for line in point["first"] if "body" in line} & {*begun})
    assert again > 0, "some bodies were cut and ran again"


@pytest.mark.parametrize("what", one_of(2, WHATS))
def test_each_effect_of_a_killed_run_is_done_as_its_class_says(
    points: dict[str, list[Point]], what: str
) -> None:
    twice: Counter[str] = Counter()
    for point in points[what]:
        first, second = (
            Counter((line["did"], line["key"]) for line in point[life] if "did" in line)
            for life in ("first", "second")
        )
        assert max([*first.values(), *second.values()]) == 1, name(point)
        recorded = set(point["recorded"]["outcomes"])
        assert not recorded.intersection(key for _, key in second), f"{name(point)}: it was recorded"
        keys = Counter(did for did, _ in first | second)
        assert keys == {
            "book": 1 + len(NIGHTS) + 2,
            "try": 3,
            "letter": 1,
            "pay": 1,
            **({"cancel": 1 + len(NIGHTS)} if what == "refused" else {}),
        }, name(point)
        twice.update(did for did, _ in first.keys() & second.keys())
    assert twice["letter"] == 0, "nobody knows that it may be sent twice"
    assert twice.keys() >= {"book", "try", "pay"}, "cut between call and record they were done again"
    decided = Counter(decision for point in points[what] for decision in point["decided"])
    assert decided.keys() == {"result", "retry"}, "the letter was cut before it went out, and after"


def test_a_commit_killed_at_any_of_its_rows_is_not_there_at_all(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in died(tmp_path, "rows")["rows"]]
    rows = 5
    assert [line["died"] for line in lines] == [-signal.SIGKILL] * rows + [0]
    assert [line["found"] for line in lines[:-1]] == [{}] * rows
    assert lines[-1]["found"] == {"inbox/0": 3, "inbox/1": 2, "journal/0": 1001, "journal/1": 1}


def type_of(event: str) -> str:
    """The type of an event by its name."""
    return event.split()[0]


def name(point: Point) -> str:
    """Which one."""
    return f"{point['mode']} {', '.join(point['events'])}"
