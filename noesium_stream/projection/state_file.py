"""The state of one projection over one partition, in one SQLite file (RFC-0004 §7).

Rows and the cursor that they belong to are written in one transaction. A file may be lost, cut or damaged at
any time: whatever is read of it is either what was written, or `StateFileError`, and then it is made anew
from the log. So nothing that SQLite returns is taken on trust:

- a row carries a checksum of its key, value, successor and the stamp of the commit that wrote it,
- a row with a later stamp than the manifest's is of another time than the cursor. Stamps grow with the
  cursor, not with the number of commits: where SQLite has lost its newest commits and kept some of their
  pages, the events of these commits are folded again, and each reads the row that it changes while the cursor
  lies before it. So a row that has seen an event is found out before it sees it again,
- a key that is not found is proven absent by the row before it, which names the key that comes next (as NSEC
  does in DNSSEC, RFC 4034 §4): a damaged tree cannot hide a row,
- the manifest has a checksum, and names projection, version, shape of the state and the topic's id.

Deleted content is overwritten (`secure_delete`), so that no old copy of a row can come back. What SQLite
keeps beside the file (`-wal`) belongs to it: neither may be copied or put back without the other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Final, NamedTuple

import orjson

from noesium_stream.errors import StateBusyError, StateFileError
from noesium_stream.projection.state_db import Translating, connect, connect_to_read, not_writable

FORMAT: Final = 1
_APPLICATION_ID: Final = 0x6E6F6573
_SCHEMA: Final = (
    "CREATE TABLE manifest (id INTEGER PRIMARY KEY, body BLOB NOT NULL, sum BLOB NOT NULL)",
    "CREATE TABLE row (key BLOB PRIMARY KEY, value BLOB NOT NULL, next BLOB NOT NULL,"
    " written INTEGER NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID",
)
_HEAD: Final = b""
_SCAN_BYTES: Final = 4_000_000
_REMEMBERED: Final = 2_000
_TURNS: Final = 1 << 20
"""Commits at one cursor (letters are redriven) that stamps can tell apart; more still grow."""
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


@dataclass(frozen=True, slots=True)
class Identity:
    """What a file has to be of, to be used."""

    projection: str
    version: int
    shape: str
    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a file says of itself.

    Attributes:
        cursor: the next offset to fold.
        events: how many events were folded, ever.
        last_event_id: of the last record that was read; None before the first.
        last_ms: when the log took that record, in milliseconds.
        commits: how many times it was written.
        stamp: of the last commit; a later one has a greater one.
        held: dead letters in it.
        blocked: keys whose later events are held back.
    """

    identity: Identity
    cursor: int = 0
    events: int = 0
    last_event_id: str | None = None
    last_ms: int = 0
    commits: int = 0
    stamp: int = 0
    held: int = 0
    blocked: int = 0
    format: int = FORMAT


class _Row(NamedTuple):
    key: bytes
    value: bytes
    next: bytes
    written: int
    sum: bytes


