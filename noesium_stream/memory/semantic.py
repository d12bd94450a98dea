"""`SemanticMemory`: search in what is remembered, by words and by meaning (RFC-0004 §5.3, RFC-1001 §9.3).

An index in a file beside the store's, built from the live facts. It may lag, says how far it is, is rebuilt
when it does not match, and no fold reads it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noesium_stream.errors import AgentMemoryError, ConfigError, StateFileError
from noesium_stream.memory.fact import Fact
from noesium_stream.memory.fold import COLUMNS, fact_of
from noesium_stream.memory.item import MemoryItem, items_of
from noesium_stream.memory.store import MemoryStore
from noesium_stream.memory.words import WORD, by_words
from noesium_stream.private_files import make_folder
from noesium_stream.projection.builtin.semantic import Embedder
from noesium_stream.projection.fold_guard import Nondeterministic, refuse_in_fold
from noesium_stream.state_file.claim import discard
from noesium_stream.state_file.sqlite import Translating, connect, keep_order

if TYPE_CHECKING:
    from noesium_stream.memory.near import NearVectors, Vectors

VERSION: Final = 2
MAX_TOP: Final = 200
"""Most results of one search."""
MAX_QUERY: Final = 4_096
"""Characters of a question that are looked at."""

SEARCHED: Final = "search"
"""The entry of metadata that names the part of a value that is searched."""

_RANK_OFFSET: Final = 60
"""Of reciprocal rank fusion (Cormack, Clarke, Büttcher 2009)."""
_WIDE: Final = 4
_BATCH: Final = 5_000
_MAX_TEXT: Final = 20_000
_PLAIN: Final = frozenset({str, int, float})
PAGE_BYTES: Final = 16_384
"""Of the file: with SQLite's usual 4,096 a search reads the signs of its vectors at half the speed."""
SCHEMA: Final = """
CREATE TABLE about (version INTEGER NOT NULL, embedder TEXT, tick INTEGER NOT NULL, store TEXT NOT NULL);
CREATE TABLE item (number INTEGER PRIMARY KEY, mark TEXT NOT NULL, body TEXT NOT NULL, vector BLOB,
    chunk INTEGER);
CREATE TABLE signs (chunk INTEGER PRIMARY KEY, mark TEXT NOT NULL, count INTEGER NOT NULL,
    numbers BLOB NOT NULL, bits BLOB NOT NULL);
CREATE INDEX signs_mark ON signs (mark, count);
CREATE VIRTUAL TABLE words USING fts5 (body, mark, content = 'item', content_rowid = 'number',
    tokenize = 'unicode61 remove_diacritics 2');
"""
_KNOWN: Final = "SELECT number, chunk FROM item WHERE number IN (SELECT value FROM json_each(?))"
_FORGET: Final = (
    "INSERT INTO words (words, rowid, body, mark)"
    " SELECT 'delete', number, body, mark FROM item WHERE number = ?",
    "DELETE FROM item WHERE number = ?",
)


class SearchResult(NamedTuple):
    """What was found: the item, and a score; higher is better, and comparable within one search alone."""

    item: MemoryItem
    score: float


