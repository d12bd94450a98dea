"""The SQLite file of a log: opens it, detects foreign and damaged files, translates SQLite's errors."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from noesium_stream.errors import EventStoreError, LogCorruptError, LogFullError, LogUnavailableError
from noesium_stream.private_files import make_file, make_folder, permission_advice

APPLICATION_ID: Final = 0x6E6F6573
"""`noes`: marks the file as a log of this package."""

SCHEMA_VERSION: Final = 2
PACKED_VERSION: Final = 3
"""Version of a file that has blocks (`packing`); it is 2 until the first one."""

BUSY_S: Final = 0.02
"""How long a statement waits for another process's lock before it yields to the event loop."""

PATIENCE_S: Final = 60.0
"""Total time to wait for another process's lock."""

# The chunks of each partition have a table of their own (`read.Statements`).
_SCHEMA: Final = """
CREATE TABLE topic(
    name TEXT PRIMARY KEY, partitions INTEGER NOT NULL, retention_ms INTEGER, uid TEXT NOT NULL,
    slot INTEGER NOT NULL UNIQUE
) WITHOUT ROWID;
CREATE TABLE writer(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, epoch INTEGER NOT NULL);
CREATE TABLE grp(name TEXT PRIMARY KEY, generation INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE grp_member(
    grp TEXT NOT NULL, member TEXT NOT NULL, topics TEXT NOT NULL, lease_ms INTEGER NOT NULL,
    PRIMARY KEY(grp, member)
) WITHOUT ROWID;
CREATE TABLE grp_partition(
    grp TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, owner TEXT,
    epoch INTEGER NOT NULL DEFAULT 0, next_offset INTEGER, PRIMARY KEY(grp, topic, partition)
) WITHOUT ROWID;
"""

T = TypeVar("T")


class Unsynced:
    """Commits of pieces of answers, and of blocks, which do not wait for the disk.

    They survive the end of the process. After a power cut the last ones are missing: the log may lose any
    piece, and what was in a block is in its chunks. The next commit of anything else syncs them, too.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        (self._safety,) = connection.execute("PRAGMA synchronous").fetchone()

    def execute(self, sql: str, row: tuple[Any, ...]) -> sqlite3.Cursor:
        """Execute one statement that is a whole commit."""
        self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            return self._connection.execute(sql, row)
        finally:
            self._connection.execute(f"PRAGMA synchronous={self._safety}")

    def transact(self, work: Callable[[], T]) -> T:
        """Call `work` in one transaction; what it loses in a power cut can be done again.

        Raises:
            sqlite3.Error: nothing was changed; another process may hold the lock (`is_busy`).
        """
        self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            self._connection.execute("BEGIN")
            result = work()
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        finally:
            self._connection.execute(f"PRAGMA synchronous={self._safety}")
        return result


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open the file; initialise it as a log if it is new.

    Raises:
        LogCorruptError: it is torn, foreign or damaged, or of a newer version.
        LogUnavailableError: it cannot be opened.
        LogFullError: the disk has no room for it.
    """
    _make_folder(path)
    _refuse_torn(path)
    make_file(path)
    connection = None
    try:
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, cached_statements=1024)
        _refuse_foreign(path, connection)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute(f"PRAGMA journal_size_limit={64 << 20}")
        # What was removed is not left in free pages, where a search could not read it if it was compressed.
        connection.execute("PRAGMA secure_delete=ON")
        _make_schema(path, connection)
    except sqlite3.Error as error:
        _close(connection)
        if is_busy(error):
            raise
        raise translate(path, error) from error
    except UnicodeDecodeError as error:
        # SQLite quotes the damaged schema in its message, and sqlite3 cannot decode it.
        _close(connection)
        raise corrupt(path, "its schema is damaged") from error
    except EventStoreError:
        _close(connection)
        raise
    return connection


