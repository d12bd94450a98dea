"""The index of one corpus: a SQLite file with the files, their passages and an FTS5 index over them.

Everything in it can be made anew from the documents, so a file of another version or a damaged one is
simply replaced. Each batch of files is one transaction: killed at any moment the index is consistent and
the next run goes on from there. Two processes may write at once; the second finds the work done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agents.documents.listing import Reason, Skipped
from agents.librarian.meaning import packed, vectors_of
from agents.librarian.ranking import score
from agents.librarian.searching import Score, found_in
from noesium_stream.private_files import make_file, make_folder

SCHEMA_VERSION = 5
"""Raise it with every change of the tables, a parser, the cutting of passages, or the model of meaning."""

BUSY_MS = 60_000

_TABLES = """
CREATE TABLE corpus (root TEXT NOT NULL);
CREATE TABLE files (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    sha256 TEXT NOT NULL, title TEXT NOT NULL, note TEXT NOT NULL, reason TEXT);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY, file_id INTEGER NOT NULL REFERENCES files, ordinal INTEGER NOT NULL,
    heading TEXT NOT NULL, text TEXT NOT NULL, words TEXT NOT NULL,
    start_line INTEGER, end_line INTEGER, page INTEGER, kind TEXT NOT NULL, units TEXT NOT NULL,
    vector BLOB NOT NULL);
CREATE INDEX passages_of_file ON passages (file_id);
CREATE VIEW found AS
    SELECT passages.id AS id, path, title, heading, text, words, file_id, ordinal,
        start_line, end_line, page
    FROM passages JOIN files ON files.id = passages.file_id;
CREATE VIRTUAL TABLE terms USING fts5 (
    path, title, heading, text, words, content = 'found', content_rowid = 'id',
    tokenize = "porter unicode61 remove_diacritics 2");
"""
_DROPS = (
    "DROP TABLE IF EXISTS terms",
    "DROP VIEW IF EXISTS found",
    "DROP TABLE IF EXISTS passages",
    "DROP TABLE IF EXISTS files",
    "DROP TABLE IF EXISTS corpus",
)
_COLUMNS = "path, title, heading, text, words"


@dataclass(frozen=True, slots=True)
class FileRow:
    """What the index knows of a file; `reason` is set if it could not be read."""

    size: int
    mtime_ns: int
    sha256: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file to be written to the index: its passages, or the reason for which there are none."""

    path: str
    size: int
    mtime_ns: int
    sha256: str
    title: str = ""
    note: str = ""
    reason: str | None = None
    passages: Sequence[Sequence[Any]] = ()
    """[heading, text, words, start_line, end_line, page, kind, units] each; units as in `corpus.search`."""