class SemanticMemory(Nondeterministic):
    """The index of a store.

    Args:
        store: the memory of a log.
        embedder: for search by meaning; None: by words alone.
        path: the index's file; default: beside the store's.

    Raises:
        ConfigError: there is an embedder, and numpy is not installed.
    """

    def __init__(
        self, store: MemoryStore, embedder: Embedder | None = None, path: Path | None = None
    ) -> None:
        self._store = store
        self._near = None if embedder is None else _near(embedder)
        self.path = path or store.path.with_suffix(_suffix(embedder))
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._of: str | None = None

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    async def search(self, text: str, top_k: int = 5, *, scopes: Sequence[str]) -> list[SearchResult]:
        """The live items of these scopes that match a text best, as of the last `refresh`; best first.

        By words (BM25) and, with an embedder, by meaning, joined by reciprocal ranks.

        Raises:
            AgentMemoryError: `top_k` is not 1 to 200.
            ImpureProjectionError: called in a fold.
        """
        refuse_in_fold("semantic memory")
        if not 1 <= top_k <= MAX_TOP:
            raise AgentMemoryError(f"A search of memory cannot have {top_k} results.", hint="Give 1 to 200.")
        asked = text[:MAX_QUERY], top_k, tuple(dict.fromkeys(scopes))
        try:
            return await asyncio.to_thread(self._search, *asked)
        except StateFileError:
            await self.rebuild_index()
            return await asyncio.to_thread(self._search, *asked)

    async def refresh(self) -> int:
        """Take in what has changed in the store since the last time; return the number of facts."""
        refuse_in_fold("semantic memory")
        try:
            return await asyncio.to_thread(self._refresh)
        except StateFileError:
            return await self.rebuild_index()

    async def rebuild_index(self) -> int:
        """Discard the index and make it anew from the store; return the number of facts."""
        refuse_in_fold("semantic memory")
        with self._lock:
            self.close()
            discard(self.path)
        return await asyncio.to_thread(self._refresh)

    def _search(self, text: str, top_k: int, scopes: tuple[str, ...]) -> list[SearchResult]:
        wide = min(MAX_TOP, _WIDE * top_k)
        with self._lock, Translating(self.path):
            marks = [_mark(scope) for scope in scopes]
            ranked = [by_words(self._opened(), text, wide, marks)]
            if self._near is not None:
                ranked.append(self._near.nearest(self._opened(), self._near.embed([text])[0], wide, marks))
        scores: dict[int, float] = {}
        for numbers in ranked:
            for rank, number in enumerate(numbers):
                scores[number] = scores.get(number, 0.0) + 1 / (_RANK_OFFSET + rank)
        best = nlargest(wide, scores.items(), key=lambda one: (one[1], -one[0]))
        return self._items(best, top_k, scopes)

    def _items(
        self, best: Sequence[tuple[int, float]], top_k: int, scopes: tuple[str, ...]
    ) -> list[SearchResult]:
        """The items as the store has them now: what is not live any more is left out."""
        found: list[SearchResult] = []
        with self._store.reading() as db:
            for number, score in best:
                row = db.execute(
                    f"SELECT {COLUMNS} FROM fact WHERE number = ? AND live = 1", (number,)
                ).fetchone()
                if row is not None and row[1] in scopes:
                    found.append(SearchResult(items_of([fact_of(row)])[0], score))
                if len(found) == top_k:
                    break
        return found

    def _refresh(self) -> int:
        with self._lock, Translating(self.path):
            if self._of != self._store.identity():
                self.close()  # the store was folded anew
            db = self._opened()
            (since,) = db.execute("SELECT tick FROM about").fetchone()
            count, after = 0, (since, 0)
            while rows := self._changed(after):
                told = [(number, fact, text_of(fact)) for number, _, live, fact in rows if live]
                texts = [(number, _mark(fact.scope), text) for number, fact, text in told if text]
                vectors = None
                if self._near is not None and texts:
                    vectors = self._near.embed([text for *_, text in texts])
                after = rows[-1][1], rows[-1][0]
                db.execute("BEGIN IMMEDIATE")
                try:
                    self._forget(db, [row[0] for row in rows])
                    self._add(db, texts, vectors)
                    # The last commit may be larger than a batch: it counts when all of it is there.
                    done = after[0] if len(rows) < _BATCH else after[0] - 1
                    db.execute("UPDATE about SET tick = max(tick, ?)", (done,))
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
                count += len(rows)
            return count

    def _forget(self, db: sqlite3.Connection, numbers: list[int]) -> None:
        """Remove the items of facts that there are: another process may have taken them in meanwhile."""
        known = db.execute(_KNOWN, (str(numbers),)).fetchall()
        if self._near is not None:
            self._near.remove(db, [place for place in known if place[1] is not None])
        for statement in _FORGET:
            db.executemany(statement, [(number,) for number, _ in known])

    def _add(
        self, db: sqlite3.Connection, texts: Sequence[tuple[int, str, str]], vectors: Vectors | None
    ) -> None:
        items: Iterable[tuple[Any, ...]] = ((*text, None, None) for text in texts)
        if self._near is not None and vectors is not None:
            places = self._near.add(db, [(number, mark) for number, mark, _ in texts], vectors)
            items = (
                (*text, vector.tobytes(), places[text[0]])
                for text, vector in zip(texts, vectors, strict=True)
            )
        db.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", items)
        words = ((number, body, mark) for number, mark, body in texts)
        db.executemany("INSERT INTO words (rowid, body, mark) VALUES (?, ?, ?)", words)

    def _changed(self, after: tuple[int, int]) -> list[tuple[int, int, int, Fact]]:
        with self._store.reading() as db:
            rows = db.execute(
                f"SELECT number, changed, live, {COLUMNS} FROM fact WHERE (changed, number) > (?, ?)"
                " ORDER BY changed, number LIMIT ?",
                (*after, _BATCH),
            ).fetchall()
        return [(number, changed, live, fact_of(tuple(row))) for number, changed, live, *row in rows]

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            make_folder(self.path.parent)
            self._of = self._store.identity()
            wanted = (VERSION, None if self._near is None else self._near.name, self._of)
            self._db = self._connected(wanted)
            if self._db is None:
                discard(self.path)
                self._db = self._connected(wanted)
            assert self._db is not None, "a new file is as wanted"
        return self._db

    def _connected(self, wanted: tuple[int, str | None, str]) -> sqlite3.Connection | None:
        """A connection to an index as wanted, which may be new; None: it is another one, or damaged."""
        db = connect(self.path, PAGE_BYTES)
        with suppress(sqlite3.DatabaseError):
            if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                db.executescript(SCHEMA)
                db.execute("INSERT INTO about VALUES (?, ?, 0, ?)", wanted)
            if db.execute("SELECT version, embedder, store FROM about").fetchone() == wanted:
                keep_order(db)
                return db
        db.close()
        return None


