"""A fold that stops at an event: it is folded when it is taken up again, once, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.errors import EventHeldError, ImpureProjectionError, ProjectionError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.record import Record
from tests.support.events import counted
from tests.support.folding import CODEC, History, InPlace, fold_of, numbered, record


class Stopping(History):
    on_error = "stop"


def journal(*numbers: int) -> list[Record]:
    """Records of one run, numbered in their order."""
    return [record(counted(n, "run"), index, **{SEQUENCE: b"%d" % index}) for index, n in enumerate(numbers)]


@pytest.mark.parametrize("numbers", [(-1, 2), (1, -1, 3), (1, 2, -1)])
def test_an_event_of_a_journal_that_stops_a_projection_is_folded_when_it_can_be(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    path, records = tmp_path / "a.state", journal(*numbers)
    fold = fold_of(Stopping(), path, journal=True)
    for _ in range(2):
        with pytest.raises(EventHeldError):
            fold.take(records)
        fold.flush()
        fold.file.close()
        fold = fold_of(Stopping(), path, journal=True)
    fold.file.close()
    fold = fold_of(Stopping(lambda n: False), path, journal=True)
    fold.take(records)
    assert fold.state("run") == list(numbers)
    fold.file.close()


class Forgetful(InPlace):
    """Takes a 1 once, and never again."""

    taken = False

    def apply(self, state: list[int], event: EventEnvelope) -> list[int] | None:
        if event.payload["n"] == 1:
            if self.taken:
                raise ValueError("a second time")
            self.taken = True
        return super().apply(state, event)


def test_a_row_that_cannot_be_made_again_is_an_error_and_nothing_of_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    fold = fold_of(Forgetful(), path)
    fold.take(numbered([("a", 5)]))
    fold.flush()
    with pytest.raises(ImpureProjectionError, match=r"@1 .*once and failed the second time"):
        fold.take(numbered([("a", 1), ("b", 2), ("a", -1)], 1))
    fold.flush()
    assert (dict(fold.rows()), fold.cursor) == ({"a": [5]}, 1)
    fold.file.close()


class Leaving(History):
    def apply(self, state: list[int], event: EventEnvelope) -> list[int] | None:
        if event.payload["n"] == 7:
            raise SystemExit("enough")
        return super().apply(state, event)


def test_an_apply_that_ends_the_process_is_an_error_that_names_the_event(tmp_path: Path) -> None:
    fold = fold_of(Leaving(), tmp_path / "a.state")
    with pytest.raises(ProjectionError, match=r"@1: the projection .* called sys.exit\('enough'\)"):
        fold.take(numbered([("a", 5), ("a", 7)]))
    fold.file.close()


class Moving(History):
    """Its `key` can be mended."""

    row = "a"

    def key(self, event: EventEnvelope) -> str | None:
        return self.row if event.payload["n"] < 0 else event.partition_key


def test_a_key_whose_letters_have_become_another_keys_is_held_back_no_longer(tmp_path: Path) -> None:
    projection = Moving()
    fold = fold_of(projection, tmp_path / "a.state")
    fold.take(numbered([("x", -1), ("a", 1)]))
    projection.row = "b"
    assert fold.redrive(CODEC) == (1, 1)
    assert [(letter.key, letter.offset) for letter in fold.letters()] == [("b", 0)]
    fold.take(numbered([("a", 2), ("b", 3)], 2))
    assert (fold.state("a"), fold.state("b")) == ([1, 2], None)
    fold.flush()
    assert (fold.manifest.held, fold.manifest.blocked) == (2, 1)
    projection.refuses = lambda n: False
    assert fold.redrive(CODEC) == (2, 0)
    assert (fold.state("a"), fold.state("b")) == ([1, 2], [-1, 3])
    fold.file.close()
