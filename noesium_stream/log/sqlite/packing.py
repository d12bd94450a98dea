"""Compresses chunks to blocks after they were committed, a little at a time, so that no commit waits for it.

A block takes the place of chunks of 64 KB or more, in a transaction that need not reach the disk at once:
if a power cut undoes it, the chunks are there. Blocks are made between commits, for a twentieth of the time,
or a hundredth while much is written, and when the log is closed. What is left over is done by whoever writes
to the partition next. The last row of a partition stays a chunk: its key refuses those who believe that the
partition ends there (`read`).

The table `packed` has the first offset of each partition that is not in a block. It is made with the first
block, together with version 3 of the file, which releases that do not know blocks refuse to open.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.log.sqlite.block import is_block, pack_block, part_of
from noesium_stream.log.sqlite.chunk import ChunkDamagedError
from noesium_stream.log.sqlite.file import PACKED_VERSION, Unsynced, is_busy
from noesium_stream.log.sqlite.read import statements

WINDOW_BYTES: Final = 1 << 16
"""Size from which chunks become a block, in bytes."""

LEAST_AT_CLOSE: Final = 1 << 14
"""The same when the log is closed."""

LARGEST_CHUNK: Final = 8 << 20
"""Larger chunks stay as they are."""

MOST_AT_CLOSE: Final = 32
"""Blocks that are made when the log is closed, at most: about 30 ms."""

_PAUSE_S: Final = 0.01
_REST, _REST_IN_BULK = 20.0, 100.0
"""How many times the duration of a step the next one waits; the latter while much more is written."""
_BULK_BYTES: Final = 8 * WINDOW_BYTES
_WORTH: Final = 0.9
_MAKE: Final = "CREATE TABLE IF NOT EXISTS packed(slot INTEGER PRIMARY KEY, next INTEGER NOT NULL)"
_NOTE: Final = "INSERT OR REPLACE INTO packed(slot, next) VALUES(?, ?)"


class Packer:
    """Makes blocks of the partitions that this process writes to.

    Args:
        connection: of the log; nothing of it is left open between two calls from the event loop.
        unsynced: commits that do not wait for the disk.
        clock: measures how long a step took.
    """

    def __init__(self, connection: sqlite3.Connection, unsynced: Unsynced, clock: Clock) -> None:
        self._connection = connection
        self._unsynced = unsynced
        self._clock = clock
        self._sizes: dict[int, float] = {}
        self._seen: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._least = WINDOW_BYTES
        self._since = 0
        self._stopped = False

    def wrote(self, slot: int, size: int) -> None:
        """Note a chunk of this size."""
        self._since += size
        total = self._sizes[slot] = self._sizes.get(slot, 0) + size
        if total >= WINDOW_BYTES and self._timer is None and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self._step)

    def close(self) -> None:
        """Make the last blocks, also of chunks that other processes have left; then no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._least = LEAST_AT_CLOSE
        self._sizes.update(dict.fromkeys(self._sizes.keys() - self._seen, WINDOW_BYTES))
        for _ in range(MOST_AT_CLOSE):
            if not self._one():
                break
        self._stopped = True

    def _step(self) -> None:
        began = self._clock.monotonic()
        more = self._one()
        self._timer = None
        if more and not self._stopped:
            rest = _REST_IN_BULK if self._since > _BULK_BYTES else _REST
            self._since = 0
            pause_s = max(_PAUSE_S, rest * (self._clock.monotonic() - began))
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._step)

    def _one(self) -> bool:
        """Make a block of a partition, if it has enough; return whether there may be more to do now."""
        due = [slot for slot, size in self._sizes.items() if size >= self._least]
        if not due or self._stopped:
            return False
        slot = due[0]
        self._seen.add(slot)
        try:
            self._sizes[slot] = self._unsynced.transact(lambda: self._pack(slot))
        except ChunkDamagedError:
            self._sizes[slot] = float("-inf")  # who reads it reports it
        except sqlite3.Error as error:
            # Whatever else is wrong with the file meets its readers and writers, too, and they report it.
            self._stopped = not is_busy(error)
            return False
        return True

    def _pack(self, slot: int) -> float:
        """Make one block, if there is enough; return the bytes that are left, as far as they are known."""
        execute, sql = self._connection.execute, statements(slot)
        known = execute("SELECT 1 FROM sqlite_master WHERE name = 'packed'").fetchone()
        noted = execute("SELECT next FROM packed WHERE slot = ?", (slot,)).fetchone() if known else None
        start = noted[0] if noted else 0
        rows, after, whole = self._window(sql.fetch, start)
        size = sum(len(data) for _, _, _, data in rows)
        if not whole and size < self._least:
            return min(size, self._least - 1)
        if not known:
            execute(_MAKE)
            execute(f"PRAGMA user_version={PACKED_VERSION}")
        if rows:
            block = pack_block([part_of(timestamp_ms, n, data) for _, timestamp_ms, n, data in rows])
            if len(block) < _WORTH * size:
                # 1. The block takes the place of its first chunk. 2. The other chunks are removed.
                execute(sql.block, (rows[-1][1], sum(n for _, _, n, _ in rows), block, rows[0][0]))
                execute(sql.between, (rows[0][0], after))
        execute(_NOTE, (slot, after))
        return WINDOW_BYTES

    def _window(self, sql: str, start: int) -> tuple[list[tuple[int, int, int, bytes]], int, bool]:
        """Chunks for a block, from `start` on; the offset after them; whether they are enough."""
        rows: list[tuple[int, int, int, bytes]] = []
        size, whole, before = 0, False, None
        for row in self._connection.execute(sql, (start,)):
            if before is not None:  # the last row stays: only one that has a successor is taken
                data = before[3]
                if not data or is_block(data) or len(data) > LARGEST_CHUNK:
                    whole = True  # it stays as it is, and what is before it makes a block
                    start = row[0] if not rows else start
                    break
                rows.append(before)
                size, start = size + len(data), row[0]
                if size >= WINDOW_BYTES:
                    whole = True
                    break
            before = row
        return rows, start, whole
