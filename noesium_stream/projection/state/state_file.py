"""The state of one projection over one partition: rows by key in a checksummed SQLite file (RFC-0004 §7).

`state_file/checksummed_file.py` describes the file, `rows.py` how rows are verified, and `manifest.py` the
manifest. A damaged file is rebuilt from the log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from noesium_stream.errors import ProjectionError
from noesium_stream.private_files import make_file
from noesium_stream.projection.state.manifest import DIFFERENCES, FORMAT, Identity, Manifest
from noesium_stream.projection.state.rows import ROW_TABLE, Rows, begin_rows
from noesium_stream.state_file.checksummed_file import ChecksummedFile, Layout
from noesium_stream.state_file.claim import discard
from noesium_stream.state_file.sqlite import Translating, connect_to_read, require_whole

_TURNS: Final = 1 << 20
"""Number of commits at one cursor (redrives) that stamps can distinguish; further ones still increase."""


class StateFile(ChecksummedFile[Manifest]):
    """Ordered rows by key and a manifest; one process writes it.

    Create with `open` or `open_to_read`.

    Attributes:
        found: the manifest at the time the file was opened.
    """

    LAYOUT = Layout(
        user="projection",
        application_id=0x6E6F6573,
        format=FORMAT,
        tables=(ROW_TABLE,),
        manifest=Manifest,
        identity=Identity,
        differences=DIFFERENCES,
        overwrites=True,
    )

    path: Path

    def __init__(
        self, path: Path, db: sqlite3.Connection, manifest: Manifest, lock: ExitStack | None
    ) -> None:
        super().__init__(path, db, manifest, lock)
        self.found: Final = manifest
        self._rows = Rows(db, path, manifest.stamp, written=lock is not None)

    @staticmethod
    def _begin_rows(db: sqlite3.Connection) -> None:
        begin_rows(db)

    @classmethod
    def open_to_read(cls, path: Path) -> StateFile:
        """Open a file, which another process may be writing, as of its last commit.

        `refresh` moves on to newer commits.

        Raises:
            StateFileError: it is damaged or missing; the message says which.
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
            # The file was replaced meanwhile: the WAL beside it may belong to the new file.
            file.close()

    @classmethod
    def _opened_to_read(cls, path: Path) -> StateFile:
        db = connect_to_read(path)
        try:
            with Translating(path):
                db.execute("BEGIN")
                return cls(path, db, cls._read_manifest(db, path), None)
        except BaseException:
            db.close()
            raise

    def refresh(self) -> None:
        """Move a reader on to the latest commit."""
        with self._sound:
            self._db.execute("ROLLBACK")
            self._db.execute("BEGIN")
            self.manifest = self._read_manifest(self._db, self.path)
            self._rows.newest = self.manifest.stamp

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None if the key is proven absent.

        Raises:
            StateFileError: the file is damaged.
        """
        return self._rows.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As `Rows.scan`."""
        return self._rows.scan(prefix)

    def verify(self) -> None:
        """Read and verify every row; otherwise damage is found only when a row is read.

        Raises:
            StateFileError: the file is damaged.
        """
        for _ in self.scan(b""):
            pass

    def changed(self, since: int) -> Iterator[tuple[bytes, bytes, bytes]]:
        """As `Rows.changed`."""
        return self._rows.changed(since)

    def commit(self, changes: Mapping[bytes, bytes | None], manifest: Manifest) -> None:
        """Write rows (None removes one) and the manifest, all or nothing.

        Raises:
            StateFileError: the file is damaged.
            ProjectionError: it cannot be written (a full disk); nothing was written.
        """
        before = self.manifest
        stamp = max(before.stamp + 1, manifest.cursor * _TURNS)
        manifest = replace(manifest, commits=before.commits + 1, stamp=stamp)
        with self._sound:
            self._db.execute("BEGIN IMMEDIATE")
            self._rows.newest = stamp
            try:
                self._rows.write(changes, stamp)
                self._commit(manifest)
            except BaseException:
                self._rows.forget(before.stamp)
                with suppress(sqlite3.Error):  # a full disk may have rolled it back already
                    self._db.execute("ROLLBACK")
                raise
        self.manifest = manifest
        self._rows.settle()

    def copy_to(self, path: Path) -> None:
        """Write a compact copy as of the last commit (of any process) to a new path.

        Raises:
            ProjectionError: the copy cannot be written.
        """
        with self._sound:
            if self._lock is None:
                self._db.execute("ROLLBACK")  # end the reader's transaction; VACUUM starts its own
                self._db.execute("PRAGMA query_only = OFF")  # it would also forbid writing the copy
            make_file(path)  # an empty file is one that it writes to
            try:
                self._db.execute("VACUUM INTO ?", (str(path),))
            finally:
                if self._lock is None:
                    self._db.execute("PRAGMA query_only = ON")
                    self._db.execute("BEGIN")
        if self._lock is None:
            self.refresh()

    def give_way_to(self, path: Path) -> None:
        """Replace this file by another, closed one, then close it, as `discard`.

        Raises:
            ProjectionError: the other file is incomplete; nothing was replaced.
        """
        require_whole(path)
        self._db.close()
        discard(self.path)
        path.replace(self.path)
        self.close()


def _which(path: Path) -> tuple[int, int] | None:
    """The identity (device, inode) of the file at a path."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
