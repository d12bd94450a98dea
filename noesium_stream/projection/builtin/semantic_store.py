"""Storage of a semantic index: texts, full text index and vectors in one SQLite file.

It is derived data: if anything is wrong with it, it is deleted and rebuilt from the projection's rows.
"""

from __future__ import annotations

import re
import sqlite3
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from operator import mul
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from noesium_stream.errors import ProjectionError, brief
from noesium_stream.private_files import make_file, make_folder
from noesium_stream.projection.state.atomic_file import alone

_SCHEMA: Final = """
CREATE TABLE meta (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE item (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, body TEXT NOT NULL, vector BLOB);
CREATE VIRTUAL TABLE words USING fts5 (body, content = 'item', content_rowid = 'id',
    tokenize = 'unicode61 remove_diacritics 2');
"""
_FIND: Final = (
    "SELECT item.key, item.body, -words.rank FROM words JOIN item ON item.id = words.rowid"
    " WHERE words MATCH ? ORDER BY words.rank, item.key LIMIT ?"
)
_BETWEEN: Final = "(? IS NULL OR key > ?) AND (? IS NULL OR key < ?)"
_WORD: Final = re.compile(r"\w+")


Range = tuple[str | None, str | None]


class Hit(NamedTuple):
    """A search result: the row's key, the indexed text, and a score (higher is better)."""

    key: str
    text: str
    score: float


class Item(NamedTuple):
    """The text to index for a row; without a text the row is removed."""

    key: str
    text: str | None
    vector: Sequence[float] | None = None


class SemanticStore:
    """The index file; not thread-safe. Processes that change it do so inside `alone(path)`.

    Raises:
        ProjectionError: another process keeps writing it, or the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        make_folder(path.parent)
        with alone(path):
            self._open()

    def _open(self) -> None:
        try:
            self._db = _connected(self.path)
        except sqlite3.DatabaseError as error:
            if cannot_write(error):
                raise not_written(self.path, error) from error
            _remove(self.path)
            self._db = _connected(self.path)
        self._file = self.path.stat().st_ino

    def empty(self) -> None:
        """Remove all items and the metadata; a damaged file is replaced.

        It stays the same file where possible: other processes have it open.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM meta")
            self._db.execute("DELETE FROM item")
            self._db.execute("INSERT INTO words (words) VALUES ('delete-all')")
            self._db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            if cannot_write(error):
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
            self._db.close()
            with suppress(FileNotFoundError):
                if self.path.stat().st_ino == self._file:  # else another process has replaced it already
                    _remove(self.path)
            self._open()
            self.empty()

    def about(self) -> dict[str, Any]:
        """The metadata written with the items; empty before the first write."""
        found = self._db.execute("SELECT body FROM meta WHERE id = 1").fetchone()
        about: dict[str, Any] = {} if found is None else orjson.loads(found[0])
        return about

    def write(self, items: Iterable[Item], about: Mapping[str, Any], *, gone: Iterable[Range] = ()) -> None:
        """Remove items whose keys lie in the open ranges `gone`, write items and metadata; all or nothing.

        None as a bound of a range means unbounded.
        """
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for first, last in gone:
                self._remove(_BETWEEN, (first, first, last, last))
            for item in items:
                self._remove("key = ?", (item.key,))
                if item.text is not None:
                    self._put(item.key, item.text, item.vector)
            db.execute("INSERT OR REPLACE INTO meta (id, body) VALUES (1, ?)", (orjson.dumps(about),))
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise

    def _put(self, key: str, text: str, vector: Sequence[float] | None) -> None:
        blob = None if vector is None else array("f", vector).tobytes()
        done = self._db.execute("INSERT INTO item (key, body, vector) VALUES (?, ?, ?)", (key, text, blob))
        self._db.execute("INSERT INTO words (rowid, body) VALUES (?, ?)", (done.lastrowid, text))

    def _remove(self, where: str, values: tuple[Any, ...]) -> None:
        found = self._db.execute(f"SELECT id, body FROM item WHERE {where}", values).fetchall()
        for number, body in found:
            self._db.execute("INSERT INTO words (words, rowid, body) VALUES ('delete', ?, ?)", (number, body))
            self._db.execute("DELETE FROM item WHERE id = ?", (number,))

    def find_words(self, text: str, top_k: int) -> list[Hit]:
        """Items that contain any of the text's words, best match (BM25) first."""
        words = " OR ".join(f'"{word}"' for word in _WORD.findall(text))
        if not words:
            return []
        return [Hit(*row) for row in self._db.execute(_FIND, (words, top_k))]

    def find_near(self, vector: Sequence[float], top_k: int) -> list[Hit]:
        """Items by cosine similarity to this vector; all vectors have length 1."""
        rows = self._db.execute("SELECT key, body, vector FROM item WHERE vector IS NOT NULL")
        hits = (Hit(key, body, sum(map(mul, array("f", blob), vector))) for key, body, blob in rows)
        return nlargest(top_k, hits, key=lambda hit: (hit.score, hit.key))

    def contents(self) -> list[tuple[str, str]]:
        """All keys with their texts, ordered by key."""
        return self._db.execute("SELECT key, body FROM item ORDER BY key").fetchall()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._db.close()


def cannot_write(error: sqlite3.Error) -> bool:
    """Whether a lock of another process or a full disk prevents the write; the file may be sound."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)


def not_written(path: Path, error: sqlite3.Error) -> ProjectionError:
    """The error for a failed write."""
    return ProjectionError(
        f"The index {path} cannot be written: {brief(error)}.",
        hint="Is another process writing it? Give this one a file of its own (path=...).",
    )


def _connected(path: Path) -> sqlite3.Connection:
    make_file(path)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL").fetchone()
        db.execute("PRAGMA synchronous = NORMAL")
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            db.executescript(_SCHEMA)
        db.execute("SELECT body FROM meta").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
