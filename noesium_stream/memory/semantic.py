"""`SemanticMemory`: search in what is remembered, by words and by meaning (RFC-0004 §5.3, RFC-1001 §9.3).

An index in a file beside the store's, built from the live facts. It may lag, says how far it is, is rebuilt
when it does not match, and no fold reads it.
"""

from __future__ import annotations

import asyncio
import math
import re
import sqlite3
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from heapq import nlargest
from operator import mul
from pathlib import Path
from typing import Any, Final, NamedTuple

from noesium_stream.errors import AgentMemoryError
from noesium_stream.memory.fact import Fact
from noesium_stream.memory.fold import COLUMNS, fact_of
from noesium_stream.memory.item import MemoryItem, items_of
from noesium_stream.memory.store import MemoryStore
from noesium_stream.private_files import make_folder
from noesium_stream.projection.builtin.semantic import Embedder
from noesium_stream.projection.fold_guard import Nondeterministic, refuse_in_fold
from noesium_stream.state_file.claim import discard
from noesium_stream.state_file.sqlite import Translating, connect, keep_order

VERSION: Final = 1
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
_WORD: Final = re.compile(r"\w+")
_SCHEMA: Final = """
CREATE TABLE about (version INTEGER NOT NULL, embedder TEXT, tick INTEGER NOT NULL, store TEXT NOT NULL);
CREATE TABLE item (number INTEGER PRIMARY KEY, mark TEXT NOT NULL, body TEXT NOT NULL, vector BLOB);
CREATE INDEX item_mark ON item (mark) WHERE vector IS NOT NULL;
CREATE VIRTUAL TABLE words USING fts5 (body, mark, content = 'item', content_rowid = 'number',
    tokenize = 'unicode61 remove_diacritics 2');
"""
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
    """

    def __init__(
        self, store: MemoryStore, embedder: Embedder | None = None, path: Path | None = None
    ) -> None:
        self._store = store
        self._embedder = embedder
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
        return await asyncio.to_thread(self._search, text[:MAX_QUERY], top_k, tuple(dict.fromkeys(scopes)))

    async def refresh(self) -> int:
        """Take in what has changed in the store since the last time; return the number of facts."""
        refuse_in_fold("semantic memory")
        return await asyncio.to_thread(self._refresh)

    async def rebuild_index(self) -> int:
        """Discard the index and make it anew from the store; return the number of facts."""
        refuse_in_fold("semantic memory")
        with self._lock:
            self.close()
            discard(self.path)
        return await self.refresh()

    def _search(self, text: str, top_k: int, scopes: tuple[str, ...]) -> list[SearchResult]:
        wide = min(MAX_TOP, _WIDE * top_k)
        with self._lock, Translating(self.path):
            ranked = [self._by_words(text, wide, scopes)]
            if self._embedder is not None:
                [vector] = self._embedder.embed([text])
                ranked.append(self._by_meaning(_unit(vector), wide, scopes))
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

    def _by_words(self, text: str, limit: int, scopes: Iterable[str]) -> list[int]:
        words = list(dict.fromkeys(_WORD.findall(text)))
        marks = " OR ".join(f'mark : "{_mark(scope)}"' for scope in scopes)
        if not words or not marks:
            return []
        asked = " OR ".join(f'body : "{word}"' for word in words[:64])
        rows = self._opened().execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank, rowid LIMIT ?",
            (f"({marks}) AND ({asked})", limit),
        )
        return [row[0] for row in rows]

    def _by_meaning(self, vector: Sequence[float], limit: int, scopes: Iterable[str]) -> list[int]:
        near: list[tuple[float, int]] = []
        for scope in scopes:
            rows = self._opened().execute(
                "SELECT number, vector FROM item WHERE mark = ? AND vector IS NOT NULL", (_mark(scope),)
            )
            close = ((sum(map(mul, array("f", blob), vector)), -number) for number, blob in rows)
            near = nlargest(limit, [*near, *nlargest(limit, close)])
        return [-number for _, number in near]

    def _refresh(self) -> int:
        with self._lock, Translating(self.path):
            if self._of != self._store.identity():
                self.close()  # the store was folded anew
            db = self._opened()
            (since,) = db.execute("SELECT tick FROM about").fetchone()
            fresh = db.execute("SELECT 1 FROM item LIMIT 1").fetchone() is None
            count, after = 0, (since, 0)
            while rows := self._changed(after):
                items = self._rows([(number, None if not live else fact) for number, _, live, fact in rows])
                db.execute("BEGIN IMMEDIATE")
                try:
                    if not fresh:
                        for statement in _FORGET:
                            db.executemany(statement, [(row[0],) for row in rows])
                    db.executemany("INSERT INTO item VALUES (?, ?, ?, ?)", items)
                    told = ((number, body, mark) for number, mark, body, _ in items)
                    db.executemany("INSERT INTO words (rowid, body, mark) VALUES (?, ?, ?)", told)
                    after = rows[-1][1], rows[-1][0]
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

    def _changed(self, after: tuple[int, int]) -> list[tuple[int, int, int, Fact]]:
        with self._store.reading() as db:
            rows = db.execute(
                f"SELECT number, changed, live, {COLUMNS} FROM fact WHERE (changed, number) > (?, ?)"
                " ORDER BY changed, number LIMIT ?",
                (*after, _BATCH),
            ).fetchall()
        return [(number, changed, live, fact_of(tuple(row))) for number, changed, live, *row in rows]

    def _rows(self, facts: Sequence[tuple[int, Fact | None]]) -> list[tuple[Any, ...]]:
        told = [(number, fact, text_of(fact)) for number, fact in facts if fact is not None]
        kept = [(number, fact, text) for number, fact, text in told if text]
        if self._embedder is None or not kept:
            return [(number, _mark(fact.scope), text, None) for number, fact, text in kept]
        vectors = self._embedder.embed([text for _, _, text in kept])
        return [
            (number, _mark(fact.scope), text, array("f", _unit(vector)).tobytes())
            for (number, fact, text), vector in zip(kept, vectors, strict=True)
        ]

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            make_folder(self.path.parent)
            wanted = (
                VERSION,
                None if self._embedder is None else self._embedder.name,
                self._store.identity(),
            )
            self._db = self._connected(wanted)
            if self._db is None:
                discard(self.path)
                self._db = self._connected(wanted)
            assert self._db is not None, "a new file is as wanted"
        return self._db

    def _connected(self, wanted: tuple[int, str | None, str]) -> sqlite3.Connection | None:
        """A connection to an index as wanted, which may be new; None: it is another one, or damaged."""
        db = connect(self.path)
        with suppress(sqlite3.DatabaseError):
            if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                db.executescript(_SCHEMA)
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
    found = [" ".join(_WORD.findall(fact.key.replace("_", " ")))]
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


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(float(one) * float(one) for one in vector))
    return [float(one) / length for one in vector] if length else [0.0 for _ in vector]
