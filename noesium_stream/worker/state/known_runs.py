"""The runs of a partition that the state knows from the journal.

Open runs are kept with the offsets of their records, ended runs with their id and the time of their end.

A run rests when it only waits and its last owner has proven that. The proof holds for the graph that this
owner had, and any new record of the run ends it.

The promise about repeated commands: a command is recognized as a repetition if it comes within
`Bounds.seen_s` after its run has ended, and while no more than `Bounds.seen_count` runs of the partition have
ended since. The clock is the time of the runs' ends, by their owners' clocks: as long as no run ends, no run
is forgotten. Open runs are never forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from noesium_stream.errors import CheckpointError
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import RunSegmentStarted
from noesium_stream.log.headers import DEADLINE
from noesium_stream.worker.state.journal_entry import Entry
from noesium_stream.worker.state.state_file import StateFile, row_sum

SPAN_GAP: Final = 256
"""Records of a run that are closer than this are one span; records between them are read, not decoded."""

SEGMENT_STARTED: Final = RunSegmentStarted.TYPE
_HEAD: Final = 2
"""Records of a run that are read whatever its segment is: its command and `run.started`."""

_NOT_ENDED: Final = 4_096
"""Size of the cache of run ids that were not found among the ended runs."""

SEEN_S: Final = 30 * 86_400.0
SEEN_COUNT: Final = 200_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long ended runs are known by their ids, in seconds, and the most of them in a partition."""

    seen_s: float = SEEN_S
    seen_count: int = SEEN_COUNT


@dataclass(slots=True)
class OpenRun:
    """A run that has not ended.

    Attributes:
        count: number of its records.
        spans: journal offsets of the records that are read: first and last of each span, both included.
        rests: whether it only waits, proven by its owner.
        due_ms: when a resting run is due to go on by itself; None: it waits for a record.
        deadline_ms: the run's deadline; None: it has none.
        first: the number of the record with which its segment begins; 0: it is in its first one.
        head: journal offsets of its first two records, its command and `run.started`.
    """

    count: int = 0
    spans: list[list[int]] = field(default_factory=list)
    rests: bool = False
    due_ms: int | None = None
    deadline_ms: int | None = None
    first: int = 0
    head: list[int] = field(default_factory=list)

    def follows(self, read: int) -> int:
        """The number of the record that follows when so many were read: records of old segments are not."""
        return read if read < len(self.head) or not self.first else self.first + read - len(self.head)

    @property
    def needed(self) -> int:
        """How many of its records are read when it is loaded."""
        return self.count - (self.first - len(self.head) if self.first else 0)

    def place(self, number: int, offset: int, *, begins: bool) -> None:
        """Note the offset of its record of this number, and whether it begins a segment."""
        if number < _HEAD:
            self.head.append(offset)
        if begins and number >= _HEAD:
            self.first, self.spans = number, [list(self.head), [offset, offset]]
        elif self.spans and offset - self.spans[-1][1] <= SPAN_GAP:
            self.spans[-1][1] = offset
        else:
            self.spans.append([offset, offset])