async def patiently(path: Path, work: Callable[[], T], patience_s: Callable[[], float] | None = None) -> T:
    """Call `work`; repeat it while another process holds the lock.

    Args:
        path: the file, for error messages.
        work: the function to call.
        patience_s: returns the total time to wait, called each time; None: `PATIENCE_S`.

    Raises:
        LogUnavailableError: it was locked for longer than that.
        LogFullError, LogCorruptError: see `translate`.
    """
    waited_s = 0.0
    while True:
        try:
            return work()
        except sqlite3.IntegrityError:
            # A constraint violation is a statement's way to refuse; the caller knows its meaning.
            raise
        except sqlite3.Error as error:
            if not is_busy(error):
                raise translate(path, error) from error
            limit_s = PATIENCE_S if patience_s is None else patience_s()
            if waited_s >= limit_s:
                raise LogUnavailableError(
                    f"{path} has been locked by another process for {limit_s:.0f} s.",
                    hint="Find who holds it (an open sqlite3 shell?) and let it finish.",
                ) from error
        waited_s += BUSY_S + 0.005
        await asyncio.sleep(0.005)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds a lock."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def translate(path: Path, error: sqlite3.Error) -> EventStoreError:
    """Translate SQLite's error to one of this package."""
    code = _code(error)
    if code == sqlite3.SQLITE_FULL or _no_space(error):
        return LogFullError(
            f"{path}: there is no room left for the log; nothing was written.",
            hint="Make room on the disk; the same call can then be repeated.",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT):
        return corrupt(path, str(error))
    if code == sqlite3.SQLITE_READONLY:
        return LogUnavailableError(
            f"{path} cannot be written: {error}.", hint="The file and its folder have to be writable."
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return LogUnavailableError(f"{path} cannot be opened: {error}.", hint=_opening_hint(path))
    return LogUnavailableError(f"{path}: {error}.", hint="The disk or the file system refused to work.")


def _opening_hint(path: Path) -> str:
    """What to do about a log that cannot be opened; SQLite makes two files beside one that it reads."""
    needed = "To read a log, its file has to be readable and its folder writable."
    for place, mode in ((path, os.R_OK), (path.parent, os.W_OK)):
        if not os.access(place, mode):
            return f"{permission_advice(place)} {needed}"
    return needed


def corrupt(path: Path, reason: str) -> LogCorruptError:
    """The error for a file that is not a sound log."""
    return LogCorruptError(
        f"{path} is no sound log: {reason}.",
        hint="Restore it from a copy, or move it away together with its -wal and -shm files to begin anew.",
    )


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _no_space(error: sqlite3.Error) -> bool:
    # The WAL index lies in shared memory that is a file: if it cannot grow, SQLite reports an I/O error.
    extended = int(getattr(error, "sqlite_errorcode", 0))
    return extended in (sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN)


def _make_folder(path: Path) -> None:
    try:
        make_folder(path.parent)
    except OSError as error:
        kind = LogFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else LogUnavailableError
        raise kind(
            f"{path.parent} cannot be made: {error.strerror}.", hint="Choose a folder that can be written."
        ) from error


def _refuse_torn(path: Path) -> None:
    """Refuse a torn file that SQLite would take for empty; SQLite itself detects one that ends early.

    The database is only inspected from outside. When a process closes a descriptor that SQLite does not know,
    POSIX drops all locks that the process has on the file, for its other connections too. The next process to
    leave would then take itself for the last one and remove the write-ahead log.
    """
    wal = path.with_name(path.name + "-wal")
    try:
        if path.is_dir():
            raise LogUnavailableError(f"{path} is a folder.", hint="Name a file in it.")
        # The -wal file first: another process may be moving it into the main file and removing it.
        wal_size = _size(wal)
        size = _size(path)
        if size == 0 and wal_size > 0:
            raise corrupt(path, "the file is empty or gone, but its -wal file holds commits")
        if 0 < size < 512:
            raise corrupt(path, f"it has {size} bytes, a database has at least 512")
    except OSError as error:
        raise LogUnavailableError(
            f"{path} cannot be opened: {error.strerror}.", hint="The file and its folder have to be readable."
        ) from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _refuse_foreign(path: Path, connection: sqlite3.Connection) -> None:
    # Read all of it in one transaction: between two reads another process may have created the log.
    connection.execute("BEGIN")
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if application == 0 and version == 0:
        if tables:
            raise corrupt(path, "it is a SQLite database of another program")
        return
    if application != APPLICATION_ID:
        raise corrupt(path, "it is a SQLite database of another program")
    if version not in (SCHEMA_VERSION, PACKED_VERSION):
        raise LogCorruptError(
            f"{path} has version {version}, this program knows {SCHEMA_VERSION} and {PACKED_VERSION}.",
            hint="Use the version of noesium that made it, or a newer one.",
        )


def _make_schema(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0]:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been first: check again under the lock.
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";")[:-1]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        connection.close()
