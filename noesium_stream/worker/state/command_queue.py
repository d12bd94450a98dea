"""Queue of the commands of a partition that wait to start.

The queue is a table of the state file, because it may be larger than the memory. A record that is sent to a
run whose command waits is queued behind that command.

A command leaves the queue when its journal copy is folded. From `take` until then it is under way and is not
picked again. The commands of one fairness key are taken in order, so the last offset taken stands for all of
them. A command that starts as soon as it is read is not written to the table, unless the state file is
written while its commit is under way (`PartitionState.starting`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from noesium_stream.log.record import Decoder, Record
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.state_file import row_sum

PICKED_BYTES: Final = 8_000_000
"""Most bytes that are picked at a time; one command is picked whatever its size."""

_COLUMNS: Final = "inbox_offset, run_id, fair, since_ms, headers, value, sum"
_OF_KEY: Final = "SELECT 1 FROM waiting INDEXED BY waiting_fair WHERE fair = ?"
_NEXT_KEYS: Final = (
    "SELECT (SELECT min(fair) FROM waiting INDEXED BY waiting_fair WHERE fair > ?),"
    " (SELECT min(fair) FROM waiting INDEXED BY waiting_fair WHERE fair > '')"
)
"""Query for the key that follows a given one, and for the first key."""

_ROWS: Final = 16
"""Most commands of one key that are read at a time."""

_BEHIND: Final = ""
"""Fairness key of a record that is queued behind a command: it gets no turn of its own."""


class Turn(NamedTuple):
    """A command that is next to start, and its fairness key."""

    fair: str
    record: Record


class CommandQueue:
    """The queued commands of a partition.

    Args:
        state: state of the partition.
        inbox: inbox topic.
        partition: number of the inbox partition.
        decoder: decoder of the inbox records.
    """

    def __init__(self, state: PartitionState, inbox: str, partition: int, decoder: Decoder) -> None:
        self._state = state
        self._inbox = inbox
        self._partition = partition
        self._decoder = decoder
        self._may_be_behind = bool(state.file.read(f"{_OF_KEY} LIMIT 1", (_BEHIND,)))
        self._oldest_ms = 0
        """Lower bound of the append times of the queued records."""
        self._taken: dict[str, int] = {}
        """Offset of the last command of each key that is under way."""
        self._under_way = 0
        self._last = ""
        """Key of the last turn, counting the commands under way."""
        self._beside: str | None = None
        """Key of the last command that started beside the slots; those commands have turns of their own."""
        self.changes = 0
        """Number of records queued so far."""

    def __len__(self) -> int:
        return self._state.manifest.counts["waiting"] + len(self._state.starting)

    @property
    def written(self) -> int:
        """Number of queued records in the state file."""
        return self._state.manifest.counts["waiting"]

    @property
    def idle(self) -> bool:
        """Whether the queue holds nothing but commands under way."""
        return len(self) <= self._under_way

    def __contains__(self, run_id: object) -> bool:
        """Whether the command of this run is queued."""
        if not self._state.manifest.counts["waiting"]:
            return False
        found = self._read("run_id = ? AND fair > ''", (run_id,), "INDEXED BY waiting_run", limit=1)
        return bool(found)

    def put(self, record: Record, fair: str | None) -> None:
        """Queue an inbox record: a command under its fairness key, or (None) a record behind a command."""
        self._may_be_behind = self._may_be_behind or not fair
        self._oldest_ms = min(self._oldest_ms, record.timestamp_ms)
        self.changes += 1
        self._state.queue(record, fair or _BEHIND)

    def drop(self, offset: int) -> None:
        """Remove a record that was decided on without a journal copy."""
        self._state.change("waiting", "DELETE FROM waiting WHERE inbox_offset = ?", (offset,))

    def take(self, turns: Sequence[Turn], last: str | None) -> None:
        """Mark commands as under way, in order.

        `last` is the key of the last turn; None: the commands started beside the slots, not in their turn.
        """
        for fair, record in turns:
            self._taken[fair] = record.offset
        if not self._under_way:
            self._last = self._state.manifest.last_fair
        self._under_way += len(turns)
        if last is None:
            self.began_beside(turns)
        else:
            self._last = last

    def began_beside(self, turns: Sequence[Turn]) -> None:
        """Note that commands started though no slot was free: the next of that kind follow their key."""
        if turns:
            self._beside = turns[-1].fair

    def taken(self, turns: Sequence[Turn]) -> None:
        """Note that the journal copies of commands are folded: they have left the queue."""
        for fair, record in turns:
            if self._taken.get(fair) == record.offset:
                del self._taken[fair]
        self._under_way -= len(turns)

    def next_ones(self, most: int) -> tuple[list[Turn], str]:
        """Pick at most `most` commands in turn order (see `slots`); return them and the last one's key.

        They stay in the queue until their copies are folded.
        """
        picked: list[Turn] = []
        last = begin = self._last if self._under_way else self._state.manifest.last_fair
        size = 0
        for turn in self._in_turns(begin, most):
            if len(picked) == most or (picked and size + len(turn.record.value) > PICKED_BYTES):
                break
            picked.append(turn)
            last, size = turn.fair, size + len(turn.record.value)
        return picked, last

    def next_beside(self, busy: Collection[str], most: int) -> list[Turn]:
        """Pick the oldest command of each of the next keys that are not in `busy`, at most `most`.

        The next keys are those behind the last key of `began_beside`.
        """
        begin = self._beside
        if begin is None:
            begin = self._last if self._under_way else self._state.manifest.last_fair
        others = (fair for fair in self._circle(begin) if fair not in busy)
        found = (Turn(fair, record) for fair in others for record in self._next_of(fair))
        return list(islice(found, most))

    def _in_turns(self, last: str, most: int) -> Iterator[Turn]:
        ring: list[tuple[str, deque[Record], int]] = []
        for fair in self._circle(last):
            for record in self._next_of(fair):
                ring.append((fair, deque(), record.offset))
                yield Turn(fair, record)
        while ring:
            before, ring = ring, []
            rows = max(1, min(_ROWS, most // len(before)))
            for fair, ready, after in before:
                if not ready:
                    ready.extend(self._rows_of(fair, after, rows))
                if ready:
                    record = ready.popleft()
                    ring.append((fair, ready, record.offset))
                    yield Turn(fair, record)

    def _circle(self, last: str) -> Iterator[str]:
        """Yield each key once, starting behind `last` and wrapping around."""
        key, around = last, False
        while True:
            [(following, first)] = self._state.file.read(_NEXT_KEYS, (key,))
            if following is None and not around:
                following, around = first, True
            if following is None or (around and following > last):
                return
            yield (key := following)

    def _next_of(self, fair: str) -> list[Record]:
        return self._rows_of(fair, self._taken.get(fair, -1), 1)

    def _rows_of(self, fair: str, after: int, most: int) -> list[Record]:
        where = "fair = ? AND inbox_offset > ?"
        return self._read(where, (fair, after), "INDEXED BY waiting_fair", limit=most)

    def behind(self, run_id: str, most: int) -> list[Record]:
        """Read the records queued behind a run's command, in order: at most `most`, and `PICKED_BYTES`.

        Does not query the file while no such record was ever queued.
        """
        if not self._may_be_behind:
            return []
        where, how = "run_id = ? AND fair = ''", "INDEXED BY waiting_run"
        return self._read(where, (run_id,), how, limit=self._count(where, (run_id,), how, most))

    def left_behind(self, most: int) -> list[Record]:
        """Read records whose command has left the queue, oldest first, at most `most`."""
        command = "SELECT 1 FROM waiting AS command INDEXED BY waiting_run"
        gone = f"NOT EXISTS ({command} WHERE command.run_id = waiting.run_id AND command.fair > '')"
        where, how = f"fair = '' AND {gone}", "INDEXED BY waiting_fair"
        return self._read(where, (), how, limit=self._count(where, (), how, most))

    def older_than(self, ms: int, most: int) -> list[Record]:
        """Read the oldest commands that were appended to the inbox before `ms`.

        At most `most` of them, and `PICKED_BYTES`.
        """
        if self._oldest_ms >= ms:
            return []
        oldest = self._state.file.read("SELECT since_ms FROM waiting ORDER BY inbox_offset LIMIT 1")
        self._oldest_ms = oldest[0][0] if oldest else ms
        if self._oldest_ms >= ms:
            return []
        where, how = "since_ms < ? AND fair > ''", "NOT INDEXED"
        return self._read(where, (ms,), how, limit=self._count(where, (ms,), how, most))

    def _count(self, where: str, values: Sequence[Any], how: str, most: int) -> int:
        """Count the first rows that fit into `PICKED_BYTES`, at least one."""
        count = size = 0
        lengths = f"SELECT length(value) FROM waiting {how} WHERE {where} ORDER BY inbox_offset LIMIT ?"
        for (length,) in self._state.file.read(lengths, (*values, most)):
            size += length
            if count and size > PICKED_BYTES:
                break
            count += 1
        return count

    def _read(self, where: str, values: Sequence[Any], how: str, *, limit: int = -1) -> list[Record]:
        rows = self._state.file.read(
            f"SELECT {_COLUMNS} FROM waiting {how} WHERE {where} ORDER BY inbox_offset LIMIT {limit}", values
        )
        return [self._record(row) for row in rows]

    def _record(self, row: Sequence[Any]) -> Record:
        offset, run_id, fair, since_ms, headers, value, found = row
        sound = isinstance(headers, bytes) and isinstance(value, bytes)
        if not sound or row_sum(offset, run_id, fair, since_ms, value=headers + value) != found:
            raise self._state.file.broken(f"the row of the waiting record {offset} is damaged")
        pairs = [(name, text.encode("latin-1")) for name, text in orjson.loads(headers)]
        return Record(self._inbox, self._partition, offset, since_ms, run_id, pairs, value, self._decoder)
