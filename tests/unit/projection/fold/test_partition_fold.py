"""One projection over one partition: what is folded, what is passed over, and what is held back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import (
    EventHeldError,
    ImpureProjectionError,
    LogUnavailableError,
    ProjectionError,
    SequenceGapError,
    StateFileError,
)
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.record_proofs import RecordSigner
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.log.headers import ORIGIN, SEQUENCE
from noesium_stream.log.record import Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.event_headers import EventHeaders
from noesium_stream.projection.fold import partition_fold as fold_module
from noesium_stream.projection.fold.changed_rows import CACHED_ROWS
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.state.state_file import StateFile
from tests.support.envelopes import envelope, open_catalogue
from tests.support.events import counted, noted, sold
from tests.support.folding import (
    CLOCK,
    CODEC,
    TOPIC,
    History,
    InPlace,
    everything,
    fold_of,
    folded,
    identity,
    numbered,
    raw,
    record,
)


def states(fold: PartitionFold[Any]) -> dict[str, Any]:
    fold.flush()
    return dict(fold.rows())


def letters(fold: PartitionFold[Any]) -> list[tuple[str | None, int, str | None]]:
    fold.flush()
    return [(letter.key, letter.offset, letter.reason) for letter in fold.letters()]


def test_rows_are_folded_by_key_and_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    fold = fold_of(History(), path)
    fold.take(numbered([("a", 1), ("b", 2), ("a", 3)]))
    assert fold.state("a") == [1, 3]
    assert list(fold.rows()) == []  # not flushed yet
    assert states(fold) == {"a": [1, 3], "b": [2]}
    assert (fold.cursor, fold.manifest.events, fold.manifest.last_ms) == (3, 3, 1002)
    fold.file.close()
    again = fold_of(History(), path)
    assert again.cursor == 3
    again.take(numbered([("a", 1), ("b", 2), ("a", 3), ("b", 4)]))
    assert again.state("c") is None
    assert states(again) == {"a": [1, 3], "b": [2, 4]}
    assert again.manifest.events == 4
    again.file.close()


def test_what_was_not_flushed_is_folded_again(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    fold = fold_of(History(), path)
    fold.take(numbered([("a", 1)]))
    fold.flush()
    fold.take(numbered([("a", 2)], 1))
    fold.file.close()  # as a crash: no flush
    again = fold_of(History(), path)
    assert (again.cursor, again.state("a")) == (1, [1])
    again.take(numbered([("a", 2)], 1))
    assert states(again) == {"a": [1, 2]}
    again.file.close()


def test_a_flush_without_news_writes_nothing(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state")
    fold.flush()
    assert fold.manifest.commits == 0
    fold.advance(5)
    fold.flush()
    fold.flush()
    fold.advance(3)
    assert (fold.manifest.commits, fold.cursor) == (1, 5)
    fold.file.close()


def test_none_removes_a_row_and_the_next_event_begins_anew(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state")
    fold.take(numbered([("a", 1), ("b", 1)]))
    fold.flush()
    fold.take(numbered([("a", 0)], 2))
    assert fold.state("a") is None
    assert states(fold) == {"b": [1]}
    fold.take(numbered([("a", 4)], 3))
    assert states(fold) == {"a": [4], "b": [1]}
    fold.file.close()


def test_what_is_asked_for_can_be_changed_without_harm(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state")
    fold.take(numbered([("a", 1)]))
    fold.state("a").append(99)
    assert states(fold) == {"a": [1]}
    fold.state("a").append(99)
    fold.take(numbered([("a", 2)], 1))
    assert states(fold) == {"a": [1, 2]}
    fold.file.close()


def test_rows_are_scanned_by_the_beginning_of_their_keys(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state")
    fold.take(numbered([("ab", 1), ("a", 2), ("b", 3), ("aé", 4)]))
    fold.flush()
    assert [key for key, _ in fold.rows("a")] == ["a", "ab", "aé"]
    assert [key for key, _ in fold.rows()] == ["a", "ab", "aé", "b"]
    assert list(fold.rows("c")) == []
    fold.file.close()


class Ordered(History):
    event_types = ("demo.counted", "shop.")

    def apply(self, state: list[int], event: EventEnvelope) -> list[int]:
        assert event.event_type in ("demo.counted", "shop.sold")
        return [*state, event.payload["n"]]


def test_types_that_are_not_wanted_are_passed_over(tmp_path: Path) -> None:
    bare = record(noted(7, "a"), 3)
    without = Record(TOPIC, 0, 3, 0, "a", [], bare.value, CODEC)
    lying = Record(TOPIC, 0, 4, 0, "a", [("ce_type", b"demo.counted")], bare.value, CODEC)
    other = Record(TOPIC, 0, 5, 0, "a", [], record(sold(8, "a"), 5).value, CODEC)
    fold = fold_of(Ordered(), tmp_path / "a.state")
    fold.take([record(counted(1, "a"), 0), record(noted(2, "a"), 1), record(sold(3, "a"), 2)])
    fold.take([without, lying, other])
    assert states(fold) == {"a": [1, 3, 8]}
    assert (letters(fold), fold.cursor) == ([], 6)
    fold.file.close()


def test_types_that_are_not_wanted_are_not_even_decoded(tmp_path: Path) -> None:
    fold = fold_of(Ordered(), tmp_path / "a.state")
    fold.take([raw(b"no event", 0, "a", ce_type=b"demo.noted"), record(counted(1, "a"), 1)])
    assert (states(fold), letters(fold)) == ({"a": [1]}, [])
    fold.take([raw(b"no event", 2, "b", ce_type=b"demo.counted")])
    assert len(letters(fold)) == 1
    fold.file.close()


def test_a_type_that_is_not_wanted_is_told_by_the_value_before_headers_are_made(tmp_path: Path) -> None:
    def made() -> list[tuple[str, bytes]]:
        raise AssertionError("headers were asked for")

    bare = record(noted(7, "a"), 0)
    fold = fold_of(Ordered(), tmp_path / "a.state")
    fold.take([Record(TOPIC, 0, 0, 0, "a", made, bare.value, CODEC), record(counted(1, "a"), 1)])
    assert (states(fold), fold.cursor) == ({"a": [1]}, 2)
    fold.file.close()


class Heads(BaseProjection[list[str]]):
    name = "heads"
    headers_only = True
    event_types = ("demo.",)

    def initial_state(self) -> list[str]:
        return []

    def key(self, event: Any) -> str:
        return str(event.partition_key)

    def apply(self, state: list[str], event: Any) -> list[str]:
        assert isinstance(event, EventHeaders)
        return [*state, f"{event.event_type} {event.event_id[-4:]} {event.timestamp_ms}"]


class Closed:
    record_verifier = None

    def decode(self, data: bytes) -> Any:
        raise AssertionError("decoded")

    decode_unchecked = upcast = decode


def test_headers_alone_are_folded_without_decoding(tmp_path: Path) -> None:
    whole = record(counted(1, "a", clock=CLOCK), 0)
    undecodable = Record(TOPIC, 0, 0, 7, "a", whole.headers, b"?", Closed())
    fold = fold_of(Heads(), tmp_path / "a.state")
    fold.take([undecodable])
    assert states(fold) == {"a": [f"demo.counted {whole.envelope.event_id[-4:]} 7"]}
    bad = [("ce_type", b"demo.counted"), ("ce_id", b"\xff")]
    fold.take([Record(TOPIC, 0, 1, 7, "a", bad, b"?", Closed())])
    assert [(key, offset) for key, offset, _ in letters(fold)] == [("a", 1)]
    fold.file.close()


def journal(numbers: list[tuple[str, int, int]], **extra: bytes) -> list[Record]:
    """Records of (run, number in the run, n) at offsets from 0."""
    return [
        record(counted(n, run, clock=CLOCK), offset, **{SEQUENCE: b"%d" % number, **extra})
        for offset, (run, number, n) in enumerate(numbers)
    ]


def test_a_repeated_record_of_a_journal_is_folded_once(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    records = journal([("r", 0, 1), ("r", 1, 2), ("r", 0, 1), ("s", 0, 5), ("r", 1, 2), ("r", 2, 3)])
    fold = fold_of(History(), path, journal=True)
    fold.take(records[:4])
    fold.flush()
    fold.file.close()
    fold = fold_of(History(), path, journal=True)  # the numbers are in the file
    fold.take(records)
    assert states(fold) == {"r": [1, 2, 3], "s": [5]}
    fold.file.close()


def test_a_gap_in_a_runs_numbers_is_an_error_and_nothing_behind_it_is_folded(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state", journal=True)
    with pytest.raises(SequenceGapError, match=rf"lacks records 1 to 2 of the run r: {TOPIC}/0@2 has .* 3"):
        fold.take(journal([("r", 0, 1), ("s", 0, 2), ("r", 3, 3), ("s", 1, 4)]))
    assert states(fold) == {"r": [1], "s": [2]}
    assert fold.cursor == 2
    with pytest.raises(SequenceGapError):
        fold.take(journal([("r", 0, 1), ("s", 0, 2), ("r", 3, 3), ("s", 1, 4)]))
    fold.file.close()


def test_copies_of_what_other_runs_hold_are_passed_over_and_counted(tmp_path: Path) -> None:
    records = journal([("r", 0, 1), ("r", 1, 2), ("r", 2, 3)])
    copy = record(counted(2, "r"), 1, **{SEQUENCE: b"1", ORIGIN: b"x/0"})
    fold = fold_of(History(), tmp_path / "a.state", journal=True)
    fold.take([records[0], copy, records[2]])
    assert states(fold) == {"r": [1, 3]}
    fold.file.close()


def test_records_of_a_journal_without_number_are_folded(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state", journal=True)
    fold.take(numbered([("a", 1), ("a", 1)]))
    assert states(fold) == {"a": [1, 1]}
    fold.file.close()


@pytest.mark.parametrize("number", [b"", b"x", b"-1", b"1_0", "١".encode(), b"9" * 5000])
def test_a_number_that_is_none_makes_a_letter(tmp_path: Path, number: bytes) -> None:
    fold = fold_of(History(), tmp_path / "a.state", journal=True)
    fold.take([record(counted(1, "a"), 0, **{SEQUENCE: number}), *numbered([("a", 2)], 1)])
    assert states(fold) == {"a": [2]}
    ((key, offset, reason),) = letters(fold)
    assert (key, offset) == (None, 0)
    assert "noesium_seq: is no number" in str(reason)
    fold.file.close()


def test_numbers_are_of_journals_alone(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state")
    fold.take(journal([("r", 5, 1), ("r", 5, 2)], **{ORIGIN: b"x/0"}))
    assert states(fold) == {"r": [1, 2]}
    fold.file.close()


@pytest.mark.parametrize("kind", [History, InPlace])
def test_a_poison_event_holds_its_keys_later_events_back_and_nothing_else(
    tmp_path: Path, kind: type[History]
) -> None:
    fold = fold_of(kind(), tmp_path / "a.state")
    fold.take(numbered([("a", 1), ("b", 1), ("a", -2), ("b", 3), ("a", 4)]))
    fold.take(numbered([("b", 5), ("a", 6), ("c", 7)], 5))
    assert states(fold) == {"a": [1], "b": [1, 3, 5], "c": [7]}
    assert letters(fold) == [("a", 2, "-2 is refused"), ("a", 4, None), ("a", 6, None)]
    assert (fold.manifest.held, fold.manifest.blocked, fold.manifest.events) == (3, 1, 8)
    fold.file.close()


@pytest.mark.parametrize("kind", [History, InPlace])
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("before", [[], [("a", 1)], [("a", 1), ("a", 2)], [("a", 1), ("a", 0)]])
def test_a_failed_apply_leaves_no_trace_in_its_row(
    tmp_path: Path, kind: type[History], flush: bool, before: list[tuple[str, int]]
) -> None:
    projection = kind()
    fold = fold_of(projection, tmp_path / "a.state")
    fold.take(numbered(before))
    if flush:
        fold.flush()
    fold.take(numbered([("a", -1), ("a", 5)], 2))
    expected = {"a": [n for _, n in before]} if before and before[-1][1] else {}
    assert states(fold) == expected
    projection.refuses = lambda n: False
    assert fold.redrive(CODEC) == (2, 0)
    assert states(fold) == {"a": [*expected.get("a", []), -1, 5]}
    fold.file.close()


def test_keys_stay_held_back_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    fold = fold_of(History(), path)
    fold.take(numbered([("a", -1), ("b", 1)]))
    fold.flush()
    fold.file.close()
    fold = fold_of(History(), path)
    fold.take(numbered([("a", 2), ("b", 3)], 2))
    assert states(fold) == {"b": [1, 3]}
    assert letters(fold) == [("a", 0, "-1 is refused"), ("a", 2, None)]
    fold.file.close()


def test_released_letters_are_folded_in_order_as_if_nothing_had_happened(tmp_path: Path) -> None:
    numbers = [("a", 1), ("b", -1), ("a", -2), ("b", 3), ("a", 0), ("a", -4), ("b", 5), ("c", 1)]
    projection = History()
    fold = fold_of(projection, tmp_path / "a.state")
    fold.take(numbered(numbers))
    projection.refuses = lambda n: False
    assert fold.redrive(CODEC, ["b"]) == (3, 0)
    assert states(fold) == {"a": [1], "b": [-1, 3, 5], "c": [1]}
    assert (fold.manifest.held, fold.manifest.blocked) == (3, 1)
    assert fold.redrive(CODEC) == (3, 0)
    assert fold.redrive(CODEC) == (0, 0)
    assert fold.redrive(CODEC, ["a", "none", None]) == (0, 0)
    assert everything(fold) == folded(History(lambda n: False), tmp_path / "b.state", numbered(numbers))
    assert (fold.manifest.held, fold.manifest.blocked) == (0, 0)
    fold.take(numbered([("a", 9)], 8))
    assert states(fold)["a"] == [-4, 9]
    fold.file.close()


def test_letters_that_fail_again_stay_with_what_they_hold_back(tmp_path: Path) -> None:
    projection = History()
    fold = fold_of(projection, tmp_path / "a.state")
    fold.take(numbered([("a", -1), ("a", 2), ("a", -3), ("a", 4), ("b", -1)]))
    projection.refuses = lambda n: n == -3
    assert fold.redrive(CODEC) == (3, 2)
    assert states(fold) == {"a": [-1, 2], "b": [-1]}
    assert letters(fold) == [("a", 2, "-3 is refused"), ("a", 3, None)]
    assert (fold.manifest.held, fold.manifest.blocked) == (2, 1)
    fold.take(numbered([("a", 5)], 5))
    projection.refuses = lambda n: False
    assert fold.redrive(CODEC) == (3, 0)
    assert states(fold) == {"a": [-1, 2, -3, 4, 5], "b": [-1]}
    fold.file.close()


def test_many_letters_are_released_in_several_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projection = History()
    fold = fold_of(projection, tmp_path / "a.state")
    fold.take(numbered([("a", -1), *(("a", n) for n in range(1, 700))]))
    fold.flush()
    commits = fold.manifest.commits
    monkeypatch.setattr(fold_module, "UNFLUSHED_BYTES", 100 * fold_module._EVENT_BYTES)
    fold._room = 0
    projection.refuses = lambda n: n == 500
    assert fold.redrive(CODEC) == (500, 200)
    assert fold.manifest.commits - commits >= 5
    assert states(fold) == {"a": [-1, *range(1, 500)]}
    projection.refuses = lambda n: False
    assert fold.redrive(CODEC) == (200, 0)
    assert states(fold) == {"a": [-1, *range(1, 700)]}
    fold.file.close()


class Stopping(History):
    on_error = "stop"


def test_a_projection_that_stops_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    fold = fold_of(Stopping(), path)
    place = rf"cannot take the event at {TOPIC}/0@2 \(demo.counted\): ValueError: -1 is refused"
    for _ in range(2):
        with pytest.raises(EventHeldError, match=place):
            fold.take(numbered([("a", 1), ("b", 1), ("a", -1), ("b", 2)]))
        assert states(fold) == {"a": [1], "b": [1]}
        assert (fold.cursor, letters(fold)) == (2, [])
    fold.file.close()
    fold = fold_of(Stopping(lambda n: False), path)
    fold.take(numbered([("a", 1), ("b", 1), ("a", -1), ("b", 2)]))
    assert states(fold) == {"a": [1, -1], "b": [1, 2]}
    fold.file.close()


def test_an_undecodable_record_is_a_letter_of_its_own(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state")
    value = record(counted(1, "a"), 0).value
    fold.take([raw(b"", 0, "a"), raw(value[:-3], 1, "a"), *numbered([("a", 2)], 2)])
    assert states(fold) == {"a": [2]}
    found = letters(fold)
    assert [(key, offset) for key, offset, _ in found] == [(None, 0), (None, 1)]
    assert all(f"{TOPIC}/0@{offset}" in str(reason) for _, offset, reason in found)
    assert (fold.manifest.held, fold.manifest.blocked) == (2, 0)
    fold.file.close()


def test_an_event_of_an_unknown_type_holds_its_key_until_it_is_known(tmp_path: Path) -> None:
    new = envelope(payload={"n": 3}, partition_key="a", event_type="demo.anything")
    known = EnvelopeCodec(open_catalogue())
    foreign = record(new, 1, codec=known)
    unknown = Record(TOPIC, 0, 1, 0, "a", foreign.headers, foreign.value, CODEC)
    fold = fold_of(History(), tmp_path / "a.state")
    fold.take([*numbered([("a", 1)]), unknown, *numbered([("a", 4), ("b", 5)], 2)])
    assert states(fold) == {"a": [1], "b": [5]}
    assert [(key, offset) for key, offset, _ in letters(fold)] == [("a", 1), ("a", 2)]
    known.catalogue.register_schema("demo.counted", "1.0.0", {"type": "object"})
    assert fold.redrive(known) == (2, 0)
    assert states(fold) == {"a": [1, 3, 4], "b": [5]}
    fold.file.close()


class Keyed(History):
    def __init__(self, key: Any) -> None:
        super().__init__()
        self.made = key

    def key(self, event: EventEnvelope) -> Any:
        return self.made(event)


def test_a_key_that_fails_makes_a_letter_and_none_passes_over(tmp_path: Path) -> None:
    fold = fold_of(
        Keyed(lambda event: {1: "a", 2: None, 4: "\ud800"}[event.payload["n"]]), tmp_path / "a.state"
    )
    fold.take(numbered([("x", 1), ("x", 2), ("x", 3), ("x", 4), ("x", 1)]))
    assert states(fold) == {"a": [1, 1]}
    assert [(key, offset) for key, offset, _ in letters(fold)] == [(None, 2), (None, 3)]
    assert fold.state("\ud800") is None
    fold.file.close()


def test_a_key_that_is_no_text_is_said_and_no_letter(tmp_path: Path) -> None:
    fold = fold_of(Keyed(lambda event: event.payload["n"]), tmp_path / "a.state")
    with pytest.raises(ProjectionError, match="`key` of the projection history returned int, not text"):
        fold.take(numbered([("x", 1)]))
    assert (fold.cursor, letters(fold)) == (0, [])
    fold.file.close()


class Half(BaseProjection[float]):
    name = "half"

    def initial_state(self) -> float:
        return 0.0

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def apply(self, state: float, event: EventEnvelope) -> float:
        n = event.payload["n"]
        return state + (float("nan") if n < 0 else n / 2)


def test_an_event_that_makes_a_state_that_cannot_be_stored_is_held_back(tmp_path: Path) -> None:
    fold = fold_of(Half(), tmp_path / "a.state")
    fold.take(numbered([("a", 1), ("b", 1), ("a", 2), ("a", -1), ("a", 4), ("b", 2)]))
    assert states(fold) == {"a": 1.5, "b": 1.5}
    found = letters(fold)
    assert [(key, offset) for key, offset, _ in found] == [("a", 3), ("a", 4)]
    assert "state is no finite number" in str(found[0][2])
    assert (fold.manifest.held, fold.manifest.blocked, fold.cursor) == (2, 1, 6)
    assert fold.redrive(CODEC) == (0, 2)
    fold.take(numbered([("a", 5)], 6))
    assert states(fold) == {"a": 1.5, "b": 1.5}
    assert len(letters(fold)) == 3
    fold.file.close()


def test_a_stopping_projection_writes_nothing_behind_a_state_that_cannot_be_stored(tmp_path: Path) -> None:
    class Stops(Half):
        on_error = "stop"

    fold = fold_of(Stops(), tmp_path / "a.state")
    fold.take(numbered([("a", 1)]))
    fold.flush()
    fold.take(numbered([("b", 1), ("a", -1), ("b", 2)], 1))
    with pytest.raises(EventHeldError, match=r"@2 .*no finite number"):
        fold.flush()
    fold.flush()
    assert (states(fold), fold.cursor) == ({"a": 0.5}, 1)
    fold.file.close()


class Interrupting(InPlace):
    error: type[BaseException] = KeyboardInterrupt

    def apply(self, state: list[int], event: EventEnvelope) -> list[int] | None:
        state.append(event.payload["n"])
        if event.payload["n"] == 3:
            raise self.error
        return state


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_fold_that_is_cut_off_writes_nothing_half_done(tmp_path: Path, error: type[BaseException]) -> None:
    projection = Interrupting()
    projection.error = error
    fold = fold_of(projection, tmp_path / "a.state")
    fold.take(numbered([("a", 1)]))
    fold.flush()
    with pytest.raises(error):
        fold.take(numbered([("a", 2), ("a", 3), ("a", 4)], 1))
    assert (states(fold), fold.cursor, letters(fold)) == ({"a": [1]}, 1, [])
    fold.file.close()


class Absent:
    record_verifier = None

    def decode(self, data: bytes) -> Any:
        raise LogUnavailableError("the registry does not answer")

    decode_unchecked = upcast = decode


def test_a_registry_that_does_not_answer_makes_no_letters(tmp_path: Path) -> None:
    whole = record(counted(1, "a"), 0)
    fold = fold_of(History(), tmp_path / "a.state")
    with pytest.raises(LogUnavailableError):
        fold.take([Record(TOPIC, 0, 0, 0, "a", whole.headers, whole.value, Absent())])
    assert (letters(fold), fold.cursor) == ([], 0)
    fold.take([whole])
    assert states(fold) == {"a": [1]}
    fold.file.close()


def test_an_apply_that_fails_the_second_time_is_said(tmp_path: Path) -> None:
    seen: set[int] = set()

    class Fickle(InPlace):
        def apply(self, state: list[int], event: EventEnvelope) -> list[int] | None:
            n = event.payload["n"]
            if n in seen or n < 0:
                raise ValueError(n)
            seen.add(n)
            return [*state, n]

    fold = fold_of(Fickle(), tmp_path / "a.state")
    with pytest.raises(
        ImpureProjectionError, match=rf"{TOPIC}/0@0 \(demo.counted\) once and failed the second"
    ):
        fold.take(numbered([("a", 1), ("a", -1)]))
    fold.file.close()


def test_what_is_not_flushed_is_bounded_by_events_and_by_bytes(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state")
    records = numbered((f"k{n}", 1) for n in range(fold_module.UNFLUSHED + 10))
    fold.take(records)
    assert fold.manifest.commits == 1
    assert 0 < fold.cursor - fold.file.manifest.cursor < 500
    fold.flush()
    large = [record(counted(1, "a", text="x" * 900_000), n + len(records)) for n in range(40)]
    before = fold.manifest.commits
    fold.take(large)
    assert fold.manifest.commits - before == 2
    poison = [record(counted(-1, "p", text="x" * 900_000), n + len(records) + 40) for n in range(40)]
    fold.take(poison)
    assert fold.manifest.commits - before >= 4
    fold.file.close()


def test_rows_in_memory_are_bounded(tmp_path: Path) -> None:
    fold = fold_of(History(), tmp_path / "a.state")
    fold.take(numbered((f"k{n}", 1) for n in range(25_000)))
    fold.flush()
    assert len(fold._states) <= CACHED_ROWS
    fold.take(numbered(((f"p{n}", -1) for n in range(25_000)), 25_000))
    assert len(fold._held._known) <= 10_000
    fold.flush()
    assert fold.manifest.held == fold.manifest.blocked == 25_000
    fold.file.close()


def test_a_damaged_row_stops_the_fold(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    projection = History()
    fold = fold_of(projection, path)
    fold.take(numbered([("a", 1)]))
    fold.flush()
    fold.file.close()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"sa[1]", b"sa[2]"))
    assert path.read_bytes() != data
    fold = PartitionFold(projection, fold._codec, StateFile.open(path, identity(projection)), journal=False)
    with pytest.raises(StateFileError, match=r"the row 'a' is damaged"):
        fold.take(numbered([("a", 2)], 1))
    fold.file.close()


@pytest.mark.parametrize("headers_only", [False, True])
def test_what_nobody_signed_is_a_letter_that_holds_nothing_back(tmp_path: Path, headers_only: bool) -> None:
    """Under the key that it claims, it would hold back the honest events of that key."""
    signer = Signer(bytes(range(32)), "ours")
    codec = EnvelopeCodec(CODEC.catalogue, verifier=Verifier({"ours": signer.public_key}, required=True))
    forged, honest = record(counted(1, "a", clock=CLOCK), 0), record(counted(2, "a", clock=CLOCK), 1)
    [proof] = RecordSigner(signer).prove([(TOPIC, 0, "a", honest.headers, honest.value)])
    fold = fold_of(Heads() if headers_only else History(), tmp_path / "a.state")
    fold.take(
        [
            Record(TOPIC, 0, 0, 7, "a", forged.headers, forged.value, codec),
            Record(TOPIC, 0, 1, 7, "a", [*honest.headers, proof], honest.value, codec),
        ]
    )
    fold.flush()
    [letter] = fold.letters()
    assert (letter.offset, letter.key) == (0, None)
    assert len(states(fold)["a"]) == 1
    fold.file.close()