class KnownRuns:
    """The tables `open` and `ended` of a state file.

    Args:
        file: the state file.
        bounds: how long and how many ended runs are known.
        change: inserts or deletes rows of a table and keeps their count.

    Attributes:
        open: the open runs by id.

    Raises:
        StateFileError: a row is damaged.
    """

    def __init__(
        self, file: StateFile, bounds: Bounds, change: Callable[[str, str, Sequence[Any]], None]
    ) -> None:
        self.open: Final[dict[str, OpenRun]] = {}
        self._file = file
        self._bounds = bounds
        self._change = change
        self._changed: set[str] = set()
        self._in_file: set[str] = set()  # of the open runs, those that have a row
        self._not_ended: set[str] = set()
        for run_id, body, found in file.read("SELECT run_id, body, sum FROM open"):
            if not isinstance(body, bytes) or row_sum(run_id, value=body) != found:
                raise file.broken("the row of an open run is damaged")
            self.open[run_id] = OpenRun(*orjson.loads(body))
            self._in_file.add(run_id)

    def take(self, entry: Entry, number: int) -> None:
        """Fold the `number`th record of a run.

        Raises:
            CheckpointError: the run's sequence has a gap: the journal lost a record.
            StateFileError, ProjectionError: the file cannot be read or written.
        """
        run = self.open.get(entry.key)
        if run is None:
            if self.has_ended(entry.key):
                return
            run = OpenRun()
            if number == 0:
                self.open[entry.key] = run
        if number < run.count:
            return  # a repeated one: the first counts (law 2)
        if number > run.count:
            raise CheckpointError(
                f"{entry.place}@{entry.offset}: run {entry.key} goes from record {run.count - 1} to {number}"
                "; records between are missing.",
                hint="The journal was changed from outside or lost data; restore it before you go on.",
            )
        run.count += 1
        run.rests, run.due_ms = False, None
        deadline = entry.headers.get(DEADLINE)
        if deadline is not None:
            run.deadline_ms = int(deadline)
        self._changed.add(entry.key)
        run.place(number, entry.offset, begins=entry.event_type == SEGMENT_STARTED)
        if entry.event_type in ENDINGS:
            self._ended(entry.key, entry.ms)

    def _ended(self, run_id: str, ms: int) -> None:
        del self.open[run_id]
        self._not_ended.discard(run_id)
        row = (run_id, ms, row_sum(run_id, ms))
        self._change("ended", "INSERT OR IGNORE INTO ended VALUES (?, ?, ?)", row)
        manifest = self._file.manifest
        manifest.newest_ms = max(manifest.newest_ms, ms)

    def forget(self) -> None:
        """Drop ended runs beyond the bounds.

        Call it only for a mark that lists all skipped offsets: those skipped because of a run that is
        dropped here are then in the journal.
        """
        manifest = self._file.manifest
        before = manifest.newest_ms - round(self._bounds.seen_s * 1000)
        self._change("ended", "DELETE FROM ended WHERE ms < ?", (before,))
        surplus = manifest.counts["ended"] - self._bounds.seen_count
        if surplus > 0:
            oldest = "SELECT run_id FROM ended INDEXED BY ended_ms ORDER BY ms, run_id LIMIT ?"
            self._change("ended", f"DELETE FROM ended WHERE run_id IN ({oldest})", (surplus,))

    def has_ended(self, run_id: str) -> bool:
        """Whether a run of this id has ended, as far as that is known (`Bounds`).

        Asked three times for each new run: when its command comes, when its turn comes, and by the fold.
        """
        if run_id in self._not_ended:
            return False
        rows = self._file.read("SELECT ms, sum FROM ended WHERE run_id = ?", (run_id,))
        for ms, found in rows:
            if row_sum(run_id, ms) != found:
                raise self._file.broken("the row of an ended run is damaged")
        if not rows:
            if len(self._not_ended) >= _NOT_ENDED:
                self._not_ended.clear()
            self._not_ended.add(run_id)
        return bool(rows)

    def rests(self, run_id: str, due_ms: int | None) -> None:
        """Note that a run only waits, until `due_ms` at the latest."""
        run = self.open[run_id]
        run.rests, run.due_ms = True, due_ms
        self._changed.add(run_id)

    def stirs(self, run_id: str) -> None:
        """Note that a run goes on or is about to."""
        run = self.open.get(run_id)
        if run is not None and run.rests:
            run.rests, run.due_ms = False, None
            self._changed.add(run_id)

    def write(self) -> None:
        """Bring the rows of the open runs up to date."""
        for run_id in self._changed:
            run = self.open.get(run_id)
            if run is None:
                if run_id in self._in_file:  # most runs end before it is written that they have begun
                    self._file.change("DELETE FROM open WHERE run_id = ?", (run_id,))
                    self._in_file.discard(run_id)
                continue
            body = orjson.dumps(
                (run.count, run.spans, run.rests, run.due_ms, run.deadline_ms, run.first, run.head)
            )
            row = (run_id, body, row_sum(run_id, value=body))
            self._file.change("INSERT OR REPLACE INTO open VALUES (?, ?, ?)", row)
            self._in_file.add(run_id)
        self._changed.clear()
        self._file.manifest.counts["open"] = len(self.open)


def spans_of(runs: Iterable[OpenRun], gap: int) -> list[list[int]]:
    """Merge the spans of several runs, in order; spans closer than `gap` become one."""
    merged: list[list[int]] = []
    for first, last in sorted(span for run in runs for span in run.spans):
        if merged and first - merged[-1][1] <= gap:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged
