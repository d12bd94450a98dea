"""`noesium project --check`: an impure projection ends with one error that names event and line or field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.counting import SOURCE, Counting, sums

IMPURE = """
import time


class Late(Sums):
    name = "late"

    def apply(self, state, event):
        return state + (time.time_ns() if event.payload["n"] == 5 else 1)


class Mutating(Total):
    name = "mutating"

    def apply(self, state, event):
        state["n"] += event.payload["n"]
        return state
"""


@pytest.fixture
def folder(tmp_path: Path) -> Counting:
    folder = Counting(tmp_path)
    folder.write(SOURCE + IMPURE)
    folder.add(range(20))
    return folder


def test_a_pure_projection_is_folded_as_ever(folder: Counting) -> None:
    done = folder.run("project", "counts:Sums", "--once", "--check")
    assert (done.returncode, done.stderr) == (0, "sums v1: 20 events in 4 partitions\n")
    assert folder.json("state", "sums", "--json") == sums(range(20))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Late",
            r"noesium\.events\.demo/\d@\d+: `apply` of the projection late reads the clock at counts\.py:\d+ "
            r"\(time\.time_ns\) on the event demo\.counted [0-9a-f-]{36}\.",
        ),
        (
            "Mutating",
            r"`apply` of the projection mutating changed the state that it was given: state\.n: \d+, then",
        ),
    ],
)
def test_an_impure_one_is_an_error(folder: Counting, name: str, said: str) -> None:
    assert folder.run("project", f"counts:{name}", "--once").returncode == 0
    done = folder.run("project", f"counts:{name}", "--once", "--check", "--state", str(folder.path / "other"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(rf"^error: .*{said}", done.stderr, re.MULTILINE), done.stderr


def test_it_does_not_go_with_rebuild(folder: Counting) -> None:
    done = folder.run("project", "counts:Sums", "--rebuild", "--check")
    assert done.returncode == 2
    assert "--check goes with --once" in done.stderr


def test_a_check_that_had_nothing_to_look_at_says_so(folder: Counting) -> None:
    nothing = "nothing was checked: all events were folded before; --state DIR folds them in another folder"
    for expected in (False, True):
        done = folder.run("project", "counts:Sums", "--once", "--check")
        assert (done.returncode, nothing in done.stderr.splitlines()) == (0, expected)
    folder.add([1])
    assert nothing not in folder.run("project", "counts:Sums", "--once", "--check").stderr
