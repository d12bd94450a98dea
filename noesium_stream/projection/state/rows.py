"""Rows of a state file, each verified when it is read (RFC-0004 §7).

Data that SQLite returns is not trusted:
- A row has a checksum over its key, value, successor and the stamp of the commit that wrote it.
- A row with a later stamp than the manifest's does not belong to the cursor. Stamps grow with the cursor, not
with the number of commits. If SQLite has lost its newest commits but kept some of their pages, the events of
these commits are folded again, and each reads the row that it changes while the cursor is still before the
event. So a row that already includes an event is detected before the event is folded into it again.
- A missing key is proven absent by the row before it, which names the next key (as NSEC does in DNSSEC, RFC
4034 §4): a damaged tree cannot hide a row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from noesium_stream.errors import StateFileError
from noesium_stream.state_file.checksummed_file import row_hash
from noesium_stream.state_file.sqlite import Translating

ROW_TABLE: Final = (
    "CREATE TABLE row (key BLOB PRIMARY KEY, value BLOB NOT NULL, next BLOB NOT NULL,"
    " written INTEGER NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID"
)
_HEAD: Final = b""
_SCAN_BYTES: Final = 4_000_000
_REMEMBERED: Final = 2_000
_READ: Final = "SELECT key, value, next, written, sum FROM row WHERE key = ?"
_BEFORE: Final = "SELECT key, value, next, written, sum FROM row WHERE key < ? ORDER BY key DESC LIMIT 1"
_FROM: Final = "SELECT key, value, next, written, sum FROM row WHERE key >= ? ORDER BY key LIMIT 256"
_CHANGED_FIRST: Final = (
    "SELECT key, value, next, written, sum FROM row WHERE written > ? ORDER BY key LIMIT 256"
)
_CHANGED: Final = (
    "SELECT key, value, next, written, sum FROM row WHERE key > ? AND written > ? ORDER BY key LIMIT 256"
)
_PUT: Final = "INSERT OR REPLACE INTO row (key, value, next, written, sum) VALUES (?, ?, ?, ?, ?)"
_DELETE: Final = "DELETE FROM row WHERE key = ?"


class _Row(NamedTuple):
    key: bytes
    value: bytes
    next: bytes
    written: int
    sum: bytes


class _Tip(NamedTuple):
    """A new row whose successor may still become another new row."""

    key: bytes
    value: bytes
    next: bytes


class Rows:
    """The rows of an open file, in key order.

    Args:
        db: the connection to the file.
        path: the file's path, for messages.
        newest: the stamp of its manifest.
        written: whether this process, and no other, writes the file.

    Attributes:
        newest: the newest stamp that a row may have; during a commit, that commit's stamp.
    """

    def __init__(self, db: sqlite3.Connection, path: Path, newest: int, *, written: bool) -> None:
        self.newest = newest
        self._db = db
        self._path = path
        self._written = written
        self._sound = Translating(path)
        self._next: dict[bytes, bytes | None] = {}
        """Successors of rows that this writer has read or written (None: there is no such row): they need
        not be read again."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None if the key is proven absent.

        Raises:
            StateFileError: the file is damaged.
        """
        if self._next.get(_HEAD) == _HEAD:  # there are no rows
            self.settle()
            self._next[key] = None
            return None
        with self._sound:
            row = self._row(key)
            before = self._before(key, absent=True) if row is None else None
            if self._written:
                self.settle()
                if before is not None and before.key == before.next == _HEAD:
                    self._next[_HEAD] = _HEAD
                else:
                    self._next[key] = None if row is None else row.next
            return None if row is None else row.value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All rows whose keys begin with `prefix`, in byte order.

        Rows are read in batches, so the file may be written in between: each row is as of its read.

        Raises:
            StateFileError: the file is damaged.
        """
        start: bytes | None = prefix or b"\0"
        while start is not None:
            rows, start = self._some(start, prefix)
            yield from rows

    def _some(self, start: bytes, prefix: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """The next batch of rows, and the key to continue at; None at the end."""
        rows: list[tuple[bytes, bytes]] = []
        room = _SCAN_BYTES
        with self._sound:
            expected = self._before(start).next
            for found in self._db.execute(_FROM, (start,)):
                if not expected.startswith(prefix) or expected == _HEAD:
                    return rows, None
                row = self._sound_row(found)
                if row.key != expected:
                    raise self._broken(f"the row {_shown(expected)} is missing")
                rows.append((row.key, row.value))
                expected = row.next
                room -= len(row.value)
                if room < 0:
                    break
        if not expected.startswith(prefix) or expected == _HEAD:
            return rows, None
        if not rows:
            raise self._broken(f"the row {_shown(expected)} is missing")
        return rows, rows[-1][0] + b"\0"

    def changed(self, since: int) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Rows written after the commit with this stamp, in key order: (key, value, next key).

        No row lies between a row and its next key; rows removed since that commit lay there.

        Raises:
            StateFileError: the file is damaged.
        """
        after = _HEAD
        with self._sound:
            rows = self._db.execute(_CHANGED_FIRST, (since,)).fetchall()
            while rows:
                for found in rows:
                    row = self._sound_row(found)
                    yield row.key, row.value, row.next
                    after = row.key
                rows = self._db.execute(_CHANGED, (after, since)).fetchall()

    def write(self, changes: Mapping[bytes, bytes | None], stamp: int) -> None:
        """Write rows within the open transaction; None removes a row.

        Raises:
            StateFileError: the file is damaged.
            sqlite3.Error
        """
        tip: _Tip | None = None
        for key in sorted(changes):
            value = changes[key]
            following = self._following(key)
            if value is not None and following is None:
                # No row lies between it and the previous new row, which is written once, with this successor.
                if tip is None or _HEAD != tip.next <= key:
                    self._put_tip(tip, stamp)
                    tip = _Tip(*self._before(key, absent=True)[:3])
                self._put(tip.key, tip.value, key, stamp)
                tip = _Tip(key, value, tip.next)
                continue
            self._put_tip(tip, stamp)
            tip = None
            if value is None:
                self._remove(key, following, stamp)
            elif following is not None:
                self._put(key, value, following, stamp)
        self._put_tip(tip, stamp)

    def _following(self, key: bytes) -> bytes | None:
        """The key after this one; None if this one has no row."""
        if key in self._next:
            return self._next[key]
        found = self._row(key)
        return None if found is None else found.next

    def _remove(self, key: bytes, following: bytes | None, stamp: int) -> None:
        before = self._before(key, absent=following is None)
        if following is not None:
            if before.next != key:
                raise self._broken(f"the row {_shown(before.key)} does not lead to {_shown(key)}")
            self._put(before.key, before.value, following, stamp)
            self._db.execute(_DELETE, (key,))
            self._next[key] = None

    def _put_tip(self, tip: _Tip | None, stamp: int) -> None:
        if tip is not None:
            self._put(*tip, stamp)

    def settle(self) -> None:
        """Trim the remembered rows, between commits."""
        if len(self._next) >= _REMEMBERED:
            self._next.clear()

    def forget(self, newest: int) -> None:
        """Note a rollback; `newest` is the last committed stamp."""
        self.newest = newest
        self._next.clear()

    def _put(self, key: bytes, value: bytes, following: bytes, stamp: int) -> None:
        self._db.execute(_PUT, (key, value, following, stamp, _row_sum(key, value, following, stamp)))
        self._next[key] = following

    def _row(self, key: bytes) -> _Row | None:
        found = self._db.execute(_READ, (key,)).fetchone()
        return None if found is None else self._sound_row(found, key)

    def _before(self, key: bytes, *, absent: bool = False) -> _Row:
        """The row whose successor proves that no key lies between it and `key`.

        With `absent` it also proves that `key` itself is missing.
        """
        found = self._db.execute(_BEFORE, (key,)).fetchone()
        if found is None:
            raise self._broken("its first row is missing")
        row = self._sound_row(found)
        if row.key >= key or (row.next != _HEAD and (row.next < key or (absent and row.next == key))):
            raise self._broken(f"the row {_shown(row.next)} is missing")
        return row

    def _sound_row(self, found: tuple[bytes, bytes, bytes, int, bytes], key: bytes | None = None) -> _Row:
        row = _Row(*found)
        try:
            sound = (key is None or row.key == key) and _row_sum(*row[:4]) == row.sum
        except (TypeError, OverflowError):
            sound = False
        if not sound:
            raise self._broken(f"the row {_shown(row.key)} is damaged")
        if row.written > self.newest:
            raise self._broken(f"the row {_shown(row.key)} is newer than the manifest")
        return row

    def _broken(self, what: str) -> StateFileError:
        return StateFileError(f"{self._path}: {what}.")


def _shown(key: object) -> str:
    """A row's key as its projection knows it, without the byte for the kind of row.

    In a damaged file the key may have any SQLite type.
    """
    return repr(key[1:].decode(errors="backslashreplace") if isinstance(key, bytes) else key)


def begin_rows(db: sqlite3.Connection) -> None:
    """Insert the first row, which sorts before all others, into a new file."""
    db.execute(_PUT, (_HEAD, b"", _HEAD, 0, _row_sum(_HEAD, b"", _HEAD, 0)))


def _row_sum(key: bytes, value: bytes, following: bytes, stamp: int) -> bytes:
    lengths = b"%d,%d,%d:" % (len(key), len(following), stamp)
    return row_hash(b"".join((lengths, key, following, value))).digest()
