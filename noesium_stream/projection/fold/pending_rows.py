"""Rows of a state file that are changed but not written yet."""

from __future__ import annotations

from typing import Final

from noesium_stream.errors import SequenceGapError
from noesium_stream.log.headers import ORIGIN, SEQUENCE
from noesium_stream.log.record import Record
from noesium_stream.projection.state.state_file import StateFile

NEXT: Final = b"q"
"""First byte of the keys of rows that hold a run's next sequence number."""
CACHED_RUNS: Final = 10_000


class PendingRows:
    """The changes of the next commit, on top of a file.

    Attributes:
        rows: new values by key; None removes a row.
    """

    def __init__(self, file: StateFile) -> None:
        self.file = file
        self.rows: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        """A row's value including unwritten changes; None if there is none. Raises `StateFileError`."""
        if key in self.rows:
            return self.rows[key]
        return self.file.get(key)


class RunNumbers:
    """The next expected sequence number of each run in a journal (law 2).

    Args:
        pending: where the numbers are stored.
        copies: whether copies of another journal's records are folded too.
    """

    def __init__(self, pending: PendingRows, *, copies: bool) -> None:
        self._pending = pending
        self._copies = copies
        self._next: dict[str, int] = {}
        self._new: set[str] = set()

    def is_next(self, record: Record) -> bool:
        """Advance the run's number; False if the record is a repeat, or a copy that is not folded.

        A record without a number is always next.

        Raises:
            CorruptRecordError: the number is invalid.
            SequenceGapError: records of the run are missing before it.
            StateFileError: the stored number is damaged.
        """
        number = record.number
        if number is None:
            return True
        return self._count_on(record, number) and (self._copies or record.header(ORIGIN) is None)

    def _count_on(self, record: Record, found: int) -> bool:
        run = record.key
        expected = self._next.get(run)
        if expected is None:
            stored = self._pending.get(NEXT + run.encode())
            if stored is not None:
                expected = int(stored)
            else:  # if the log was truncated before the state began, the run may have begun in the lost part
                expected = found if self._pending.file.manifest.first else 0
        if found < expected:
            return False
        if found > expected:
            raise SequenceGapError(
                f"The journal lacks records {expected} to {found - 1} of the run {run}: "
                f"{record.topic}/{record.partition}@{record.offset} has the number {found}.",
                hint="Nothing after it was folded. Was the topic truncated or copied?",
            )
        self._next[run] = found + 1
        self._new.add(run)
        return True

    def give_back(self, record: Record) -> None:
        """Revert `is_next` for a record that was not folded, so that it is expected again."""
        numbered = record.header(SEQUENCE) is not None
        if numbered and record.key in self._next:  # else `forget` has dropped it
            self._next[record.key] -= 1

    def settle(self) -> None:
        """Add the changed numbers to the pending rows."""
        for run in self._new:
            self._pending.rows[NEXT + run.encode()] = b"%d" % self._next[run]

    def written(self) -> None:
        """Note that the pending rows are in the file."""
        self._new.clear()
        if len(self._next) > CACHED_RUNS:
            self._next.clear()

    def forget(self) -> None:
        """Go back to what is in the file."""
        self._new.clear()
        self._next.clear()