def _suffix(embedder: Embedder | None) -> str:
    """Of the file: vectors of several models lie in several files."""
    return ".words.db" if embedder is None else f".{sha256(embedder.name.encode()).hexdigest()[:12]}.db"


def text_of(fact: Fact) -> str:
    """What of a fact is searched: its key's words, and all texts and numbers in its value.

    With an entry `search` in its metadata only the text that the value has under this name.
    """
    alone = (fact.metadata or {}).get(SEARCHED)
    if isinstance(alone, str) and isinstance(fact.value, Mapping):
        return str(fact.value.get(alone, ""))[:_MAX_TEXT]
    found = [" ".join(WORD.findall(fact.key.replace("_", " ")))]
    waiting: list[Any] = [fact.value]
    size = 0
    while waiting and size < _MAX_TEXT:
        one = waiting.pop()
        kind = type(one)
        if kind in _PLAIN:  # the usual values: asking for abstract classes takes longer than all else here
            found.append(str(one)[: _MAX_TEXT - size])
            size += len(found[-1]) + 1
        elif kind is dict or isinstance(one, Mapping):
            waiting += reversed([part for pair in one.items() for part in pair])
        elif isinstance(one, list | tuple):
            waiting += reversed(one)
    return "\n".join(found)


@lru_cache(maxsize=10_000)
def _mark(scope: str) -> str:
    """A word that only this scope has: the index finds it as fast as any other."""
    return "s" + sha256(scope.encode()).hexdigest()[:24]


def _near(embedder: Embedder) -> NearVectors:
    try:
        from noesium_stream.memory.near import NearVectors  # noqa: PLC0415 - numpy comes with an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Search by meaning needs {error.name}, which is not installed here.",
            hint="pip install 'noesium-stream[semantic]'",
        ) from None
    return NearVectors(embedder)
