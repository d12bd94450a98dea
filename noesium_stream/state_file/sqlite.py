"""SQLite connections of state files, and the translation of SQLite errors."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

from noesium_stream.errors import ProjectionError, StateBusyError, StateFileError, brief
from noesium_stream.private_files import make_file

PAGE_BYTES = 4096
"""Page size of new files."""

CACHE_KB = 400
"""Page cache per file. A process may have many files open, and the kernel caches pages too."""
CHECKPOINT_PAGES = 4000
"""Unordered keys touch one page each: a shorter WAL would be synced too often."""

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
    """Context manager that turns SQLite errors into this project's errors."""

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
        if isinstance(error, UnicodeDecodeError):  # an SQLite message that quotes a damaged name
            raise StateFileError(f"{self._path}: SQLite cannot read it: its schema is damaged.") from error


def connect(path: Path, page_bytes: int | None = None) -> sqlite3.Connection:
    """Connect for writing; the file may be missing. Call `keep_order` once it exists.

    Args:
        path: the file.
        page_bytes: page size of a new file; None: `PAGE_BYTES`.

    Raises:
        StateFileError: it is not a database.
        ProjectionError: it cannot be written.
    """
    make_file(path)
    with Translating(path):
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        with Translating(path):
            db.execute(f"PRAGMA page_size = {page_bytes or PAGE_BYTES}")
            # A new file has no content to lose, so it need not be synced yet. Its WAL is new as well, so no
            # stale frames could be taken for its first pages.
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
    """Enable the syncs that SQLite needs to survive a power loss."""
    db.execute("PRAGMA synchronous = NORMAL")


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect read-only.

    If `-shm`, which readers share, cannot be created (no space or permission) and no process writes, the file
    is opened as immutable: every row is verified anyway.

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
    except UnicodeDecodeError as error:  # an SQLite message that quotes a damaged name
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
    """Whether the file may be written.

    Then a refusal comes from the file itself, which is damaged.
    """
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)


def require_whole(path: Path) -> None:
    """Check that a closed file, about to be moved, includes the content of its WAL.

    Closing copies the WAL into the file but does not report a failure.

    Raises:
        ProjectionError: the WAL still has content.
    """
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size:
        raise not_writable(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def not_writable(path: Path, error: BaseException) -> ProjectionError:
    """The error for a file that cannot be written for lack of space or permission."""
    return ProjectionError(
        f"The state file {path} cannot be written: {brief(error, 200)}.",
        hint="Make room or grant the right, or name another folder (--state DIR); nothing is lost.",
    )
