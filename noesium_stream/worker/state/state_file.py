"""State file of a partition: the tables of the worker's fold in a checksummed SQLite file.

All that it holds can be folded again from journal and inbox (see `partition_state`).
`state_file/checksummed_file.py` describes the file. Here, in addition:

- The manifest has the number of rows of each table. The keys of the rows are in the file twice, in a table
  and in an index, which are compared when the file is opened (SQLite's `integrity_check`: 0.07 s for 100,000
  ended runs). So a damaged tree or key cannot hide a row.
- The manifest names the journal, its topic id, the partition and the last record that was folded, by offset
  and event id. The journal must have that record at that offset.

Changes are written as they come, in one transaction that stays open for some time (`StateFile.commit`). A row
that is inserted and deleted between two commits changes pages in memory only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import orjson

from noesium_stream.errors import ProjectionError, StateBusyError, StateFileError
from noesium_stream.state_file.checksummed_file import ChecksummedFile, Layout, row_hash
from noesium_stream.state_file.claim import claimed
from noesium_stream.state_file.sqlite import CACHE_KB

FORMAT: Final = 5
_SUM: Final = "sum BLOB NOT NULL"
_SCHEMA: Final = (
    f"CREATE TABLE open (run_id TEXT PRIMARY KEY, body BLOB NOT NULL, {_SUM}) WITHOUT ROWID",
    f"CREATE TABLE ended (run_id TEXT PRIMARY KEY, ms INTEGER NOT NULL, {_SUM}) WITHOUT ROWID",
    "CREATE INDEX ended_ms ON ended (ms, run_id)",
    f"CREATE TABLE decided (inbox_offset INTEGER PRIMARY KEY, {_SUM})",
    "CREATE TABLE waiting (inbox_offset INTEGER PRIMARY KEY, run_id TEXT NOT NULL, fair TEXT NOT NULL,"
    f" since_ms INTEGER NOT NULL, headers BLOB NOT NULL, value BLOB NOT NULL, {_SUM})",
    "CREATE INDEX waiting_fair ON waiting (fair, inbox_offset)",
    "CREATE INDEX waiting_run ON waiting (run_id, inbox_offset)",
    f"CREATE TABLE skipped (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, {_SUM})",
    "CREATE TABLE deferred (journal_offset INTEGER PRIMARY KEY, run_id TEXT NOT NULL, reason TEXT NOT NULL,"
    f" body BLOB NOT NULL, {_SUM})",
    "CREATE INDEX deferred_run ON deferred (run_id, journal_offset)",
)
_TABLES: Final = ("open", "ended", "decided", "waiting", "skipped", "deferred")
_COUNTS: Final = f"SELECT {', '.join(f'(SELECT count(*) FROM {name} NOT INDEXED)' for name in _TABLES)}"
_CHECK_CACHE_KB: Final = 32_000
_OTHER_PARTITION: Final = "it is of {0.journal}/{0.partition}"


@dataclass(frozen=True, slots=True)
class Identity:
    """The journal partition that a state file belongs to."""

    journal: str
    journal_id: str
    partition: int


@dataclass(slots=True)
class Manifest:
    """Description of a state file, and the state that is not kept in tables.

    Attributes:
        cursor: next journal offset to fold.
        last_offset, last_event_id: the last record that was folded; None before the first.
        inbox_id: id of the inbox topic that the offsets refer to.
        position: next inbox offset to read: all records below are queued or decided on.
        low: inbox offset below which all is decided on according to the journal.
        last_read: the last inbox record that was read: offset and checksum.
        last_copy: the inbox record with the highest offset that a run has a copy of: offset and event id.
        in_order: whether journal copies are in inbox order without gaps (as releases before the queue wrote
            them).
        last_fair: fairness key of the command that was accepted last.
        newest_ms: when the last run ended, by its owner's clock.
        graph: the graphs of the worker that determined which runs rest.
        successor: number and partition count of the next generation, if there is one.
        counts: number of rows by table.
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


class StateFile(ChecksummedFile[Manifest]):
    """An open state database, written by one owner. Use `open_state_file` or `in_memory`."""

    LAYOUT = Layout(
        user="worker",
        application_id=0x6E6F6577,
        format=FORMAT,
        tables=_SCHEMA,
        manifest=Manifest,
        identity=Identity,
        empty_is_new=True,
        differences={
            "journal": _OTHER_PARTITION,
            "partition": _OTHER_PARTITION,
            "journal_id": "the journal was deleted and made anew (its id was {0.journal_id})",
        },
    )

    @classmethod
    def in_memory(cls, identity: Identity) -> Self:
        """Make a state database in memory."""
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        return cls(None, db, cls._create(db, identity), None)

    def _check(self) -> None:
        for table, count in zip(_TABLES, self.read(_COUNTS)[0], strict=True):
            if count != self.manifest.counts[table]:
                raise self.broken(f"the table {table} has {count} rows, not {self.manifest.counts[table]}")
        self.read(f"PRAGMA cache_size = -{_CHECK_CACHE_KB}")
        found = self.read("PRAGMA integrity_check(1)")
        self.read(f"PRAGMA cache_size = -{CACHE_KB}")
        if found != [("ok",)]:
            raise StateFileError(f"{self.path} is damaged: {found[0][0]}.")

    def read(self, statement: str, values: Iterable[Any] = ()) -> list[Any]:
        """Return the rows that a query finds.

        Raises:
            StateFileError: SQLite cannot read it.
        """
        with self._sound:
            return self._db.execute(statement, tuple(values)).fetchall()

    def change(self, statement: str, values: Iterable[Any] = ()) -> int:
        """Change rows as part of the next commit; return how many.

        Raises:
            StateFileError: the file is damaged.
            ProjectionError: the file cannot be written.
        """
        with self._sound:
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            return self._db.execute(statement, tuple(values)).rowcount

    def commit(self) -> None:
        """Write all changes and the manifest, if anything has changed.

        Raises:
            StateFileError: the file is damaged.
            ProjectionError: the file cannot be written.
        """
        with self._sound:
            self._commit(self.manifest)

    def broken(self, what: str) -> StateFileError:
        """Make the error for a row that is not as it was written."""
        return StateFileError(f"{self.path}: {what}.")


def open_state_file(path: Path, identity: Identity, discarded: Callable[[str], None]) -> StateFile:
    """Open or create a state file for writing; if none can be written, keep the state in memory.

    A process that has lost the partition and does not know it keeps its file; this one then gets another
    (`claimed`).

    Args:
        path: path of the file.
        identity: the journal partition that the file must belong to.
        discarded: takes one line that says why a file was not used.
    """

    def say(error: ProjectionError, then: str = "The journal is read from its beginning.") -> None:
        discarded(f"{error.message} {then}")

    try:
        return StateFile.open(path, identity, instead=say, claim=claimed)
    except StateBusyError as error:
        say(error, "The state is kept in memory.")
    except ProjectionError as error:
        say(error)
    return StateFile.in_memory(identity)


def row_sum(*fields: object, value: bytes = b"") -> bytes:
    """Compute the checksum of a row that has JSON fields and a value."""
    return row_hash(orjson.dumps(fields) + value).digest()
