"""A checksummed SQLite file with a manifest and the tables of its user, which may be lost or damaged.

All that it holds can be folded again from the log. So a read returns what was written or raises
`StateFileError`, and then the file is discarded and made anew:

- Each row has a checksum (`row_hash`), which the user verifies when it reads the row.
- The manifest has a checksum too. It says whose state the file holds and how far the log was folded.
- A file whose tables, format or identity are not the wanted ones is not used.

Rows and manifest reach the disk in one transaction, so together or not at all. SQLite's file beside the file
(`-wal`) belongs to it: never copy or restore one without the other.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import orjson

from noesium_stream.errors import StateFileError
from noesium_stream.private_files import make_folder
from noesium_stream.state_file.claim import discard, locked
from noesium_stream.state_file.sqlite import Translating, connect, keep_order, not_writable

_MANIFEST_TABLE: Final = (
    "CREATE TABLE manifest (id INTEGER PRIMARY KEY, body BLOB NOT NULL, sum BLOB NOT NULL)"
)
_IN_MEMORY: Final = Path("the state in memory")

row_hash: Final = partial(hashlib.blake2b, digest_size=8)
"""Hash of a row's bytes; its digest is the row's checksum."""

Claim = Callable[[Path], tuple[Path, ExitStack]]
"""Maps the intended path of a state to the file to write, with its lock."""


M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a state file that its user determines.

    Attributes:
        user: the user, for messages.
        application_id: SQLite's application id.
        format: version of the content; raise it when the content changes its meaning.
        tables: statements that create the tables and indexes.
        manifest: dataclass of the manifest.
        identity: dataclass of the identity.
        differences: error text for each field of the identity, which is formatted with the identity found.
        overwrites: whether deleted content is overwritten, so that no old copy of a row can reappear.
        empty_is_new: whether a file without tables is taken for one whose maker has died. If not, it is
            reported: its `-wal`, which had all content, may be missing or damaged.
    """

    user: str
    application_id: int
    format: int
    tables: tuple[str, ...]
    manifest: Callable[..., Any]
    identity: Callable[..., Any]
    differences: Mapping[str, str]
    overwrites: bool = False
    empty_is_new: bool = False


