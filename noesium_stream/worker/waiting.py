"""The commands of a partition that wait for their turn, in the local state: they may outgrow the memory.

What is sent to a run whose command waits here waits behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import orjson

from noesium_stream.log.record import Decoder, Record
from noesium_stream.worker.state import PartitionState
from noesium_stream.worker.state_file import row_sum

PICKED_BYTES: Final = 8_000_000
"""So much is taken up at a time, or one command."""

_COLUMNS: Final = "inbox_offset, run_id, fair, since_ms, headers, value, sum"
_OF_KEY: Final = "SELECT 1 FROM waiting INDEXED BY waiting_fair WHERE fair = ?"
_BEHIND: Final = ""
"""As fairness key: it is no command, and has no turn of its own."""


def texts_of(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, str]]:
    """Headers as JSON can hold them, values as Latin-1; one without a value, as Kafka has them, is empty."""
    return [(name, (value or b"").decode("latin-1")) for name, value in headers]


class Waiting:
    """What waits in a partition's state.

    Args:
        state: of the partition.
        inbox: topic of the inbox.
        partition: of the inbox.
        decoder: of its records.
    """

    def __init__(self, state: PartitionState, inbox: str, partition: int, decoder: Decoder) -> None:
        self._state = state
        self._inbox = inbox
        self._partition = partition
        self._decoder = decoder
        self._may_be_behind = bool(state.file.read(f"{_OF_KEY} LIMIT 1", (_BEHIND,)))

    def __len__(self) -> int:
        return self._state.manifest.counts["waiting"]

    def __contains__(self, run_id: object) -> bool:
        """Whether the command of this run waits."""
        if not len(self):
            return False
        found = self._read("run_id = ? AND fair > ''", (run_id,), "INDEXED BY waiting_run", limit=1)
        return bool(found)

    def put(self, record: Record, fair: str | None) -> None:
        """Let a record of the inbox wait: a command with its fairness key, or what goes behind one."""
        self._may_be_behind = self._may_be_behind or not fair
        headers = orjson.dumps(texts_of(record.headers))
        fields = (record.offset, record.key, fair or _BEHIND, record.timestamp_ms)
        row = (*fields, headers, record.value, row_sum(*fields, value=headers + record.value))
        self._state.change("waiting", "INSERT OR IGNORE INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def drop(self, offset: int) -> None:
        """It is decided on, and leaves no copy."""
        self._state.change("waiting", "DELETE FROM waiting WHERE inbox_offset = ?", (offset,))

    def next_ones(self, most: int) -> tuple[list[Record], str]:
        """The commands whose turn it is (see `fairness`), at most so many, and the key of the last one.

        They go on waiting here until their copies are folded.
        """
        records: list[Record] = []
        last, size = self._state.manifest.last_fair, 0
        for fair, record in self._in_turns(last):
            if len(records) == most or (records and size + len(record.value) > PICKED_BYTES):
                break
            records.append(record)
            last, size = fair, size + len(record.value)
        return records, last

    def next_beside(self, busy: Collection[str], most: int) -> list[Record]:
        """The oldest command of each of the next keys, at most so many, that are none of `busy`."""
        others = (fair for fair in self._circle(self._state.manifest.last_fair) if fair not in busy)
        return [record for fair in islice(others, most) for record in self._next_of(fair, -1)]

    def _in_turns(self, last: str) -> Iterator[tuple[str, Record]]:
        ring = []
        for fair in self._circle(last):
            [record] = self._next_of(fair, -1)
            ring.append((fair, record.offset))
            yield fair, record
        while ring:
            before, ring = ring, []
            for fair, after in before:
                for record in self._next_of(fair, after):
                    ring.append((fair, record.offset))
                    yield fair, record

    def _circle(self, last: str) -> Iterator[str]:
        """Each key once, beginning behind `last`."""
        query = "SELECT min(fair) FROM waiting INDEXED BY waiting_fair WHERE fair > ?"
        for start, end in ((last, None), (_BEHIND, last)):
            key = start
            while True:
                [(key,)] = self._state.file.read(query, (key,))
                if key is None or (end is not None and key > end):
                    break
                yield key

    def _next_of(self, fair: str, after: int) -> list[Record]:
        where = "fair = ? AND inbox_offset > ?"
        return self._read(where, (fair, after), "INDEXED BY waiting_fair", limit=1)

    def behind(self, run_id: str, most: int) -> list[Record]:
        """What waits behind the command of a run, in order: at most so many, and so large.

        Nothing is read where nothing came in so.
        """
        if not self._may_be_behind:
            return []
        where, how = "run_id = ? AND fair = ''", "INDEXED BY waiting_run"
        return self._read(where, (run_id,), how, limit=self._count(where, (run_id,), how, most))

    def left_behind(self, most: int) -> list[Record]:
        """What waits behind commands that do not wait here any more, the oldest first, at most so many."""
        command = "SELECT 1 FROM waiting AS command INDEXED BY waiting_run"
        gone = f"NOT EXISTS ({command} WHERE command.run_id = waiting.run_id AND command.fair > '')"
        where, how = f"fair = '' AND {gone}", "INDEXED BY waiting_fair"
        return self._read(where, (), how, limit=self._count(where, (), how, most))

    def older_than(self, ms: int, most: int) -> list[Record]:
        """The oldest commands, at most so many and so large, that the inbox took before `ms`."""
        oldest = "SELECT since_ms FROM waiting ORDER BY inbox_offset LIMIT 1"
        if not any(since_ms < ms for (since_ms,) in self._state.file.read(oldest)):
            return []
        where, how = "since_ms < ? AND fair > ''", "NOT INDEXED"
        return self._read(where, (ms,), how, limit=self._count(where, (ms,), how, most))

    def _count(self, where: str, values: Sequence[Any], how: str, most: int) -> int:
        """How many of the first ones are `PICKED_BYTES` large together, but one at least."""
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
