"""The state of one projection over one partition, in one SQLite file (RFC-0004 §7).

Rows and the cursor that they belong to are written in one transaction. A file may be lost, cut or damaged at
any time: whatever is read of it is either what was written, or `StateFileError`, and then it is made anew
from the log. So nothing that SQLite returns is taken on trust:

- a row carries a checksum of its key, value, successor and the commit that wrote it,
- a row of a later commit than the manifest's is of another time than the cursor,
- a key that is not found is proven absent by the row before it, which names the key that comes next (as NSEC
  does in DNSSEC, RFC 4034 §4): a damaged tree cannot hide a row,
- the manifest has a checksum, and names projection, version, shape of the state and the topic's id.

Deleted content is overwritten (`secure_delete`), so that no old copy of a row can come back.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Final, NamedTuple

import orjson

from noesium_stream.errors import ProjectionError, StateBusyError, StateFileError, brief

FORMAT: Final = 1
_APPLICATION_ID: Final = 0x6E6F6573
_SCHEMA: Final = (
    "CREATE TABLE manifest (id INTEGER PRIMARY KEY, body BLOB NOT NULL, sum BLOB NOT NULL)",
    "CREATE TABLE row (key BLOB PRIMARY KEY, value BLOB NOT NULL, next BLOB NOT NULL,"
    " written INTEGER NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID",
)
_HEAD: Final = b""
_READ: Final = "SELECT key, value, next, written, sum FROM row WHERE key = ?"
_BEFORE: Final = "SELECT key, value, next, written, sum FROM row WHERE key < ? ORDER BY key DESC LIMIT 1"
_FROM: Final = "SELECT key, value, next, written, sum FROM row WHERE key >= ? ORDER BY key"
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
        held: dead letters in it.
    """

    identity: Identity
    cursor: int = 0
    events: int = 0
    last_event_id: str | None = None
    last_ms: int = 0
    commits: int = 0
    held: int = 0
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
        self._commit = manifest.commits
        """The newest commit that a row may be of; while one is written, that one."""

    @property
    def manifest(self) -> Manifest:
        """As of the last commit (of this process, where it writes)."""
        return self._manifest

    @classmethod
    def open(cls, path: Path, identity: Identity) -> StateFile:
        """Open the file to write it, or make it.

        Raises:
            StateFileError: it is damaged, foreign, or of something else; says what.
            StateBusyError: another process writes it.
            ProjectionError: it cannot be written at all (rights, a full disk).
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = locked(path)
        except OSError as error:
            raise _not_writable(path, error) from error
        try:
            new = not path.exists() or path.stat().st_size == 0
            db = _connect(path)
            try:
                if new:
                    _create(db, identity)
                db.execute("PRAGMA secure_delete = ON").fetchone()
                manifest = _read_manifest(db, path)
                _require(path, manifest.identity, identity)
                return cls(path, db, manifest, lock)
            except sqlite3.Error as error:
                db.close()
                raise _translated(path, error) from error
            except BaseException:
                db.close()
                raise
        except BaseException:
            lock.close()
            raise

    @classmethod
    def open_to_read(cls, path: Path) -> StateFile:
        """Open a file that another process may be writing, as of its last commit; `refresh` moves on.

        Raises:
            StateFileError: it is damaged or no such file; says what.
        """
        try:
            db = sqlite3.connect(f"file:{path.absolute().as_posix()}?mode=ro", uri=True, isolation_level=None)
        except sqlite3.Error as error:
            raise _translated(path, error) from error
        try:
            db.execute("PRAGMA query_only = ON")
            db.execute("BEGIN")
            return cls(path, db, _read_manifest(db, path), None)
        except sqlite3.Error as error:
            db.close()
            raise _translated(path, error) from error
        except BaseException:
            db.close()
            raise

    def refresh(self) -> None:
        """See what was committed since; for readers."""
        with self._sound():
            self._db.execute("ROLLBACK")
            self._db.execute("BEGIN")
            self._manifest = _read_manifest(self._db, self.path)
            self._commit = self._manifest.commits

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None where it is certain that there is none.

        Raises:
            StateFileError: what is there is not what was written.
        """
        with self._sound():
            row = self._row(key)
            if row is None:
                self._before(key)
                return None
            return row.value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All rows whose keys begin with `prefix`, in the order of their bytes.

        Raises:
            StateFileError: what is there is not what was written.
        """
        with self._sound():
            last = self._before(prefix)
        expected = last.next
        with self._sound():
            for found in self._db.execute(_FROM, (prefix or b"\0",)):
                row = self._sound_row(found)
                if row.key != expected:
                    raise self._broken(f"a row is missing before {row.key!r}")
                if not row.key.startswith(prefix):
                    return
                expected = row.next
                yield row.key, row.value
        if expected.startswith(prefix) and expected != _HEAD:
            raise self._broken(f"the row {expected!r} is missing")

    def commit(self, changes: Mapping[bytes, bytes | None], manifest: Manifest) -> None:
        """Write rows (None removes one) and the manifest, all or nothing.

        Raises:
            StateFileError: what is there is not what was written.
            ProjectionError: it cannot be written (a full disk); nothing was.
        """
        manifest = replace(manifest, commits=self._manifest.commits + 1)
        with self._sound():
            self._db.execute("BEGIN IMMEDIATE")
            self._commit = manifest.commits
            try:
                for key in sorted(changes):
                    self._write(key, changes[key], manifest.commits)
                body = orjson.dumps(asdict(manifest))
                self._db.execute("UPDATE manifest SET body = ?, sum = ? WHERE id = 1", (body, _digest(body)))
                self._db.execute("COMMIT")
            except BaseException:
                self._commit = self._manifest.commits
                with suppress(sqlite3.Error):  # a full disk may have rolled it back already
                    self._db.execute("ROLLBACK")
                raise
        self._manifest = manifest

    def copy_to(self, path: Path) -> None:
        """Write a compact copy as of the last commit, to a path where nothing is.

        Raises:
            ProjectionError: it cannot be written there.
        """
        with self._sound():
            self._db.execute("VACUUM INTO ?", (str(path),))

    def close(self) -> None:
        """Let go; harmless when repeated."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def _write(self, key: bytes, value: bytes | None, commit: int) -> None:
        found = self._row(key)
        if value is None:
            if found is not None:
                before = self._before(key)
                self._put(before.key, before.value, found.next, commit)
                self._db.execute(_DELETE, (key,))
        elif found is not None:
            self._put(key, value, found.next, commit)
        else:
            before = self._before(key)
            self._put(before.key, before.value, key, commit)
            self._put(key, value, before.next, commit)

    def _put(self, key: bytes, value: bytes, following: bytes, commit: int) -> None:
        row_sum = _row_sum(key, value, following, commit)
        self._db.execute(_PUT, (key, value, following, commit, row_sum))

    def _row(self, key: bytes) -> _Row | None:
        found = self._db.execute(_READ, (key,)).fetchone()
        return None if found is None else self._sound_row(found, key)

    def _before(self, key: bytes) -> _Row:
        """The row before `key`, which says that nothing lies between."""
        if key == _HEAD:
            found = self._db.execute(_READ, (_HEAD,)).fetchone()
        else:
            found = self._db.execute(_BEFORE, (key,)).fetchone()
        if found is None:
            raise self._broken("its first row is missing")
        row = self._sound_row(found)
        if row.next != _HEAD and row.next < key:
            raise self._broken(f"the row {row.next!r} is missing")
        return row

    def _sound_row(self, found: tuple[bytes, bytes, bytes, int, bytes], key: bytes | None = None) -> _Row:
        row = _Row(*found)
        try:
            sound = (key is None or row.key == key) and _row_sum(*row[:4]) == row.sum
        except (TypeError, AttributeError, OverflowError):
            sound = False
        if not sound:
            raise self._broken(f"the row {row.key!r} is damaged")
        if row.written > self._commit:
            raise self._broken(f"the row {row.key!r} is newer than the manifest")
        return row

    def _broken(self, what: str) -> StateFileError:
        return StateFileError(f"{self.path}: {what}.")

    def _sound(self) -> _Translating:
        return _Translating(self.path)


