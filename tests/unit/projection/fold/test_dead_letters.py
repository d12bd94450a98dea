"""Dead letters that are tried again: none is lost, folded out of order, or folded where it must not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold import partition_fold as fold_module
from tests.support.events import counted
from tests.support.folding import CODEC, History, fold_of, numbered, record


class Keyed(History):
    """Its `key` fails on a 5 until it is mended."""

    mended = False

    def key(self, event: EventEnvelope) -> str | None:
        if event.payload["n"] == 5 and not self.mended:
            raise ValueError("5 has no key")
        return event.partition_key


def test_a_letter_that_turns_out_to_be_of_a_key_that_is_held_back_is_folded_in_its_place(
    tmp_path: Path,
) -> None:
    projection = Keyed()
    fold = fold_of(projection, tmp_path / "a.state")
    fold.take(numbered([("b", -1), ("b", 5), ("b", 7)]))
    fold.flush()
    assert sorted((letter.offset, letter.key) for letter in fold.letters()) == [(0, "b"), (1, None), (2, "b")]
    projection.mended = True
    assert fold.redrive(CODEC) == (0, 3), "what failed still fails, and holds all of them back now"
    assert [(letter.offset, letter.key) for letter in fold.letters()] == [(0, "b"), (1, "b"), (2, "b")]
    projection.refuses = lambda n: False
    assert fold.redrive(CODEC) == (3, 0)
    assert fold.state("b") == [-1, 5, 7]
    fold.file.close()


def test_all_at_once_too(tmp_path: Path) -> None:
    projection = Keyed()
    fold = fold_of(projection, tmp_path / "a.state")
    fold.take(numbered([("b", -1), ("b", 5), ("b", 7)]))
    projection.mended, projection.refuses = True, lambda n: False
    assert fold.redrive(CODEC) == (3, 0)
    assert fold.state("b") == [-1, 5, 7]
    assert list(fold.letters()) == []
    assert (fold.manifest.held, fold.manifest.blocked) == (0, 0)
    fold.file.close()


def test_a_journals_record_whose_number_is_none_stays_a_letter(tmp_path: Path) -> None:
    numbers = (b"0", b"none", b"1")
    records = [
        record(counted(n, "run"), offset, **{SEQUENCE: number})
        for n, (offset, number) in enumerate(enumerate(numbers), start=1)
    ]
    fold = fold_of(History(), tmp_path / "a.state", journal=True)
    fold.take(records)
    assert fold.redrive(CODEC) == (0, 1), "it may be a repeat, or a copy"
    assert fold.state("run") == [1, 3]
    assert [letter.offset for letter in fold.letters()] == [1]
    fold.file.close()


class Floats(BaseProjection[list[float]]):
    """A 2 makes a state that cannot be stored; a negative number cannot be taken."""

    name = "floats"
    refuses = True

    def initial_state(self) -> list[float]:
        return []

    def key(self, event: Any) -> str | None:
        return event.partition_key  # type: ignore[no-any-return]

    def apply(self, state: list[float], event: Any) -> list[float]:
        n = event.payload["n"]
        if n < 0 and self.refuses:
            raise ValueError("negative")
        return [*state, float("nan") if n == 2 else float(n)]


def test_a_key_is_let_pass_though_writing_it_makes_another_ones_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projection = Floats()
    fold = fold_of(projection, tmp_path / "a.state")
    fold.take(numbered([("a", -1), ("a", 2), ("b", -1)]))
    fold.flush()
    assert fold.manifest.blocked == 2
    monkeypatch.setattr(fold_module, "UNFLUSHED_BYTES", 9_000)  # three letters: written behind that of b
    projection.refuses = False
    fold._room = 9_000
    fold.redrive(CODEC)
    assert [(letter.key, letter.offset) for letter in fold.letters()] == [("a", 1)]
    assert (fold.state("a"), fold.state("b")) == ([-1.0], [-1.0])
    fold.take(numbered([("b", 4)], 3))
    assert fold.state("b") == [-1.0, 4.0]
    fold.file.close()


class Number(BaseProjection[float]):
    name = "number"

    def initial_state(self) -> float:
        return 0.0

    def key(self, event: Any) -> str | None:
        return event.partition_key  # type: ignore[no-any-return]

    def apply(self, state: float, event: Any) -> float:
        n = event.payload["n"]
        return float("nan") if n == 2 else state + n


def test_a_state_that_cannot_be_stored_is_shown_to_nobody(tmp_path: Path) -> None:
    fold = fold_of(Number(), tmp_path / "a.state")
    fold.take(numbered([("k", 1), ("k", 2), ("k", 3)]))
    assert fold.state("k") == 1.0
    fold.flush()
    assert fold.state("k") == 1.0
    assert [letter.offset for letter in fold.letters()] == [1, 2]
    fold.file.close()