class StateFile:
    """Rows by key, in the order of their keys, and a manifest; one process writes it.

    Use `open` or `open_to_read`.
    """

    def __init__(
        self, path: Path, db: sqlite3.Connection, manifest: Manifest, lock: IO[bytes] | None
    ) -> None:
        self.path: Final = path
        self._db = db
        self._lock = lock
        self._manifest = manifest
        self._newest = manifest.stamp
        """The newest stamp that a row may have; while a commit is written, that one's."""
        self._next: dict[bytes, bytes | None] = {}
        """Successors of rows that this writer has read or written (None: there is no such row): they need
        not be read again."""

    @property
    def manifest(self) -> Manifest:
        """As of the last commit (of this process, where it writes)."""
        return self._manifest

    @classmethod
    def open(
        cls, path: Path, identity: Identity, *, instead: Callable[[StateFileError], None] | None = None
    ) -> StateFile:
        """Open the file to write it, or make it.

        Args:
            path: where it lies.
            identity: what it has to be of.
            instead: told why a file that cannot be used is discarded and made anew; None raises.

        Raises:
            StateFileError: it is damaged, foreign, or of something else; says what.
            StateBusyError: another process writes it.
            ProjectionError: it cannot be written at all (rights, a full disk).
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = locked(path)
        except OSError as error:
            raise not_writable(path, error) from error
        try:
            try:
                return cls._opened(path, identity, lock)
            except StateFileError as error:
                if instead is None:
                    raise
                instead(error)
                discard(path)  # while it is locked: whoever comes next finds the new one
                return cls._opened(path, identity, lock)
        except OSError as error:
            lock.close()
            raise not_writable(path, error) from error
        except BaseException:
            lock.close()
            raise

    @classmethod
    def _opened(cls, path: Path, identity: Identity, lock: IO[bytes]) -> StateFile:
        new = not path.exists() or path.stat().st_size == 0
        db = connect(path)
        try:
            with Translating(path):
                if new:
                    _create(db, identity)
                db.execute("PRAGMA secure_delete = ON").fetchone()
                manifest = _read_manifest(db, path)
            _require(path, manifest.identity, identity)
            return cls(path, db, manifest, lock)
        except BaseException:
            db.close()
            raise

    @classmethod
    def open_to_read(cls, path: Path) -> StateFile:
        """Open a file that another process may be writing, as of its last commit; `refresh` moves on.

        Raises:
            StateFileError: it is damaged or no such file; says what.
        """
        db = connect_to_read(path)
        try:
            with Translating(path):
                db.execute("BEGIN")
                return cls(path, db, _read_manifest(db, path), None)
        except BaseException:
            db.close()
            raise

    def refresh(self) -> None:
        """See what was committed since; for readers."""
        with self._sound():
            self._db.execute("ROLLBACK")
            self._db.execute("BEGIN")
            self._manifest = _read_manifest(self._db, self.path)
            self._newest = self._manifest.stamp

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None where it is certain that there is none.

        Raises:
            StateFileError: what is there is not what was written.
        """
        with self._sound():
            row = self._row(key)
            if row is None:
                self._before(key, absent=True)
            if self._lock is not None:
                self._remember()
                self._next[key] = None if row is None else row.next
            return None if row is None else row.value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All rows whose keys begin with `prefix`, in the order of their bytes.

        Some are read at a time, so that the file may be written meanwhile: each is as it is when it is read.

        Raises:
            StateFileError: what is there is not what was written.
        """
        start: bytes | None = prefix or b"\0"
        while start is not None:
            rows, start = self._some(start, prefix)
            yield from rows

    def _some(self, start: bytes, prefix: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """The next rows, and where to go on; None: there are no more."""
        rows: list[tuple[bytes, bytes]] = []
        room = _SCAN_BYTES
        with self._sound():
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
        """Rows that were written after the commit with this stamp, by key: (key, value, next key).

        Between a row and its next key lies none: what was removed since lay there.

        Raises:
            StateFileError: what is there is not what was written.
        """
        after = _HEAD
        with self._sound():
            rows = self._db.execute(_CHANGED_FIRST, (since,)).fetchall()
            while rows:
                for found in rows:
                    row = self._sound_row(found)
                    yield row.key, row.value, row.next
                    after = row.key
                rows = self._db.execute(_CHANGED, (after, since)).fetchall()

    def commit(self, changes: Mapping[bytes, bytes | None], manifest: Manifest) -> None:
        """Write rows (None removes one) and the manifest, all or nothing.

        Raises:
            StateFileError: what is there is not what was written.
            ProjectionError: it cannot be written (a full disk); nothing was.
        """
        before = self._manifest
        stamp = max(before.stamp + 1, manifest.cursor * _TURNS)
        manifest = replace(manifest, commits=before.commits + 1, stamp=stamp)
        with self._sound():
            self._db.execute("BEGIN IMMEDIATE")
            self._newest = stamp
            try:
                for key in sorted(changes):
                    self._write(key, changes[key], stamp)
                body = orjson.dumps(asdict(manifest))
                self._db.execute("UPDATE manifest SET body = ?, sum = ? WHERE id = 1", (body, _digest(body)))
                self._db.execute("COMMIT")
            except BaseException:
                self._newest = before.stamp
                self._next.clear()
                with suppress(sqlite3.Error):  # a full disk may have rolled it back already
                    self._db.execute("ROLLBACK")
                raise
        self._manifest = manifest
        self._remember()

    def copy_to(self, path: Path) -> None:
        """Write a compact copy as of the last commit (of any process), to a path where nothing is.

        Raises:
            ProjectionError: it cannot be written there.
        """
        with self._sound():
            if self._lock is None:
                self._db.execute("ROLLBACK")  # a reader's view of one moment; VACUUM has its own
                self._db.execute("PRAGMA query_only = OFF")  # it forbids writing elsewhere too
            try:
                self._db.execute("VACUUM INTO ?", (str(path),))
            finally:
                if self._lock is None:
                    self._db.execute("PRAGMA query_only = ON")
                    self._db.execute("BEGIN")
        if self._lock is None:
            self.refresh()

    def close(self) -> None:
        """Let go; harmless when repeated."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def discard(self) -> None:
        """Remove the file and let go: nobody else can have opened it before it is gone."""
        self._db.close()
        discard(self.path)
        self.close()

    def _remember(self) -> None:
        if len(self._next) >= _REMEMBERED:
            self._next.clear()

    def _write(self, key: bytes, value: bytes | None, stamp: int) -> None:
        if key in self._next:
            following = self._next[key]
        else:
            found = self._row(key)
            following = None if found is None else found.next
        if value is None:
            before = self._before(key, absent=following is None)
            if following is not None:
                if before.next != key:
                    raise self._broken(f"the row {_shown(before.key)} does not lead to {_shown(key)}")
                self._put(before.key, before.value, following, stamp)
                self._db.execute(_DELETE, (key,))
                self._next[key] = None
        elif following is not None:
            self._put(key, value, following, stamp)
        else:
            before = self._before(key, absent=True)
            self._put(before.key, before.value, key, stamp)
            self._put(key, value, before.next, stamp)

    def _put(self, key: bytes, value: bytes, following: bytes, stamp: int) -> None:
        self._db.execute(_PUT, (key, value, following, stamp, _row_sum(key, value, following, stamp)))
        self._next[key] = following

    def _row(self, key: bytes) -> _Row | None:
        found = self._db.execute(_READ, (key,)).fetchone()
        return None if found is None else self._sound_row(found, key)

    def _before(self, key: bytes, *, absent: bool = False) -> _Row:
        """The row before `key`, which says that nothing lies between; with `absent` also not `key` itself."""
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
        if row.written > self._newest:
            raise self._broken(f"the row {_shown(row.key)} is newer than the manifest")
        return row

    def _broken(self, what: str) -> StateFileError:
        return StateFileError(f"{self.path}: {what}.")

    def _sound(self) -> Translating:
        return Translating(self.path)


