"""State files as SQLite sees them: connections, and what its errors mean."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

from noesium_stream.errors import ProjectionError, StateBusyError, StateFileError, brief

PAGE_BYTES = 4096
"""Of files that are made."""

CACHE_KB = 400
"""Of pages in memory, per file: a process may have many files open, and the kernel caches them too."""
CHECKPOINT_PAGES = 4000
"""Keys without an order touch a page each: a short log beside the file would be synced too often."""

_NO_ROOM: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_SHMOPEN,
        sqlite3.SQLITE_IOERR_SHMMAP,
    }
)
_NO_RIGHT: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})


class Translating:
    """Turns what SQLite raises into this project's errors."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, sqlite3.Error):
            raise _translated(self._path, error) from error
        if isinstance(error, UnicodeDecodeError):  # a message of SQLite that quotes a damaged name
            raise StateFileError(f"{self._path}: SQLite cannot read it: its schema is damaged.") from error


def connect(path: Path) -> sqlite3.Connection:
    """A connection to write the file, which need not be there yet; `keep_order` when it is.

    Raises:
        StateFileError: it is no database.
        ProjectionError: it cannot be written.
    """
    with Translating(path):
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        with Translating(path):
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            # A file that is made has nothing in it that could be lost: it need not be on the disk yet, and a
            # log beside it that had nothing before has nothing that its first pages could be mistaken for.
            db.execute("PRAGMA synchronous = OFF")
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def keep_order(db: sqlite3.Connection) -> None:
    """From now on what SQLite relies on after a power loss reaches the disk in its order."""
    db.execute("PRAGMA synchronous = NORMAL")


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing.

    Where there is neither room nor a right to make what readers share (`-shm`), and nobody writes, the file
    is read as one that does not change: what is read is verified anyway.

    Raises:
        StateFileError: there is no such database.
    """
    if not path.exists():
        raise StateFileError(f"{path}: there is no such file.")
    try:
        return _connect_to_read(path, "mode=ro")
    except sqlite3.Error as error:
        if not path.exists():
            raise StateFileError(f"{path}: SQLite cannot read it: {brief(error, 200)}.") from error
        wal = Path(f"{path}-wal")
        if not _lacks_room_or_right(error) or (wal.exists() and wal.stat().st_size > 0):
            raise _translated(path, error) from error
    except UnicodeDecodeError as error:  # a message of SQLite that quotes a damaged name
        raise StateFileError(f"{path}: SQLite cannot read it: its schema is damaged.") from error
    with Translating(path):
        return _connect_to_read(path, "mode=ro&immutable=1")


def _connect_to_read(path: Path, how: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None)
    try:
        db.execute("PRAGMA query_only = ON")
        db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _lacks_room_or_right(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return code in _NO_ROOM or code & 0xFF in _NO_RIGHT or code & 0xFF == sqlite3.SQLITE_READONLY


def _translated(path: Path, error: sqlite3.Error) -> ProjectionError:
    code = getattr(error, "sqlite_errorcode", 0)
    if (
        code in _NO_ROOM
        or code & 0xFF in _NO_RIGHT
        or (code & 0xFF == sqlite3.SQLITE_READONLY and not _mine(path))
    ):
        return not_writable(path, error)
    if code & 0xFF in _BUSY:
        return StateBusyError(f"{path} is locked by another program: {brief(error, 200)}.")
    if isinstance(error, sqlite3.ProgrammingError):
        return ProjectionError(f"{path} is used after it was closed.")
    return StateFileError(f"{path}: SQLite cannot read it: {brief(error, 200)}.")


def _mine(path: Path) -> bool:
    """Whether nothing forbids to write the file: then it is the file itself that says so, being damaged."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)


def require_whole(path: Path) -> None:
    """Judge a file that was closed and is to be moved: what SQLite kept beside it has to be in it.

    Closing writes it there, and tells nobody where it could not.

    Raises:
        ProjectionError: it is not.
    """
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size:
        raise not_writable(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def not_writable(path: Path, error: BaseException) -> ProjectionError:
    """The error of a file for which room or a right is missing."""
    return ProjectionError(
        f"The state file {path} cannot be written: {brief(error, 200)}.",
        hint="Make room or grant the right, or name another folder (--state DIR); nothing is lost.",
    )
