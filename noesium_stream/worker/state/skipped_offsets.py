"""Inbox offsets that were skipped and are not journaled yet, as ranges in the state file.

There may be many: a client may repeat a record again and again while one command waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from noesium_stream.worker.state.state_file import StateFile, row_sum

SKIPPED_BYTES: Final = 1_000
"""Room for skipped offsets in the header of a copy."""


class SkippedOffsets:
    """The table `skipped` of a state file.

    Args:
        file: the state file.
        change: inserts or deletes rows of a table and keeps their count.
    """

    def __init__(self, file: StateFile, change: Callable[[str, str, Sequence[Any]], None]) -> None:
        self._file = file
        self._change = change

    def add(self, offset: int) -> None:
        """Add an offset; harmless when repeated."""
        found = self._read("first <= ? ORDER BY first DESC LIMIT 1", (offset,))
        if found and found[0][1] >= offset:
            return
        if found and found[0][1] == offset - 1:
            first = found[0][0]
            row = (offset, row_sum(first, offset), first)
            self._file.change("UPDATE skipped SET last = ?, sum = ? WHERE first = ?", row)
        else:
            self._put(offset, offset)

    def to_record(self, low: int) -> tuple[list[tuple[int, int]], bool]:
        """Pick the ranges (first and last offset) that fit into a header; return whether there are more.

        Ranges that end below `low` need not be recorded.
        """
        ranges: list[tuple[int, int]] = []
        size = 0
        for skipped in self._read("last >= ? ORDER BY first LIMIT ?", (low, SKIPPED_BYTES // 4)):
            if size >= SKIPPED_BYTES:
                return ranges, True
            ranges.append(skipped)
            size += 2 * len(str(skipped[1])) + 4
        return ranges, False

    def recorded(self, first: int, last: int) -> None:
        """Remove a range that is in the journal now (see `to_record`)."""
        self._change("skipped", "DELETE FROM skipped WHERE first >= ? AND last <= ?", (first, last))

    def forget_below(self, low: int) -> None:
        """Remove the ranges below `low`: according to the journal, all offsets there are decided on."""
        self._change("skipped", "DELETE FROM skipped WHERE last < ?", (low,))

    def forget_from(self, offset: int) -> None:
        """Remove all from `offset` on: those records are read again and may be other ones by then."""
        for first, _ in self._read("last >= ?", (offset,)):
            self._change("skipped", "DELETE FROM skipped WHERE first = ?", (first,))
            if first < offset:
                self._put(first, offset - 1)

    def _put(self, first: int, last: int) -> None:
        self._change("skipped", "INSERT INTO skipped VALUES (?, ?, ?)", (first, last, row_sum(first, last)))

    def _read(self, where: str, values: Sequence[Any]) -> list[tuple[int, int]]:
        if not self._file.manifest.counts["skipped"]:
            return []
        rows = self._file.read(f"SELECT first, last, sum FROM skipped WHERE {where}", values)
        for first, last, found in rows:
            if row_sum(first, last) != found:
                raise self._file.broken("a row of skipped offsets is damaged")
        return [(first, last) for first, last, _ in rows]