class CorpusIndex:
    """Reads and writes the index at `path`; each method opens a connection, so threads may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, root: Path) -> None:
        """Make the file and its tables if they are absent, of another version, or damaged."""
        make_folder(self.path.parent)
        try:
            self._prepare(root)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and not is_damage(error):
                raise
            self.discard()
            self._prepare(root)

    def discard(self) -> None:
        """Remove the file; it is made anew by `prepare`."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def files(self) -> dict[str, FileRow]:
        """All known files by path."""
        with self._connection() as db:
            rows = db.execute("SELECT path, size, mtime_ns, sha256, reason FROM files").fetchall()
        return {path: FileRow(*rest) for path, *rest in rows}

    def write(self, entries: Iterable[FileEntry]) -> None:
        """Add or replace files and their passages, all or none."""
        with self._transaction() as db:
            for entry in entries:
                self._write_file(db, entry)

    def touch(self, entries: Iterable[tuple[str, int, int]]) -> None:
        """Note new (path, size, time of change) of files whose bytes are the same."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE files SET size = ?2, mtime_ns = ?3 WHERE path = ?1",
                [tuple(entry) for entry in entries],
            )

    def remove(self, paths: Iterable[str]) -> None:
        """Forget files, all or none."""
        with self._transaction() as db:
            for path in paths:
                self._remove_file(db, path)

    def counts(self) -> tuple[int, int]:
        """How many documents and how many passages there are."""
        with self._connection() as db:
            documents = db.execute("SELECT count(*) FROM files WHERE reason IS NULL").fetchone()[0]
            return int(documents), int(db.execute("SELECT count(*) FROM passages").fetchone()[0])

    def skipped(self) -> list[Skipped]:
        """Files that could not be read when they were last tried."""
        with self._connection() as db:
            rows = db.execute("SELECT path, reason, note FROM files WHERE reason IS NOT NULL ORDER BY path")
            return [Skipped(path, Reason(reason), note) for path, reason, note in rows]

    def search(self, query: str, limit: int, score: Score = score) -> dict[str, Any]:
        """The output of `corpus.search`, but for the corpus: the best passages for `query`, best first.

        Equal scores are ordered by path and place, so the answer depends on the documents alone.
        """
        with self._connection() as db:
            return found_in(db, query, limit, score)

    def passages_of(self, path: str, first: int, most: int) -> tuple[str, int, list[tuple[Any, ...]]] | None:
        """The title of a document, its number of passages, and some of them; None: there is no such document.

        Each is (number, heading, text, first line, last line, page); numbers count from 0.
        """
        with self._connection() as db:
            found = db.execute(
                "SELECT id, title FROM files WHERE path = ? AND reason IS NULL", (path,)
            ).fetchone()
            if found is None:
                return None
            count = db.execute("SELECT count(*) FROM passages WHERE file_id = ?", found[:1]).fetchone()[0]
            rows = db.execute(
                "SELECT ordinal, heading, text, start_line, end_line, page FROM passages "
                "WHERE file_id = ? AND ordinal >= ? ORDER BY ordinal LIMIT ?",
                (found[0], first, most),
            ).fetchall()
        return str(found[1]), int(count), rows

    def _prepare(self, root: Path) -> None:
        make_file(self.path)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            # 1. make: only an empty file takes the page size and WAL, 2. compare versions inside of the
            # write lock, so that two processes that start at once agree
            db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
                for statement in (*_DROPS, *_statements(_TABLES)):
                    db.execute(statement)
                db.execute("INSERT INTO corpus VALUES (?)", (str(root).encode("utf-8", "replace").decode(),))
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            db.execute("COMMIT")
            if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("database disk image is malformed")

    def _write_file(self, db: sqlite3.Connection, entry: FileEntry) -> None:
        known = db.execute(
            "SELECT sha256, mtime_ns, size FROM files WHERE path = ?", (entry.path,)
        ).fetchone()
        if known == (entry.sha256, entry.mtime_ns, entry.size) and entry.sha256:
            return  # another process was faster
        self._remove_file(db, entry.path)
        file_id = db.execute(
            "INSERT INTO files (path, size, mtime_ns, sha256, title, note, reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (entry.path, entry.size, entry.mtime_ns, entry.sha256, entry.title, entry.note, entry.reason),
        ).lastrowid
        vectors = vectors_of([f"{entry.title} {passage[0]} {passage[1]}" for passage in entry.passages])
        db.executemany(
            "INSERT INTO passages (file_id, ordinal, heading, text, words, start_line, end_line, page, kind, "
            "units, vector) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (file_id, ordinal, *passage[:7], orjson.dumps(passage[7]).decode(), packed(vector))
                for ordinal, (passage, vector) in enumerate(zip(entry.passages, vectors, strict=True))
            ),
        )
        db.execute(
            f"INSERT INTO terms (rowid, {_COLUMNS}) SELECT id, {_COLUMNS} FROM found WHERE file_id = ?",
            (file_id,),
        )

    def _remove_file(self, db: sqlite3.Connection, path: str) -> None:
        row = db.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if row is None:
            return
        db.execute(
            f"INSERT INTO terms (terms, rowid, {_COLUMNS}) "
            f"SELECT 'delete', id, {_COLUMNS} FROM found WHERE file_id = ?",
            row,
        )
        db.execute("DELETE FROM passages WHERE file_id = ?", row)
        db.execute("DELETE FROM files WHERE id = ?", row)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            # NORMAL may lose the last batch in a power cut; the next run reads those files again
            db.execute("PRAGMA synchronous = NORMAL")
            yield db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is broken, foreign, or lacks its tables."""
    text = str(error)
    return any(
        sign in text for sign in ("malformed", "not a database", "no such table", "disk I/O", "corrupt")
    )


def _statements(script: str) -> list[str]:
    return [statement for statement in script.split(";\n") if statement.strip()]
