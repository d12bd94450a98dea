"""Copies on the way: how far apart they are, what they may take, and that none of them is needed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noesium_stream.errors import StateFileError
from noesium_stream.projection.state import snapshots as module
from noesium_stream.projection.state.manifest import Manifest
from noesium_stream.projection.state.snapshots import FEWEST_EVENTS, SHARE, Snapshots, snapshots_of
from noesium_stream.projection.state.state_file import StateFile
from tests.support.folding import History, identity


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StateFile]:
    with closing(StateFile.open(tmp_path / "demo-0.state", identity(History()))) as file:
        yield file


def folded(file: StateFile, events: int, size: int = 1) -> Manifest:
    """What the file says after so many events."""
    file.commit({b"sk": b"x" * size}, Manifest(identity(History()), events, events, last_ms=1_000 + events))
    return file.manifest


def kept(file: StateFile) -> list[int]:
    return [snapshot.events for snapshot in snapshots_of(file.path)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=60))
def test_the_way_from_the_nearest_copy_is_a_sixteenth_at_most(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    path = tmp_path_factory.mktemp("spacing") / "demo-0.state"
    with closing(StateFile.open(path, identity(History()))) as file:
        copies, events = Snapshots(file), 0
        for step in steps:
            events += step
            copies.after_flush(folded(file, events))
            nearest = max(kept(file), default=0)
            assert events - nearest < max(FEWEST_EVENTS, nearest // SHARE)
        assert kept(file) == sorted(kept(file))
        assert len(kept(file)) <= events // FEWEST_EVENTS


def test_a_copy_is_what_the_file_was(file: StateFile) -> None:
    copies = Snapshots(file)
    copies.after_flush(folded(file, FEWEST_EVENTS))
    file.commit({b"sk": b"later"}, Manifest(identity(History()), 6_000, 6_000, last_ms=9))
    [copy] = snapshots_of(file.path)
    assert (copy.events, copy.cursor, copy.last_ms) == (5_000, 5_000, 6_000)
    with closing(StateFile.open_to_read(copy.path)) as found:
        assert (found.get(b"sk"), found.manifest.cursor) == (b"x", 5_000)


def test_before_it_is_time_nothing_is_copied(file: StateFile) -> None:
    Snapshots(file).after_flush(folded(file, FEWEST_EVENTS - 1))
    assert not (file.path.parent / module.FOLDER).exists()


def test_where_they_take_too_much_room_those_go_whose_absence_costs_least(
    file: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET", 100_000)
    copies = Snapshots(file)
    for events in range(FEWEST_EVENTS, 40 * FEWEST_EVENTS, FEWEST_EVENTS):
        copies.after_flush(folded(file, events))
        total = sum(snapshot.path.stat().st_size for snapshot in snapshots_of(file.path))
        assert total <= 100_000
    left = kept(file)
    assert (left[0], left[-1]) == (FEWEST_EVENTS, 39 * FEWEST_EVENTS)
    assert len(left) > 5
    gaps = [(b - a) / a for a, b in pairwise(left)]
    assert max(gaps[1:]) < 1.5, left


def test_a_large_state_may_have_four_copies_of_its_size(
    file: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET", 1)
    copies = Snapshots(file)
    for events in range(FEWEST_EVENTS, 12 * FEWEST_EVENTS, FEWEST_EVENTS):
        copies.after_flush(folded(file, events, size=200_000))
    assert 3 <= len(kept(file)) <= 4


def test_copies_of_a_state_that_was_discarded_go(file: StateFile) -> None:
    Snapshots(file).after_flush(folded(file, 9_000))
    assert kept(file) == [9_000]
    folded(file, 100)
    Snapshots(file)
    assert kept(file) == []


def test_any_copy_may_be_deleted_and_what_was_not_finished_goes(file: StateFile) -> None:
    copies = Snapshots(file)
    copies.after_flush(folded(file, 5_000))
    copies.after_flush(folded(file, 10_000))
    snapshots_of(file.path)[0].path.unlink()
    copies.after_flush(folded(file, 15_000))
    assert kept(file) == [10_000, 15_000]
    unfinished = file.path.parent / module.FOLDER / ".demo-0@1-2-3.new"
    other = file.path.parent / module.FOLDER / ".demo-10@1-2-3.new"
    for path in (unfinished, other):
        path.touch()
    (file.path.parent / module.FOLDER / "demo-0@none-of-ours.state").touch()
    Snapshots(file)
    assert not unfinished.exists()
    assert other.exists()
    assert kept(file) == [10_000, 15_000]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), None])
def test_without_room_there_is_no_copy_and_the_fold_goes_on(
    file: StateFile, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    copies = Snapshots(file)

    def failing(self: StateFile, path: Path) -> None:
        path.write_bytes(b"half")
        raise error or StateFileError("a row is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(StateFile, "copy_to", failing)
        if error is None:
            with pytest.raises(StateFileError, match="damaged"):
                copies.after_flush(folded(file, 5_000))
            return
        copies.after_flush(folded(file, 5_000))
    assert list((file.path.parent / module.FOLDER).iterdir()) == []
    copies.after_flush(folded(file, 5_001))
    assert kept(file) == []
    copies.after_flush(folded(file, 10_000))
    assert kept(file) == [10_000]
