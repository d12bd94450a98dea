"""The file of a partition's state: one SQLite database, which may be lost, cut or damaged at any time.

What is in it can be told from inbox and journal (`state` says how). So whatever is read of it is either what
was written, or `StateFileError`, and then it is discarded and made anew:

- a row has a checksum, which is looked at when it is read,
- the manifest has one too, and says how many rows each table has; and what rows are found by lies in the
  file twice, in a table and in an index, which are compared when it is opened (SQLite's `integrity_check`:
  0.07 s for 100,000 ended runs). So a damaged tree or key cannot hide a row,
- it names the journal, its topic id, the partition and the last record that was folded, by offset and event
  id: the journal has to have that one there.

Changes are written as they come, within one transaction that stays open for some time (`StateFile.commit`):
rows and the cursor that they belong to are on the disk together or not at all, and what is put in and taken
out between two commits costs no more than a change of pages in memory.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import orjson

from noesium_stream.errors import ProjectionError, StateBusyError, StateFileError
from noesium_stream.projection.state_claim import claimed
from noesium_stream.projection.state_db import CACHE_KB, Translating, connect, keep_order, not_writable
from noesium_stream.projection.state_file import discard

FORMAT: Final = 3
_APPLICATION_ID: Final = 0x6E6F6577
SUM: Final = "sum BLOB NOT NULL"
_SCHEMA: Final = (
    "CREATE TABLE manifest (id INTEGER PRIMARY KEY, body BLOB NOT NULL, sum BLOB NOT NULL)",
    f"CREATE TABLE open (run_id TEXT PRIMARY KEY, body BLOB NOT NULL, {SUM}) WITHOUT ROWID",
    f"CREATE TABLE ended (run_id TEXT PRIMARY KEY, ms INTEGER NOT NULL, {SUM}) WITHOUT ROWID",
    "CREATE INDEX ended_ms ON ended (ms, run_id)",
    f"CREATE TABLE decided (inbox_offset INTEGER PRIMARY KEY, {SUM})",
    "CREATE TABLE waiting (inbox_offset INTEGER PRIMARY KEY, run_id TEXT NOT NULL, fair TEXT NOT NULL,"
    f" since_ms INTEGER NOT NULL, headers BLOB NOT NULL, value BLOB NOT NULL, {SUM})",
    "CREATE INDEX waiting_fair ON waiting (fair, inbox_offset)",
    "CREATE INDEX waiting_run ON waiting (run_id, inbox_offset)",
    f"CREATE TABLE passed (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, {SUM})",
    "CREATE TABLE parked (journal_offset INTEGER PRIMARY KEY, run_id TEXT NOT NULL, reason TEXT NOT NULL,"
    f" body BLOB NOT NULL, {SUM})",
    "CREATE INDEX parked_run ON parked (run_id, journal_offset)",
)
_TABLES: Final = ("open", "ended", "decided", "waiting", "passed", "parked")
_COUNTS: Final = f"SELECT {', '.join(f'(SELECT count(*) FROM {name} NOT INDEXED)' for name in _TABLES)}"
_CHECK_CACHE_KB: Final = 32_000


@dataclass(frozen=True, slots=True)
class Identity:
    """What a file has to be of, to be used."""

    journal: str
    journal_id: str
    partition: int


@dataclass(slots=True)
class Manifest:
    """What a file says of itself, and what is no table of it.

    Attributes:
        cursor: the next offset of the journal to fold.
        last_offset, last_event_id: of the last record that was folded; None before the first.
        inbox_id: of the inbox topic in which the offsets count.
        position: the next offset of the inbox to read: what lies below waits here, or is decided on.
        low: all below it is decided on, as the journal says.
        last_read: the last record of the inbox that was read, by offset and checksum.
        last_copy: the last one that a run has a copy of, by offset and event id.
        in_order: copies in the journal lie in the order of the inbox, and none is left out (as of releases
            before there was a queue).
        last_fair: whose command was accepted last, by fairness key.
        newest_ms: when the last run ended, by its owner's clock.
        graph: of the worker that says which runs rest.
        successor: number and partitions of the next generation, if there is one.
        counts: rows by table.
    """

    identity: Identity
    cursor: int = 0
    last_offset: int | None = None
    last_event_id: str | None = None
    inbox_id: str | None = None
    position: int = 0
    low: int = 0
    last_read: tuple[int, str] | None = None
    last_copy: tuple[int, str] | None = None
    in_order: bool = True
    last_fair: str = ""
    newest_ms: int = 0
    graph: str | None = None
    successor: tuple[int, int] | None = None
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TABLES, 0))
    format: int = FORMAT


class StateFile:
    """The open database, which one owner writes. Use `open_state_file` or `in_memory`."""

    def __init__(
        self, db: sqlite3.Connection, manifest: Manifest, path: Path | None, lock: IO[bytes] | None
    ) -> None:
        self.manifest: Final = manifest
        self.path: Final = path
        self._db = db
        self._lock = lock
        self._written: bytes | None = None
        self._sound = Translating(path or Path("the state in memory"))

    def read(self, statement: str, values: Iterable[Any] = ()) -> list[Any]:
        """The rows that a query finds.

        Raises:
            StateFileError: SQLite cannot read it.
        """
        with self._sound:
            return self._db.execute(statement, tuple(values)).fetchall()

    def change(self, statement: str, values: Iterable[Any] = ()) -> int:
        """Change rows as part of the next commit; return how many.

        Raises:
            StateFileError: it is damaged.
            ProjectionError: it cannot be written.
        """
        with self._sound:
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            return self._db.execute(statement, tuple(values)).rowcount

    def commit(self) -> None:
        """Write all changes and the manifest; nothing where neither has changed.

        Raises:
            StateFileError: it is damaged.
            ProjectionError: it cannot be written.
        """
        body = orjson.dumps(self.manifest)
        if body == self._written and not self._db.in_transaction:
            return
        self.change("UPDATE manifest SET body = ?, sum = ? WHERE id = 1", (body, digest(body)))
        with self._sound:
            self._db.execute("COMMIT")
        self._written = body

    def close(self) -> None:
        """Let go; what was not committed is forgotten. Harmless when repeated."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def discard(self) -> None:
        """Let go, and remove the file."""
        self._db.close()
        if self.path is not None:
            discard(self.path)
        self.close()

    def broken(self, what: str) -> StateFileError:
        """The error of a row that is not what was written."""
        return StateFileError(f"{self.path}: {what}.")


