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


def test_what_was_folded_before_is_checked_too_and_the_state_stays(folder: Counting) -> None:
    folder.ok("project", "counts:Sums", "--once")
    before = {path: path.read_bytes() for path in folder.files()}
    done = folder.run("project", "counts:Sums", "--once", "--check")
    assert (done.returncode, done.stderr.splitlines()) == (
        0,
        [
            "20 events that were folded before are checked: `key` and `apply` are pure on them",
            "sums v1: 20 events in 4 partitions",
        ],
    )
    assert {path: path.read_bytes() for path in folder.files()} == before


@pytest.mark.parametrize("way", [("--once",), ("--export", "late.jsonl"), ()])
def test_an_impure_one_is_found_in_what_was_folded_before(folder: Counting, way: tuple[str, ...]) -> None:
    folder.ok("project", "counts:Late", "--once")
    done = folder.run("project", "counts:Late", *way, "--check")
    assert done.returncode == 1
    assert "`apply` of the projection late reads the clock" in done.stderr


UNMERGED = """

class Ends(Sums):
    name = "ends"

    def key(self, event):
        return str(event.payload["n"] % 3)


class Whole(Total):
    name = "whole"
    merge = BaseProjection.merge


class Parts(Whole):
    name = "parts"
    local_keys = True
"""


def test_what_needs_a_merge_is_said_when_it_is_folded(folder: Counting) -> None:
    folder.write(SOURCE + UNMERGED)
    for name, said in (
        ("Ends", "of the projection ends may have parts in several partitions"),
        ("Whole", "The projection whole has a state per partition, and folds 4 of them."),
    ):
        for way in (("--once",), ("--rebuild",), ()):
            done = folder.run("project", f"counts:{name}", *way)
            assert done.returncode == 1
            [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            assert said in line
            assert "Traceback" not in done.stderr
            assert "Declare `merge`" in done.stderr
    folder.ok("project", "counts:Parts", "--once")
