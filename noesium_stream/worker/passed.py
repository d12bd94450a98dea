"""What of an inbox was passed over and is not in the journal yet: ranges of offsets, in the state's file.

It may be long: what is sent again and again while one command waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from noesium_stream.worker.state_file import StateFile, row_sum

PASSED_BYTES: Final = 1_000
"""Of a copy's header, for places that were passed over."""


class PassedOver:
    """The table `passed` of a state's file.

    Args:
        file: the state's.
        change: puts rows into a table, or takes some out, and counts them.
    """

    def __init__(self, file: StateFile, change: Callable[[str, str, Sequence[Any]], None]) -> None:
        self._file = file
        self._change = change

    def add(self, offset: int) -> None:
        """One more; harmless when repeated."""
        found = self._read("first <= ? ORDER BY first DESC LIMIT 1", (offset,))
        if found and found[0][1] >= offset:
            return
        if found and found[0][1] == offset - 1:
            first = found[0][0]
            row = (offset, row_sum(first, offset), first)
            self._file.change("UPDATE passed SET last = ?, sum = ? WHERE first = ?", row)
        else:
            self._put(offset, offset)

    def to_record(self, low: int) -> tuple[list[tuple[int, int]], bool]:
        """The first and last offsets of ranges that have room in a header; whether there are more.

        What lies below `low` alone need not be recorded.
        """
        ranges: list[tuple[int, int]] = []
        size = 0
        for passed in self._read("last >= ? ORDER BY first LIMIT ?", (low, PASSED_BYTES // 4)):
            if size >= PASSED_BYTES:
                return ranges, True
            ranges.append(passed)
            size += 2 * len(str(passed[1])) + 4
        return ranges, False

    def recorded(self, first: int, last: int) -> None:
        """A range of `to_record` is in the journal."""
        self._change("passed", "DELETE FROM passed WHERE first >= ? AND last <= ?", (first, last))

    def forget_below(self, low: int) -> None:
        """The journal says that all below is decided on."""
        if self._file.manifest.counts["passed"]:
            self._change("passed", "DELETE FROM passed WHERE last < ?", (low,))

    def forget_from(self, offset: int) -> None:
        """What lies there is read again, and may be something else by then."""
        for first, _ in self._read("last >= ?", (offset,)):
            self._change("passed", "DELETE FROM passed WHERE first = ?", (first,))
            if first < offset:
                self._put(first, offset - 1)

    def _put(self, first: int, last: int) -> None:
        self._change("passed", "INSERT INTO passed VALUES (?, ?, ?)", (first, last, row_sum(first, last)))

    def _read(self, where: str, values: Sequence[Any]) -> list[tuple[int, int]]:
        if not self._file.manifest.counts["passed"]:
            return []
        rows = self._file.read(f"SELECT first, last, sum FROM passed WHERE {where}", values)
        for first, last, found in rows:
            if row_sum(first, last) != found:
                raise self._file.broken("the row of what was passed over is damaged")
        return [(first, last) for first, last, _ in rows]
