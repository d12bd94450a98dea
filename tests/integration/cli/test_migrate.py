"""project --migrate as real processes: a newer version that goes on from the older one's state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.counting import Counting, sums

SUMS = "counts:Sums"
HUNDRED = range(100)
NEWER = '''

class Older(Sums):
    pass


class Sums(Older):
    """Counts twice from its beginning on."""

    version = 2
    previous_version = Older

    def apply(self, state: int, event: EventEnvelope) -> int | None:
        return state + 2 * event.payload["n"]

    def migrate(self, key: str, state: int) -> int:
        return state
'''


@pytest.fixture
def folder(tmp_path: Path) -> Counting:
    folder = Counting(tmp_path)
    folder.add(HUNDRED)
    return folder


def test_a_newer_version_goes_on_from_the_older_ones_state(folder: Counting) -> None:
    folder.ok("project", SUMS, "--once")
    folder.write((folder.path / "counts.py").read_text() + NEWER)
    done = folder.run("project", SUMS, "--migrate")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "sums v2 takes over the state of v1: projection.migrated is on the log",
        "sums v2: 100 events in 4 partitions",
    ]
    assert folder.json("state", "sums", "--json") == sums(HUNDRED)
    places = folder.add([100])
    folder.ok("project", SUMS, "--once")
    old = sums(HUNDRED)["k0"]
    assert folder.json("state", "sums", "k0") == old + 200
    done = folder.run("project", SUMS, "--migrate")
    assert done.returncode == 0
    assert "the log says already where sums v2 begins" in done.stderr
    folder.ok("project", SUMS, "--rebuild", "--verify")
    assert folder.json("state", "sums", "k0") == old + 200
    # Elsewhere, from the log alone.
    folder.ok("project", SUMS, "--once", "--state", "elsewhere")
    assert folder.json("state", "sums", "k0", "--state", "elsewhere") == old + 200
    # What it was is told by the version that folded then.
    [place] = places
    at = f"{place.topic}/{place.partition}@{place.offset}"
    assert folder.json("state", "sums", "k0", "--at", at) == old + 200
    before = f"{place.topic}/{place.partition}@0"
    done = folder.run("state", "sums", "--at", before)
    assert done.returncode == 2
    assert "before that its state was version 1's" in done.stderr
    assert "--version 1" in done.stderr
    assert len(folder.json("state", "sums", "--at", before, "--version", "1", "--json")) == 1


def test_dead_letters_of_the_older_version_are_released_first(folder: Counting) -> None:
    folder.add([-1], key="k3")
    folder.ok("project", SUMS, "--once")
    folder.write((folder.path / "counts.py").read_text() + NEWER)
    done = folder.run("project", SUMS, "--migrate")
    assert done.returncode == 1
    assert "sums v1 has 1 dead letter" in done.stderr
    assert "noesium dlq redrive sums" in done.stderr
    folder.change('if event.payload["n"] < 0:', "if False:")
    folder.ok("dlq", "redrive", "sums")
    folder.ok("project", SUMS, "--migrate")
    assert folder.json("state", "sums", "--json") == {**sums(HUNDRED), "k3": sums(HUNDRED)["k3"] - 1}


def test_it_waits_for_nobody_and_takes_nothing_from_others(folder: Counting) -> None:
    folder.write((folder.path / "counts.py").read_text() + NEWER)
    with folder.running("project", SUMS) as process:
        process.wait_for(lambda running: any("folds" in line for line in running.err))
        process.wait_for(lambda _: folder.run("state", "sums", "--json").returncode == 0)
        done = folder.run("project", SUMS, "--migrate")
        assert done.returncode == 1
        assert "sums v2 is folded by" in done.stderr


def test_options_that_do_not_go_together_are_refused(folder: Counting) -> None:
    assert "--migrate goes on" in folder.run("project", SUMS, "--migrate", "--rebuild").stderr
    done = folder.run("project", SUMS, "--migrate")
    assert done.returncode != 0
    assert "does not say which version was before it" in done.stderr
