"""State of an owned partition: a fold over its journal, and over its inbox up to `position`.

How the data flows:

 - An inbox record is read once and decided on once. A request to an open run, and a record that is no valid
   request (a dead letter), are accepted at once: the journal gets a copy that names the inbox offset. A
   record that changes nothing (a repetition, a request to a run that has ended) is skipped, without a copy.
   A command waits in the table `waiting` until its turn comes. Records sent to its run meanwhile wait behind
   it. They are copied when the command starts, so copies are not in inbox order.
 - The journal alone tells which records were decided on: all below its low-water mark, and above it the
   offsets that copies name and those that were skipped. Mark and skipped offsets are a header of a copy
   (`noesium_inbox`: `{"low": 17, "passed": [[19, 21]], "fair": "…"}`; `"more": true` if the header has no
   room for all skipped offsets). Later commits may rely on it. An offset that was skipped and is not in the
   journal yet (table `skipped`) is skipped again by the next reader: the records it was judged by were on the
   log before it counted as skipped (`inbox/decide.py`), and they do not change.
 - A request that this worker cannot take, but another one may, is deferred (`inbox/deferred_requests.py`): a
   journal record decides on its inbox offset and keeps the request, until another record says that it was
   dealt with.
 - `position` is the next inbox offset to read. Every record below it is decided on or waits. A copy deletes
   its record from `waiting` if it is there; if the copy is ahead of `position`, its offset is remembered in
   `decided` until `position` has passed it. A state that is folded anew reads the inbox from the low-water
   mark.
 - Open runs are known with the journal offsets of their records, ended runs by id and time (`known_runs`).

After each commit its records are folded, by the same code that reads a journal back. The file (`state_file`)
is written from time to time (`write`). It may be of any age: what came later is read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from noesium_stream.event.standard import RequestParked, RequestResumed
from noesium_stream.log.headers import INBOX, SEQUENCE, SOURCE
from noesium_stream.log.record import Record
from noesium_stream.worker.state.journal_entry import ACQUIRED, OUTGROWN, Entry
from noesium_stream.worker.state.known_runs import Bounds, KnownRuns
from noesium_stream.worker.state.skipped_offsets import SkippedOffsets
from noesium_stream.worker.state.state_file import Manifest, StateFile, row_sum


class PartitionState:
    """The state of one partition; all of it is a fold.

    Args:
        file: the state file.
        inbox: inbox topic.
        bounds: how long and how many ended runs are known.

    Attributes:
        manifest: the state that is not kept in tables. It is current; the file has it as of the last `write`.
        open: the open runs by id; only the fold changes it.
        starting: commands, with their fairness keys, that started without being queued and whose commit is
            under way; by inbox offset. They are queued only if the file is written meanwhile.
    """

    def __init__(self, file: StateFile, inbox: str, bounds: Bounds) -> None:
        self.file: Final = file
        self.manifest: Final[Manifest] = file.manifest
        self._inbox = inbox
        self._skipped = SkippedOffsets(file, self.change)
        self._runs = KnownRuns(file, bounds, self.change)
        self.open: Final = self._runs.open
        self.starting: Final[dict[int, tuple[Record, str]]] = {}
        self._verify()

    def _verify(self) -> None:
        for offset, found in self.file.read("SELECT inbox_offset, sum FROM decided"):
            if row_sum(offset) != found:
                raise self.file.broken("the row of a decided record is damaged")
        # Records from there on are read again, and the inbox may have other ones by then.
        self._skipped.forget_from(self.manifest.position)

    # -- the journal ---------------------------------------------------------------------------------

    def evolve(self, entry: Entry) -> None:
        """Fold the next record of the journal.

        Raises:
            CheckpointError: a run's sequence has a gap: the journal lost a record.
            StateFileError, ProjectionError: the file cannot be read or written.
        """
        manifest = self.manifest
        if entry.event_type in _OF_PARTITION and entry.payload is not None:
            _OF_PARTITION[entry.event_type](self, entry.payload)
        headers = entry.headers
        source = headers.get(SOURCE)
        if source is not None:
            topic, _, offset = source.decode().rsplit("/", 2)
            if topic == self._inbox:
                self._decided(int(offset))
                if SEQUENCE in headers:
                    self._copied(int(offset), entry.event_id)
        mark = headers.get(INBOX)
        if mark is not None:
            self._marked(orjson.loads(mark))
        if entry.event_type in _OF_REQUESTS and entry.payload is not None:
            _OF_REQUESTS[entry.event_type](self, entry.offset, entry.payload)
        number = headers.get(SEQUENCE)
        if number is not None:
            self._runs.take(entry, int(number))
        manifest.cursor, manifest.last_offset = entry.offset + 1, entry.offset
        manifest.last_event_id = entry.event_id

    def _acquired(self, payload: Mapping[str, Any]) -> None:
        manifest = self.manifest
        manifest.in_order = payload.get("in_order", True)
        if payload["inbox_id"] != manifest.inbox_id:
            # The inbox was created anew: offsets of the old one mean nothing in it.
            manifest.inbox_id, manifest.position, manifest.low = payload["inbox_id"], 0, 0
            manifest.last_read = manifest.last_copy = None
            for table in ("waiting", "decided", "skipped"):
                self.file.change(f"DELETE FROM {table}")
                manifest.counts[table] = 0

    def _outgrown(self, payload: Mapping[str, Any]) -> None:
        self.manifest.successor = payload["generation"], payload["partitions"]

    def _deferred(self, offset: int, payload: Mapping[str, Any]) -> None:
        fields, body = (offset, payload["run_id"], payload["reason"]), orjson.dumps(payload)
        row = (*fields, body, row_sum(*fields, value=body))
        self.change("deferred", "INSERT OR IGNORE INTO deferred VALUES (?, ?, ?, ?, ?)", row)

    def _resumed(self, offset: int, payload: Mapping[str, Any]) -> None:
        for deferred in payload["offsets"]:
            self.change("deferred", "DELETE FROM deferred WHERE journal_offset = ?", (deferred,))

    def _decided(self, offset: int) -> None:
        manifest = self.manifest
        if manifest.in_order:
            self._advance(offset + 1)
        elif offset >= manifest.position:
            self.change("decided", "INSERT OR IGNORE INTO decided VALUES (?, ?)", (offset, row_sum(offset)))
        elif self.starting.pop(offset, None) is None and manifest.counts["waiting"]:
            self.change("waiting", "DELETE FROM waiting WHERE inbox_offset = ?", (offset,))

    def _marked(self, mark: Mapping[str, Any]) -> None:
        for first, last in mark.get("passed", ()):
            for offset in range(first, last + 1):
                self._decided(offset)
            self._skipped.recorded(first, last)
        if "fair" in mark:
            self.manifest.last_fair = mark["fair"]
        self._advance(mark["low"])
        if not mark.get("more"):
            self._runs.forget()

    def _copied(self, offset: int, event_id: str) -> None:
        last = self.manifest.last_copy
        if last is None or offset > last[0]:
            self.manifest.last_copy = offset, event_id

    def _advance(self, low: int) -> None:
        manifest = self.manifest
        if low <= manifest.low:
            return
        manifest.low = low
        if manifest.counts["waiting"]:
            self.change("waiting", "DELETE FROM waiting WHERE inbox_offset < ?", (low,))
        if manifest.counts["skipped"]:
            self._skipped.forget_below(low)
        self.read_to(max(low, manifest.position))

    # -- the runs ------------------------------------------------------------------------------------

    def has_ended(self, run_id: str) -> bool:
        """See `KnownRuns.has_ended`."""
        return self._runs.has_ended(run_id)

    def __contains__(self, run_id: object) -> bool:
        """Whether the run is open, or has ended."""
        return isinstance(run_id, str) and (run_id in self.open or self.has_ended(run_id))

    def rests(self, run_id: str, due_ms: int | None) -> None:
        """See `KnownRuns.rests`."""
        self._runs.rests(run_id, due_ms)

    def stirs(self, run_id: str) -> None:
        """See `KnownRuns.stirs`."""
        self._runs.stirs(run_id)

    def carry(self, graph: str) -> None:
        """Set the graph that the owner has; a run that rested with another graph does not rest any more."""
        if self.manifest.graph != graph:
            self.manifest.graph = graph
            for run_id in self.open:
                self.stirs(run_id)

    # -- the inbox -----------------------------------------------------------------------------------

    @property
    def inbox_until(self) -> int:
        """Smallest end that the inbox must have: all records below were read or decided on."""
        [(last,)] = self.file.read("SELECT max(inbox_offset) FROM decided")
        position = self.manifest.position
        return position if last is None else max(position, last + 1)

    def is_decided(self, offset: int) -> bool:
        """Whether the journal has decided on an inbox record at or above `position`."""
        if not self.manifest.counts["decided"]:
            return False
        return bool(self.file.read("SELECT 1 FROM decided WHERE inbox_offset = ?", (offset,)))

    def skip(self, offset: int) -> None:
        """Note that an inbox record changes nothing; the next copy records it."""
        self._skipped.add(offset)

    def queue(self, record: Record, fair: str) -> None:
        """Put an inbox record into the queue, under a fairness key, or under "" behind its run's command."""
        headers = orjson.dumps(texts_of(record.headers))
        fields = (record.offset, record.key, fair, record.timestamp_ms)
        row = (*fields, headers, record.value, row_sum(*fields, value=headers + record.value))
        self.change("waiting", "INSERT OR IGNORE INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def read_to(self, position: int, last: Record | None = None) -> None:
        """Move `position`: all inbox records below are decided on or queued; `last` is the last one read."""
        self.manifest.position = position
        if last is not None:
            self.manifest.last_read = last.offset, sum_of(last)
        if self.manifest.counts["decided"]:
            self.change("decided", "DELETE FROM decided WHERE inbox_offset < ?", (position,))

    @property
    def low_water(self) -> int:
        """Inbox offset below which all records are decided on."""
        low = min(self.starting, default=self.manifest.position)
        if self.manifest.counts["waiting"]:
            [(first,)] = self.file.read("SELECT min(inbox_offset) FROM waiting")
            low = low if first is None else min(first, low)
        return min(low, self.manifest.position)

    def dealt_with(self, handled: int) -> int:
        """Inbox offset below which all was dealt with, when the inbox reader is at `handled`."""
        waits = bool(self.manifest.counts["waiting"] or self.starting)
        return self.low_water if waits else max(self.manifest.position, handled)

    def mark(self, last_fair: str | None = None) -> tuple[str, bytes]:
        """Make the inbox header of a copy that is about to be committed.

        `last_fair` is the fairness key of the command that the copy accepts, if it is one.
        """
        low = self.low_water
        said: dict[str, Any] = {"low": low}
        if self.manifest.counts["skipped"]:
            ranges, more = self._skipped.to_record(low)
            if ranges:
                said["passed"] = ranges
            if more:
                said["more"] = True
        if last_fair is not None:
            said["fair"] = last_fair
        return INBOX, orjson.dumps(said)

    # -- the file ------------------------------------------------------------------------------------

    def write(self) -> None:
        """Bring the file up to date.

        The file says that the inbox was read to `position`, so all records below are decided on or queued.

        Raises:
            StateFileError, ProjectionError: the file cannot be written.
        """
        for offset, (record, fair) in list(self.starting.items()):
            self.queue(record, fair)
            del self.starting[offset]
        self._runs.write()
        self.file.commit()

    def close(self) -> None:
        """Bring the file up to date and close it."""
        try:
            self.write()
        finally:
            self.file.close()

    def change(self, table: str, statement: str, values: Sequence[Any]) -> None:
        """Insert or delete rows of a table and keep their count.

        Raises:
            StateFileError, ProjectionError: the file cannot be read or written.
        """
        changed = self.file.change(statement, values)
        self.manifest.counts[table] += -changed if statement.startswith("DELETE") else changed


_OF_PARTITION: Final = {
    ACQUIRED: PartitionState._acquired,
    OUTGROWN: PartitionState._outgrown,
}

_OF_REQUESTS: Final = {
    RequestParked.TYPE: PartitionState._deferred,
    RequestResumed.TYPE: PartitionState._resumed,
}


def texts_of(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, str]]:
    """Make headers fit for JSON: values as Latin-1 text; a null value, which Kafka allows, becomes empty."""
    return [(name, (value or b"").decode("latin-1")) for name, value in headers]


def sum_of(record: Record) -> str:
    """Compute a checksum that identifies an inbox record."""
    return row_sum(record.key, value=record.value).hex()
