"""A fact that was appended again is folded once, wherever the fold stopped and was opened again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noesium_stream.errors import StateFileError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log.record import Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold import repeats
from noesium_stream.projection.fold.repeats import SEEN, Repeats
from tests.support.events import counted
from tests.support.folding import CLOCK, CODEC, History, fold_of, raw, record

FACTS = [counted(number, "k", clock=CLOCK) for number in range(1, 9)]
OTHERS = FACTS[0].replace(producer=AgentRef("another", "tester"), payload={"n": 9})


def facts(*numbers: int) -> list[Record]:
    """Records of these facts, in order; 0 is the first one by another producer."""
    return [record(FACTS[n - 1] if n else OTHERS, offset) for offset, n in enumerate(numbers)]


def test_a_repeated_fact_is_folded_once_and_one_of_another_producer_counts(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state")
    fold.take(facts(1, 2, 1, 0, 2, 0, 3))
    assert fold.state("k") == [1, 2, 9, 3]
    assert fold.cursor == 7


def test_a_fact_beyond_the_window_counts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "WINDOW", 3)
    fold = fold_of(History(), tmp_path / "a.state")
    fold.take(facts(1, 2, 3, 4, 1, 5, 1))
    assert fold.state("k") == [1, 2, 3, 4, 1, 5]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    numbers=st.lists(st.integers(0, 8), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    window=st.integers(1, 12),
)
def test_a_fold_that_is_cut_anywhere_is_the_one_at_one_go(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], cuts: list[int], window: int
) -> None:
    folder = tmp_path_factory.mktemp("s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "WINDOW", window)
        patch.setattr(repeats, "_BLOCK", 3)
        patch.setattr(repeats, "_BLOCKS", window // 3 + 2)
        whole = fold_of(History(), folder / "whole.state")
        whole.take(facts(*numbers))
        whole.flush()
        for cut in sorted(cuts):
            part = fold_of(History(), folder / "parts.state")
            part.take(facts(*numbers)[:cut])
            part.flush()
            part.file.close()
        last = fold_of(History(), folder / "parts.state")
        last.take(facts(*numbers))
        assert last.state("k") == whole.state("k")
        last.flush()
        assert dict(last.file.scan(b"")) == dict(whole.file.scan(b""))


def test_a_letter_is_not_taken_for_a_repetition_of_itself(tmp_path: Path) -> None:
    history = History(lambda n: n == 2)
    fold = fold_of(history, tmp_path / "a.state")
    fold.take(facts(1, 2, 2, 3))
    fold.flush()
    assert (fold.state("k"), fold.manifest.held) == ([1], 2)
    history.refuses = lambda n: False
    assert fold.redrive(CODEC) == (2, 0)
    assert fold.state("k") == [1, 2, 3]


def test_what_was_not_written_is_not_known(tmp_path: Path) -> None:
    history = History()
    fold = fold_of(history, tmp_path / "a.state")
    fold.take(facts(1, 2))
    fold.flush()
    history.refuses = _interrupted
    with pytest.raises(KeyboardInterrupt):
        fold.take(facts(1, 2, 3))
    history.refuses = lambda n: False
    fold.take(facts(1, 2, 3, 1))
    assert fold.state("k") == [1, 2, 3]


def _interrupted(n: int) -> bool:
    raise KeyboardInterrupt


def test_a_flush_of_one_event_writes_one_row_of_ids_and_old_ids_go(tmp_path: Path) -> None:
    fold = fold_of(History(lambda n: False), tmp_path / "a.state")
    for offset in range(0, 20_000, 1_000):
        fold.take([record(counted(offset, "k", clock=CLOCK), offset)])
        fold.flush()
    assert len(list(fold.file.scan(SEEN))) <= repeats.WINDOW // 250 + 1
    before = fold.file.manifest.stamp
    fold.take([record(counted(5, "k", clock=CLOCK), 20_000)])
    fold.flush()
    changed = [key for key, _, _ in fold.file.changed(before) if key.startswith(SEEN)]
    assert len(changed) == 1


def test_the_ids_of_old_events_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "WINDOW", 10)
    seen = Repeats()
    for offset in range(1_000):
        assert not seen.is_repeat(f"id {offset}", offset)
        assert len(seen) <= 21


def test_journals_have_no_window(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state", journal=True)
    fold.take(facts(1, 1))
    fold.flush()
    assert list(fold.file.scan(SEEN)) == []


class Counts(BaseProjection[int]):
    """How many events a key has, by their headers."""

    name = "counts"
    topics = ("events.*",)
    headers_only = True

    def initial_state(self) -> int:
        return 0

    def key(self, event: Any) -> str | None:
        return event.partition_key  # type: ignore[no-any-return]

    def apply(self, state: int, event: Any) -> int:
        return state + 1


def test_a_projection_of_headers_drops_the_same_events(tmp_path: Path) -> None:
    fold = fold_of(Counts(), tmp_path / "a.state")
    fold.take(facts(1, 2, 1, 0, 2, 0, 3))
    fold.take([raw(b"garbage", 7, ce_id=b"x"), raw(b"garbage", 8, ce_id=b"x"), raw(b"more", 9, ce_id=b"y")])
    assert fold.state("k") == 6


@pytest.mark.parametrize("data", [b"no json", b"5", b"[1, 2]", b'[0, ["a"], ["b"]]', b"[0, [1, 2], [3]]"])
def test_ids_that_cannot_be_read_are_a_damaged_file_and_no_dead_letters(tmp_path: Path, data: bytes) -> None:
    """As a state that somebody else has pushed may have."""
    fold = fold_of(History(), tmp_path / "a.state")
    fold.file.commit({SEEN + b"0": data}, fold.manifest)
    with pytest.raises(StateFileError, match="ids of its last events"):
        fold.take(facts(1))
    assert fold.manifest.held == 0
