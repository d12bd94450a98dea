"""The commands of a partition that wait for their turn, in the local state: they may outgrow the memory.

What is sent to a run whose command waits here waits behind it.

A command leaves when its copy is folded. From being taken up until then it is under way (`take`): it lies
here, and is not picked again. Those of a key are taken up in order, so that its last one tells all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from noesium_stream.log.record import Decoder, Record
from noesium_stream.worker.state import PartitionState
from noesium_stream.worker.state_file import row_sum

PICKED_BYTES: Final = 8_000_000
"""So much is taken up at a time, or one command."""

_COLUMNS: Final = "inbox_offset, run_id, fair, since_ms, headers, value, sum"
_OF_KEY: Final = "SELECT 1 FROM waiting INDEXED BY waiting_fair WHERE fair = ?"
_NEXT_KEYS: Final = (
    "SELECT (SELECT min(fair) FROM waiting INDEXED BY waiting_fair WHERE fair > ?),"
    " (SELECT min(fair) FROM waiting INDEXED BY waiting_fair WHERE fair > '')"
)
"""The next key behind one, and the first one of all."""

_ROWS: Final = 16
"""Commands of a key that are read at a time."""

_BEHIND: Final = ""
"""As fairness key: it is no command, and has no turn of its own."""


def texts_of(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, str]]:
    """Headers as JSON can hold them, values as Latin-1; one without a value, as Kafka has them, is empty."""
    return [(name, (value or b"").decode("latin-1")) for name, value in headers]


class Turn(NamedTuple):
    """A command whose turn it is, and the fairness key in whose turn."""

    fair: str
    record: Record


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
        self._oldest_ms = 0
        """No record that waits was taken by the inbox before."""
        self._taken: dict[str, int] = {}
        """Up to which offset commands of a key are under way."""
        self._under_way = 0
        self._last = ""
        """The key that was last, with what is under way."""
        self._beside: str | None = None
        """The key that was last of those that began beside others; those have turns of their own."""
        self.changes = 0
        """Grows with each command that comes."""

    def __len__(self) -> int:
        return self._state.manifest.counts["waiting"]

    @property
    def idle(self) -> bool:
        """Whether nothing waits but what is under way."""
        return len(self) <= self._under_way

    def __contains__(self, run_id: object) -> bool:
        """Whether the command of this run waits."""
        if not len(self):
            return False
        found = self._read("run_id = ? AND fair > ''", (run_id,), "INDEXED BY waiting_run", limit=1)
        return bool(found)

    def put(self, record: Record, fair: str | None) -> None:
        """Let a record of the inbox wait: a command with its fairness key, or what goes behind one."""
        self._may_be_behind = self._may_be_behind or not fair
        self._oldest_ms = min(self._oldest_ms, record.timestamp_ms)
        self.changes += 1
        headers = orjson.dumps(texts_of(record.headers))
        fields = (record.offset, record.key, fair or _BEHIND, record.timestamp_ms)
        row = (*fields, headers, record.value, row_sum(*fields, value=headers + record.value))
        self._state.change("waiting", "INSERT OR IGNORE INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def drop(self, offset: int) -> None:
        """It is decided on, and leaves no copy."""
        self._state.change("waiting", "DELETE FROM waiting WHERE inbox_offset = ?", (offset,))

    def take(self, turns: Sequence[Turn], last: str | None) -> None:
        """These are taken up, in order; `last`: the key that was last, if it was their turn."""
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
        """These begin though no slot is free: the next ones to do so are those behind them."""
        if turns:
            self._beside = turns[-1].fair

    def taken(self, turns: Sequence[Turn]) -> None:
        """Copies of these are folded: they do not lie here any more."""
        for fair, record in turns:
            if self._taken.get(fair) == record.offset:
                del self._taken[fair]
        self._under_way -= len(turns)

    def next_ones(self, most: int) -> tuple[list[Turn], str]:
        """The commands whose turn it is (see `fairness`), at most so many, and the key of the last one.

        They go on waiting here until their copies are folded.
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
        """The oldest command of each of the next keys, at most so many, that are none of `busy`.

        The next ones are those behind the last that began so (`began_beside`).
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
        """Each key once, beginning behind `last`."""
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
        if self._oldest_ms >= ms:
            return []
        oldest = self._state.file.read("SELECT since_ms FROM waiting ORDER BY inbox_offset LIMIT 1")
        self._oldest_ms = oldest[0][0] if oldest else ms
        if self._oldest_ms >= ms:
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
