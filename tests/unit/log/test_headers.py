"""The commit that a record is of stands in its header, counted within its partition."""

from __future__ import annotations

from noesium_stream.log.prepare import commit_header, commit_headers

A, B = ("t", 0), ("t", 1)


def test_each_record_is_counted_within_its_place() -> None:
    found = commit_headers("c-1", [A, B, A, A], {})
    one = [commit_header("c-1", index, count) for index, count in ((0, 3), (0, 1), (1, 3), (2, 3))]
    assert found == one


def test_what_a_transaction_has_already_comes_first() -> None:
    counts = {A: 2}
    assert commit_headers("c-1", [A, B], counts) == [commit_header("c-1", 2, 3), commit_header("c-1", 0, 1)]
    assert counts == {A: 3, B: 1}


def test_large_numbers_are_written_too() -> None:
    found = commit_headers("c-1", [A] * 1_500, {A: 2_000})
    assert found == [commit_header("c-1", index, 3_500) for index in range(2_000, 3_500)]
