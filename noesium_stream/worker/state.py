"""What an owner knows of its partition: a fold over its journal, and over its inbox as far as that was read.

The way of the data:

 - A record of the inbox is read once and decided on once. A request to an open run, and what is none at all
   (a dead letter), are accepted at once: copied into the journal, the copy naming its place in the inbox.
   What is no request to anybody (a repetition, a request to a run that has ended) is passed over, without a
   copy. A command waits here (`waiting`) until its turn comes, and what is sent to its run meanwhile waits
   behind it; then they are copied. So copies do not lie in the order of the inbox.
 - The journal alone tells what was decided on: all below its low-water mark, and above it the places that
   copies name and those that were passed over. Mark and places passed over are a header of a copy
   (`noesium_inbox`: `{"low": 17, "passed": [[19, 21]], "fair": "…"}`; `"more": true` where not all that were
   passed over have room in it): whatever is committed afterwards can rest on it. What is passed over and not
   recorded yet (`passed`) is passed over again by whoever reads it again, for nothing that it was judged by
   has changed on the log: what it is judged by is there before it counts as passed over (`decisions`).
 - What this worker cannot take and another one may is parked (`kept`): a record of the journal decides on its
   place in the inbox and keeps it, until another one says that it is dealt with.
 - `position` is where the inbox is read on. Below it lies what is decided on and what waits here; so a copy
   takes its record out of `waiting`, if it lies there, and else is remembered (`decided`) until `position`
   has come past it. A state that is folded anew begins to read the inbox at the low-water mark.
 - Open runs are here with the places of their records in the journal, ended ones by id and time
   (`known_runs`).

After each commit its records are folded, by the same code that reads a journal back. The file (`state_file`)
is written now and then (`write`): it may be as old as it likes, what came since is read from the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from noesium_stream.event.standard import RequestParked, RequestResumed
from noesium_stream.log.headers import INBOX, SEQUENCE, SOURCE
from noesium_stream.log.record import Record
from noesium_stream.worker.entry import ACQUIRED, OUTGROWN, Entry
from noesium_stream.worker.known_runs import Bounds, KnownRuns
from noesium_stream.worker.passed import PassedOver
from noesium_stream.worker.state_file import Manifest, StateFile, row_sum


class PartitionState:
    """The state of one partition; all of it is a fold.

    Args:
        file: where it is kept.
        inbox: topic of the inbox.
        bounds: of the ended runs that are known.

    Attributes:
        open: the open runs by id; to be changed by the fold alone.
    """

    def __init__(self, file: StateFile, inbox: str, bounds: Bounds) -> None:
        self.file: Final = file
        self._inbox = inbox
        self._passed = PassedOver(file, self.change)
        self._runs = KnownRuns(file, bounds, self.change)
        self.open: Final = self._runs.open
        self._verify()

    @property
    def manifest(self) -> Manifest:
        """What is no table; it is current, and the file's as of the last `write`."""
        return self.file.manifest

    def _verify(self) -> None:
        for offset, found in self.file.read("SELECT inbox_offset, sum FROM decided"):
            if row_sum(offset) != found:
                raise self.file.broken("the row of a decided record is damaged")
        # What lies behind is read again, and may be something else by then.
        self._passed.forget_from(self.manifest.position)

    # -- the journal ---------------------------------------------------------------------------------

    def fold(self, entry: Entry) -> None:
        """Take the next record of the journal.

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
            # The inbox was made anew: offsets of the old one say nothing about it.
            manifest.inbox_id, manifest.position, manifest.low = payload["inbox_id"], 0, 0
            manifest.last_read = manifest.last_copy = None
            for table in ("waiting", "decided", "passed"):
                self.file.change(f"DELETE FROM {table}")
                manifest.counts[table] = 0

    def _outgrown(self, payload: Mapping[str, Any]) -> None:
        self.manifest.successor = payload["generation"], payload["partitions"]

    def _parked(self, offset: int, payload: Mapping[str, Any]) -> None:
        fields, body = (offset, payload["run_id"], payload["reason"]), orjson.dumps(payload)
        row = (*fields, body, row_sum(*fields, value=body))
        self.change("parked", "INSERT OR IGNORE INTO parked VALUES (?, ?, ?, ?, ?)", row)

    def _resumed(self, offset: int, payload: Mapping[str, Any]) -> None:
        for parked in payload["offsets"]:
            self.change("parked", "DELETE FROM parked WHERE journal_offset = ?", (parked,))

    def _decided(self, offset: int) -> None:
        manifest = self.manifest
        if manifest.in_order:
            self._advance(offset + 1)
        elif offset >= manifest.position:
            self.change("decided", "INSERT OR IGNORE INTO decided VALUES (?, ?)", (offset, row_sum(offset)))
        else:
            self.change("waiting", "DELETE FROM waiting WHERE inbox_offset = ?", (offset,))

    def _marked(self, mark: Mapping[str, Any]) -> None:
        for first, last in mark.get("passed", ()):
            for offset in range(first, last + 1):
                self._decided(offset)
            self._passed.recorded(first, last)
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
        self.change("waiting", "DELETE FROM waiting WHERE inbox_offset < ?", (low,))
        self._passed.forget_below(low)
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
        """Say which graph the owner has: what rested with another one does not rest here."""
        if self.manifest.graph != graph:
            self.manifest.graph = graph
            for run_id in self.open:
                self.stirs(run_id)

    # -- the inbox -----------------------------------------------------------------------------------

    @property
    def inbox_until(self) -> int:
        """The inbox has to go as far as this: what lies before was read, or is decided on."""
        [(last,)] = self.file.read("SELECT max(inbox_offset) FROM decided")
        position = self.manifest.position
        return position if last is None else max(position, last + 1)

    def is_decided(self, offset: int) -> bool:
        """Whether the journal has decided on a record at or behind `position`."""
        if not self.manifest.counts["decided"]:
            return False
        return bool(self.file.read("SELECT 1 FROM decided WHERE inbox_offset = ?", (offset,)))

    def pass_over(self, offset: int) -> None:
        """A record of the inbox changes nothing; that will be recorded with the next copy."""
        self._passed.add(offset)

    def read_to(self, position: int, last: Record | None = None) -> None:
        """All records of the inbox below `position` are decided on or wait here; `last` is their last one."""
        self.manifest.position = position
        if last is not None:
            self.manifest.last_read = last.offset, sum_of(last)
        if self.manifest.counts["decided"]:
            self.change("decided", "DELETE FROM decided WHERE inbox_offset < ?", (position,))

    @property
    def low_water(self) -> int:
        """All records of the inbox below this offset are decided on."""
        [(first,)] = self.file.read("SELECT min(inbox_offset) FROM waiting")
        position = self.manifest.position
        return position if first is None else min(first, position)

    def dealt_with(self, handled: int) -> int:
        """All of the inbox below this was dealt with, where its reader is at `handled`."""
        waits = bool(self.manifest.counts["waiting"])
        return self.low_water if waits else max(self.manifest.position, handled)

    def mark(self, last_fair: str | None = None) -> tuple[str, bytes]:
        """The header of a copy that is about to be committed; `last_fair`: whose command it accepts."""
        low = self.low_water
        ranges, more = self._passed.to_record(low)
        said: dict[str, Any] = {"low": low, **({"passed": ranges} if ranges else {})}
        if more:
            said["more"] = True
        if last_fair is not None:
            said["fair"] = last_fair
        return INBOX, orjson.dumps(said)

    # -- the file ------------------------------------------------------------------------------------

    def write(self) -> None:
        """Bring the file up to date.

        Raises:
            StateFileError, ProjectionError: it cannot be written.
        """
        self._runs.write()
        self.file.commit()

    def close(self) -> None:
        """Bring the file up to date and let go of it."""
        try:
            self.write()
        finally:
            self.file.close()

    def change(self, table: str, statement: str, values: Sequence[Any]) -> None:
        """Put rows into a table, or take some out; counted.

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
    RequestParked.TYPE: PartitionState._parked,
    RequestResumed.TYPE: PartitionState._resumed,
}


def sum_of(record: Record) -> str:
    """A checksum by which a record of the inbox is known again."""
    return row_sum(record.key, value=record.value).hex()