def open_state_file(path: Path, identity: Identity, discarded: Callable[[str], None]) -> StateFile:
    """Open the file to write it, or make it; where it cannot be written at all, the state is in memory.

    One that has lost the partition and does not know it keeps its file, and this is another one (`claimed`).

    Args:
        path: where it lies.
        identity: what it has to be of.
        discarded: told in a line why a file was not used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path, lock = claimed(path)
    except StateBusyError as error:
        discarded(f"{error.message} The state is kept in memory.")
        return in_memory(identity)
    except OSError as error:
        discarded(f"{not_writable(path, error).message} The journal is read from its beginning.")
        return in_memory(identity)
    try:
        try:
            return _opened(path, identity, lock)
        except StateFileError as error:
            discarded(f"{error.message} The journal is read from its beginning.")
            discard(path)
            return _opened(path, identity, lock)
    except (ProjectionError, OSError) as error:
        lock.close()
        discarded(f"{error} The journal is read from its beginning.")
        return in_memory(identity)
    except BaseException:
        lock.close()
        raise


def in_memory(identity: Identity) -> StateFile:
    """A state that no file keeps."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _create(db, identity)
    return StateFile(db, Manifest(identity), None, None)


def digest(*parts: bytes) -> bytes:
    """A checksum of a row."""
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


def row_sum(*fields: object, value: bytes = b"") -> bytes:
    """A checksum of a row of JSON fields and a value."""
    return digest(orjson.dumps(fields), value)


def _opened(path: Path, identity: Identity, lock: IO[bytes]) -> StateFile:
    db = connect(path)
    try:
        with Translating(path):
            # Who died while it was made leaves a database without a table: as good as none.
            if db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
                _create(db, identity)
                keep_order(db)
                manifest = Manifest(identity)  # nothing in it that could be damaged: it is not read back
            else:
                keep_order(db)
                manifest = _read_manifest(db, path)
        _require(manifest, identity, path)
        return StateFile(db, manifest, path, lock)
    except BaseException:
        db.close()
        raise


def _create(db: sqlite3.Connection, identity: Identity) -> None:
    db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    db.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA:
        db.execute(statement)
    body = orjson.dumps(Manifest(identity))
    db.execute("INSERT INTO manifest (id, body, sum) VALUES (1, ?, ?)", (body, digest(body)))
    db.execute("COMMIT")


def _read_manifest(db: sqlite3.Connection, path: Path) -> Manifest:
    tables = tuple(text for (text,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))
    if sorted(tables) != sorted(_SCHEMA):
        raise StateFileError(f"{path} is no state file of a worker.")
    found = db.execute("SELECT body, sum FROM manifest WHERE id = 1").fetchone()
    if found is None or not isinstance(found[0], bytes) or digest(found[0]) != found[1]:
        raise StateFileError(f"{path}: its manifest is damaged.")
    fields = orjson.loads(found[0])
    if fields.get("format") != FORMAT:
        raise StateFileError(f"{path} has the format {fields.get('format')}, not {FORMAT}.")
    for name in ("successor", "last_read", "last_copy"):
        if fields.get(name) is not None:
            fields[name] = tuple(fields[name])
    manifest = Manifest(**{**fields, "identity": Identity(**fields["identity"])})
    for table, count in zip(_TABLES, db.execute(_COUNTS).fetchone(), strict=True):
        if count != manifest.counts[table]:
            raise StateFileError(f"{path}: the table {table} has {count} rows, not {manifest.counts[table]}.")
    db.execute(f"PRAGMA cache_size = -{_CHECK_CACHE_KB}")
    found = db.execute("PRAGMA integrity_check(1)").fetchone()
    db.execute(f"PRAGMA cache_size = -{CACHE_KB}")
    if found != ("ok",):
        raise StateFileError(f"{path} is damaged: {found[0]}.")
    return manifest


def _require(manifest: Manifest, wanted: Identity, path: Path) -> None:
    found = manifest.identity
    if (found.journal, found.partition) != (wanted.journal, wanted.partition):
        raise StateFileError(f"{path}: it is of {found.journal}/{found.partition}.")
    if found.journal_id != wanted.journal_id:
        raise StateFileError(
            f"{path}: the journal was deleted and made anew (its id was {found.journal_id})."
        )