def _shown(key: object) -> str:
    """A row's name as its projection knows it, without the letter that says what kind of row it is.

    In a damaged file it may be of any type that SQLite has.
    """
    return repr(key[1:].decode(errors="backslashreplace") if isinstance(key, bytes) else key)


def discard(path: Path) -> None:
    """Remove a state file and what SQLite keeps beside it; its lock file stays."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def locked(path: Path) -> IO[bytes]:
    """Keep others from writing the file until what is returned is closed.

    Raises:
        StateBusyError: another process writes it.
    """
    lock = open(f"{path}.lock", "ab")  # noqa: SIM115 - it is held as long as the file is open
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise StateBusyError(
            f"{path} is being written by another process.",
            hint="Stop the other one, or let both follow here: they share the partitions. Followers with "
            "folders of their own (--state DIR) share them too, and each folder then has only a part.",
        ) from error
    return lock


def _create(db: sqlite3.Connection, identity: Identity) -> None:
    db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    db.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA:
        db.execute(statement)
    body = orjson.dumps(asdict(Manifest(identity)))
    db.execute("INSERT INTO manifest (id, body, sum) VALUES (1, ?, ?)", (body, _digest(body)))
    db.execute(_PUT, (_HEAD, b"", _HEAD, 0, _row_sum(_HEAD, b"", _HEAD, 0)))
    db.execute("COMMIT")


def _read_manifest(db: sqlite3.Connection, path: Path) -> Manifest:
    tables = tuple(text for (text,) in db.execute("SELECT sql FROM sqlite_master ORDER BY rowid"))
    if tables != _SCHEMA:
        raise StateFileError(f"{path} is no state file of a projection.")
    found = db.execute("SELECT body, sum FROM manifest WHERE id = 1").fetchone()
    if found is None or not isinstance(found[0], bytes) or _digest(found[0]) != found[1]:
        raise StateFileError(f"{path}: its manifest is damaged.")
    fields = orjson.loads(found[0])
    if fields.get("format") != FORMAT:
        raise StateFileError(f"{path} has the format {fields.get('format')}, not {FORMAT}.")
    return Manifest(**{**fields, "identity": Identity(**fields["identity"])})


_SAID: Final = {
    "projection": "it is of the projection {}",
    "version": "it is of version {}",
    "shape": "its states are of another type ({})",
    "topic": "it is of the topic {}",
    "topic_id": "the topic was deleted and made anew (its id was {})",
    "partition": "it is of partition {}",
}


def _require(path: Path, found: Identity, wanted: Identity) -> None:
    for field, text in _SAID.items():
        if getattr(found, field) != getattr(wanted, field):
            raise StateFileError(f"{path}: {text.format(getattr(found, field))}.")


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _row_sum(key: bytes, value: bytes, following: bytes, stamp: int) -> bytes:
    lengths = b"%d,%d,%d:" % (len(key), len(following), stamp)
    return hashlib.blake2b(b"".join((lengths, key, following, value)), digest_size=8).digest()
