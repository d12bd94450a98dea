"""Pauses between attempts."""

from __future__ import annotations

from noesium_stream.tool.mcp.backoff import Backoff


def test_pauses_double_up_to_the_longest_until_something_worked() -> None:
    pauses = Backoff(first_s=1, longest_s=5)
    assert [pauses.next_s(1.0) for _ in range(5)] == [1, 2, 4, 5, 5]
    assert Backoff(first_s=1).next_s(0.0) == 0.5
    pauses.worked()
    assert pauses.next_s(1.0) == 1
    pauses.failures = 10_000
    assert pauses.next_s(1.0) == 5
