"""The state of one projection over one partition, in one SQLite file (RFC-0004 §7).

Rows and the cursor that they belong to are written in one transaction. A file may be lost, cut or damaged at
any time: whatever is read of it is either what was written, or `StateFileError`, and then it is made anew
from the log. How that is known of a row says `rows.py`, of what the file says of itself `manifest.py`.

Deleted content is overwritten (`secure_delete`), so that no old copy of a row can come back. What SQLite
keeps beside the file (`-wal`) belongs to it: neither may be copied or put back without the other.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

from noesium_stream.errors import ProjectionError, StateBusyError, StateFileError
from noesium_stream.projection.manifest import (
    MANIFEST_TABLE,
    Identity,
    Manifest,
    begin_manifest,
    put_manifest,
    read_manifest,
    require,
)
from noesium_stream.projection.rows import ROW_TABLE, Rows, begin_rows
from noesium_stream.projection.state_db import (
    Translating,
    connect,
    connect_to_read,
    keep_order,
    not_writable,
    require_whole,
)

_APPLICATION_ID: Final = 0x6E6F6573
_SCHEMA: Final = (MANIFEST_TABLE, ROW_TABLE)
Claim = Callable[[Path], tuple[Path, IO[bytes]]]
"""The path at which a state is to lie -> the file to write, and its lock."""

_TURNS: Final = 1 << 20
"""Commits at one cursor (letters are redriven) that stamps can tell apart; more still grow."""


class StateFile:
    """Rows by key, in the order of their keys, and a manifest; one process writes it.

    Use `open` or `open_to_read`.

    Attributes:
        found: the manifest as it was when the file was opened.
    """

    def __init__(
        self, path: Path, db: sqlite3.Connection, manifest: Manifest, lock: IO[bytes] | None
    ) -> None:
        self.path: Final = path
        self._db = db
        self._lock = lock
        self.found: Final = manifest
        self._manifest = manifest
        self._rows = Rows(db, path, manifest.stamp, written=lock is not None)

    @property
    def manifest(self) -> Manifest:
        """As of the last commit (of this process, where it writes)."""
        return self._manifest

    @classmethod
    def open(
        cls,
        path: Path,
        identity: Identity,
        *,
        instead: Callable[[StateFileError], None] | None = None,
        claim: Claim | None = None,
    ) -> StateFile:
        """Open the file to write it, or make it.

        Args:
            path: where it lies.
            identity: what it has to be of.
            instead: told why a file that cannot be used is discarded and made anew; None raises.
            claim: says which file it is to be, and locks it; None: the one at `path`.

        Raises:
            StateFileError: it is damaged, foreign, or of something else; says what.
            StateBusyError: another process writes it.
            ProjectionError: it cannot be written at all (rights, a full disk).
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path, lock = (path, locked(path)) if claim is None else claim(path)
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
                keep_order(db)
                db.execute("PRAGMA secure_delete = ON").fetchone()
                manifest = _read(db, path)
            require(path, manifest.identity, identity)
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
        while True:
            which = _which(path)
            try:
                file = cls._opened_to_read(path)
            except ProjectionError:
                if _which(path) == which:
                    raise
                continue
            if _which(path) == which:
                return file
            # It was replaced meanwhile: its log beside it may be that of the new one.
            file.close()

    @classmethod
    def _opened_to_read(cls, path: Path) -> StateFile:
        db = connect_to_read(path)
        try:
            with Translating(path):
                db.execute("BEGIN")
                return cls(path, db, _read(db, path), None)
        except BaseException:
            db.close()
            raise

    def refresh(self) -> None:
        """See what was committed since; for readers."""
        with self._sound():
            self._db.execute("ROLLBACK")
            self._db.execute("BEGIN")
            self._manifest = _read(self._db, self.path)
            self._rows.newest = self._manifest.stamp

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None where it is certain that there is none.

        Raises:
            StateFileError: what is there is not what was written.
        """
        return self._rows.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As `Rows.scan`."""
        return self._rows.scan(prefix)

    def verify(self) -> None:
        """Read every row: what is damaged is otherwise found when it is asked for.

        Raises:
            StateFileError: what is there is not what was written.
        """
        for _ in self.scan(b""):
            pass

    def changed(self, since: int) -> Iterator[tuple[bytes, bytes, bytes]]:
        """As `Rows.changed`."""
        return self._rows.changed(since)

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
            self._rows.newest = stamp
            try:
                self._rows.write(changes, stamp)
                put_manifest(self._db, manifest)
                self._db.execute("COMMIT")
            except BaseException:
                self._rows.forget(before.stamp)
                with suppress(sqlite3.Error):  # a full disk may have rolled it back already
                    self._db.execute("ROLLBACK")
                raise
        self._manifest = manifest
        self._rows.settle()

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

    def give_way_to(self, path: Path) -> None:
        """Let another file, which is closed, take this one's place, and let go: as `discard`.

        Raises:
            ProjectionError: it is not whole; nothing was replaced.
        """
        require_whole(path)
        self._db.close()
        discard(self.path)
        path.replace(self.path)
        self.close()

    def _sound(self) -> Translating:
        return Translating(self.path)


def _which(path: Path) -> tuple[int, int] | None:
    """Which file it is that stands there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


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
    begin_manifest(db, Manifest(identity))
    begin_rows(db)
    db.execute("COMMIT")


def _read(db: sqlite3.Connection, path: Path) -> Manifest:
    tables = tuple(text for (text,) in db.execute("SELECT sql FROM sqlite_master ORDER BY rowid"))
    if tables != _SCHEMA:
        raise StateFileError(f"{path} is no state file of a projection.")
    return read_manifest(db, path)