class _Translating:
    """Turns what SQLite raises into this project's errors."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise _translated(self._path, error) from error


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
            hint="Give this one a state folder of its own (--state DIR), or stop the other one.",
        ) from error
    return lock


def _connect(path: Path) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _translated(path, error) from error
    try:
        db.execute("PRAGMA journal_mode = WAL").fetchone()
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA trusted_schema = OFF")
    except sqlite3.Error as error:
        db.close()
        raise _translated(path, error) from error
    return db


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
    if fields["format"] != FORMAT:
        raise StateFileError(f"{path} has the format {fields['format']}, not {FORMAT}.")
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


def _row_sum(key: bytes, value: bytes, following: bytes, commit: int) -> bytes:
    lengths = b"%d,%d,%d:" % (len(key), len(following), commit)
    return hashlib.blake2b(b"".join((lengths, key, following, value)), digest_size=8).digest()


_NO_ROOM: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_TRUNCATE,
    }
)
_NO_RIGHT: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})


def _translated(path: Path, error: sqlite3.Error) -> ProjectionError:
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _NO_ROOM or code & 0xFF in _NO_RIGHT:
        return _not_writable(path, error)
    return StateFileError(f"{path}: SQLite cannot read it: {brief(error, 200)}.")


def _not_writable(path: Path, error: BaseException) -> ProjectionError:
    return ProjectionError(
        f"The state file {path} cannot be written: {brief(error, 200)}.",
        hint="Make room or grant the right, or name another folder (--state DIR); nothing is lost.",
    )