class ChecksummedFile(Generic[M]):
    """An open state file. A subclass gives the layout, and reads and writes the rows.

    Attributes:
        path: path of the file; None: the state is in memory.
        manifest: the manifest as of the last read or write.
    """

    LAYOUT: ClassVar[Layout]

    path: Path | None

    def __init__(
        self, path: Path | None, db: sqlite3.Connection, manifest: M, lock: ExitStack | None
    ) -> None:
        self.path = path
        self.manifest = manifest
        self._db = db
        self._lock = lock
        self._written: bytes | None = None
        self._sound: Final = Translating(path or _IN_MEMORY)

    @classmethod
    def open(
        cls,
        path: Path,
        identity: Any,
        *,
        instead: Callable[[StateFileError], None] | None = None,
        claim: Claim | None = None,
    ) -> Self:
        """Open the file for writing, or create it.

        Args:
            path: the file's path.
            identity: the identity that it must have.
            instead: called with the reason when an unusable file is discarded and replaced; None raises
                instead.
            claim: chooses the file and locks it; None uses the one at `path`.

        Raises:
            StateFileError: it is damaged, foreign, or has another identity; the message says which.
            StateBusyError: another process writes it.
            ProjectionError: it cannot be written at all (permissions, a full disk).
        """
        try:
            make_folder(path.parent)
            path, lock = (path, locked(path)) if claim is None else claim(path)
            with ExitStack() as undo:
                undo.callback(lock.close)
                try:
                    file = cls._opened(path, identity, lock)
                except StateFileError as error:
                    if instead is None:
                        raise
                    instead(error)
                    discard(path)  # while it is locked: the next process finds the new file
                    file = cls._opened(path, identity, lock)
                undo.pop_all()
                return file
        except OSError as error:
            raise not_writable(path, error) from error

    @classmethod
    def _opened(cls, path: Path, identity: Any, lock: ExitStack) -> Self:
        with ExitStack() as undo, Translating(path):
            # A process that died while it created the file has left an empty one.
            new = not path.exists() or path.stat().st_size == 0
            db = connect(path)
            undo.callback(db.close)
            new = new or (cls.LAYOUT.empty_is_new and _has_no_tables(db))
            if new:
                manifest = cls._create(db, identity)
            keep_order(db)
            if not new:
                manifest = cls._read_manifest(db, path, identity)
            if cls.LAYOUT.overwrites:
                db.execute("PRAGMA secure_delete = ON").fetchone()
            file = cls(path, db, manifest, lock)
            if not new:
                file._check()
            undo.pop_all()
            return file

    @classmethod
    def _create(cls, db: sqlite3.Connection, identity: Any) -> M:
        layout = cls.LAYOUT
        manifest: M = layout.manifest(identity)
        body = orjson.dumps(manifest)
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"PRAGMA application_id = {layout.application_id}")
        for statement in (_MANIFEST_TABLE, *layout.tables):
            db.execute(statement)
        db.execute("INSERT INTO manifest (id, body, sum) VALUES (1, ?, ?)", (body, _digest(body)))
        cls._begin_rows(db)
        db.execute("COMMIT")
        return manifest

    @staticmethod
    def _begin_rows(db: sqlite3.Connection) -> None:
        """Insert the rows of a new file."""

    def _check(self) -> None:
        """Check an existing file when it is opened for writing. Raises StateFileError."""

    @classmethod
    def _read_manifest(cls, db: sqlite3.Connection, path: Path, wanted: Any = None) -> M:
        layout = cls.LAYOUT
        tables = tuple(text for (text,) in db.execute("SELECT sql FROM sqlite_master ORDER BY rowid"))
        if tables[:1] != (_MANIFEST_TABLE,):
            raise StateFileError(f"{path} is no state file of a {layout.user}.")
        found = db.execute("SELECT body, sum FROM manifest WHERE id = 1").fetchone()
        body, digest = (b"", b"") if found is None or not isinstance(found[0], bytes) else found
        fields = _fields(body)
        # First the format: another one may have another checksum.
        if isinstance(fields.get("format"), int) and fields["format"] != layout.format:
            raise StateFileError(f"{path} has the format {fields['format']}, not {layout.format}.")
        if not fields or _digest(body) != digest:
            raise StateFileError(f"{path}: its manifest is damaged.")
        if tables[1:] != layout.tables:
            raise StateFileError(f"{path} is no state file of a {layout.user}.")
        found = layout.identity(**fields["identity"])
        for name, text in layout.differences.items():
            if wanted is not None and getattr(found, name) != getattr(wanted, name):
                raise StateFileError(f"{path}: {text.format(found)}.")
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        manifest: M = layout.manifest(**{**values, "identity": found})
        return manifest

    def _commit(self, manifest: M) -> None:
        """Write the manifest with the changes of the transaction, if anything has changed."""
        body = orjson.dumps(manifest)
        if not self._db.in_transaction:
            if body == self._written:
                return
            self._db.execute("BEGIN IMMEDIATE")
        self._put_manifest(body)
        self._db.execute("COMMIT")
        self._written = body

    def _put_manifest(self, body: bytes) -> None:
        self._db.execute("UPDATE manifest SET body = ?, sum = ? WHERE id = 1", (body, _digest(body)))

    def close(self) -> None:
        """Close the file and drop changes that are not committed. Idempotent."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def discard(self) -> None:
        """Remove the file, then release its lock: no other process can open it before it is gone."""
        self._db.close()
        if self.path is not None:
            discard(self.path)
        self.close()


def _has_no_tables(db: sqlite3.Connection) -> bool:
    tables = db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    return tables is None and db.execute("PRAGMA application_id").fetchone() == (0,)


def _fields(manifest: bytes) -> dict[str, Any]:
    """Parse a manifest; empty if it is none."""
    try:
        fields = orjson.loads(manifest)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _digest(manifest: bytes) -> bytes:
    return hashlib.blake2b(manifest, digest_size=16).digest()
