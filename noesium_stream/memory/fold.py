"""The fold of memory's events into tables of SQLite, step by step; `live_facts` defines its result.

`fact.dead` counts the believed facts that name a fact as replaced, and `fact.gone` says that it comes from a
source that is not believed. Each event touches the facts that it names and those whose place it takes, not
the history of its key. Nothing here commits: the caller writes the log's position in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

import orjson

from noesium_stream.memory.fact import FACT, Fact, Retraction

SCHEMA: Final = """
CREATE TABLE fact (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, scope TEXT NOT NULL, key TEXT NOT NULL,
    at_ms INTEGER NOT NULL, event_id TEXT NOT NULL,
    value BLOB NOT NULL, more TEXT NOT NULL, expires_ms INTEGER,
    deleted INTEGER NOT NULL, blind INTEGER NOT NULL,
    dead INTEGER NOT NULL DEFAULT 0, gone INTEGER NOT NULL DEFAULT 0, live INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX fact_live ON fact (scope, key, at_ms, event_id) WHERE live = 1;
CREATE INDEX fact_blind ON fact (scope, key, at_ms, event_id) WHERE blind = 1 AND gone = 0;
CREATE INDEX fact_all ON fact (scope, key, at_ms, event_id);
CREATE INDEX fact_changed ON fact (changed);
CREATE TABLE edge (replaced TEXT NOT NULL, replacer TEXT NOT NULL, PRIMARY KEY (replaced, replacer))
    WITHOUT ROWID;
CREATE INDEX edge_replacer ON edge (replacer);
CREATE TABLE source (source TEXT NOT NULL, fact TEXT NOT NULL, PRIMARY KEY (source, fact)) WITHOUT ROWID;
CREATE INDEX source_fact ON source (fact);
CREATE TABLE label (name TEXT NOT NULL, value TEXT NOT NULL, fact TEXT NOT NULL,
    PRIMARY KEY (name, value, fact)) WITHOUT ROWID;
CREATE TABLE retraction (source TEXT NOT NULL, at_ms INTEGER NOT NULL, event_id TEXT NOT NULL,
    author TEXT NOT NULL, restored INTEGER NOT NULL, reason TEXT,
    PRIMARY KEY (source, at_ms, event_id)) WITHOUT ROWID;
"""
MAX_LABEL: Final = 200
"""Characters of a metadata entry by which facts are found."""
MAX_LABELS: Final = 32

_REFRESH: Final = """
UPDATE fact SET changed = :tick, live = (
    deleted = 0 AND gone = 0 AND dead = 0 AND NOT EXISTS (
        SELECT 1 FROM fact AS later WHERE later.scope = fact.scope AND later.key = fact.key
            AND later.blind = 1 AND later.gone = 0
            AND (later.at_ms, later.event_id) > (fact.at_ms, fact.event_id)))
WHERE """
_DEAD: Final = """
UPDATE fact SET dead = (
    SELECT count(*) FROM edge JOIN fact AS other ON other.id = edge.replacer
    WHERE edge.replaced = fact.id AND other.gone = 0 AND other.scope = fact.scope)
WHERE id = ?"""
_BY_SOURCE: Final = "SELECT fact.id FROM source JOIN fact ON fact.id = source.fact WHERE source.source = ?"


class MemoryFold:
    """Applies facts and retractions to the tables of one connection; `tick` grows with each commit."""

    def __init__(self, db: sqlite3.Connection, tick: int) -> None:
        self._db = db
        self._tick = tick

    def apply(self, told: Fact | Retraction) -> None:
        """Take one more event; one that was taken before changes nothing."""
        if isinstance(told, Retraction):
            self._retract(told)
        elif self._insert(told):
            self._settle([told.id], [told.id])

    def _insert(self, fact: Fact) -> bool:
        db = self._db
        row = (
            fact.id,
            fact.scope,
            fact.key,
            fact.at_ms,
            fact.event_id,
            orjson.dumps(fact.value),
            orjson.dumps(_more(fact)).decode(),
            fact.expires_ms,
            fact.deleted,
            fact.replaces is None,
        )
        done = db.execute(
            "INSERT OR IGNORE INTO fact (id, scope, key, at_ms, event_id, value, more, expires_ms,"
            " deleted, blind, gone) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, -1)",
            row,
        )
        if not done.rowcount:
            return False
        if takes := fact.takes:
            db.executemany("INSERT INTO edge VALUES (?, ?)", ((one, fact.id) for one in takes))
        pairs = ((source, fact.id) for source in fact.origins)
        db.executemany("INSERT OR IGNORE INTO source VALUES (?, ?)", pairs)
        if fact.metadata:
            rows = ((*label, fact.id) for label in labels_of(fact.metadata))
            db.executemany("INSERT OR IGNORE INTO label VALUES (?, ?, ?)", rows)
        return True

    def _retract(self, told: Retraction) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO retraction VALUES (?, ?, ?, ?, ?, ?)",
            (told.source, *told.order, told.by, told.restored, told.reason),
        )
        named = [row[0] for row in self._db.execute(_BY_SOURCE, (told.source,))]
        if told.source.startswith(FACT):
            named += self._having([told.source.removeprefix(FACT)])
        self._settle(named, ())

    def _settle(self, named: Iterable[str], new: Iterable[str]) -> None:
        """Find out again which of these facts, and of those derived from them, are gone, and what follows."""
        below = self._descendants(named)
        gone: set[str] = set()
        waiting = [one for one in below if self._has_bad_source(one, below)]
        while waiting:
            one = waiting.pop()
            if one not in gone:
                gone.add(one)
                waiting += [row[0] for row in self._db.execute(_BY_SOURCE, (FACT + one,)) if row[0] in below]
        flipped = [one for one in below if below[one] != (one in gone)]
        for one in flipped:
            self._db.execute("UPDATE fact SET gone = ? WHERE id = ?", (one in gone, one))
        fresh = set(new)
        for one in flipped:
            self._refresh(one, was_new=one in fresh)

    def _descendants(self, named: Iterable[str]) -> dict[str, int]:
        """These facts and all that come from them, with what `gone` was before (-1: a new one)."""
        found: dict[str, int] = {}
        waiting = self._having(named)
        while waiting:
            one = waiting.pop()
            if one in found:
                continue
            row = self._db.execute("SELECT gone FROM fact WHERE id = ?", (one,)).fetchone()
            found[one] = row[0]
            waiting += [row[0] for row in self._db.execute(_BY_SOURCE, (FACT + one,))]
        return found

    def _having(self, ids: Iterable[str]) -> list[str]:
        db = self._db
        return [one for one in ids if db.execute("SELECT 1 FROM fact WHERE id = ?", (one,)).fetchone()]

    def _has_bad_source(self, fact_id: str, below: dict[str, int]) -> bool:
        """Whether a source is not believed, or is a fact outside `below` that is gone."""
        sources = [row[0] for row in self._db.execute(_SOURCES, (fact_id,))]
        for source in (*sources, FACT + fact_id):
            if self._db.execute(_LATEST, (source,)).fetchone() == (0,):
                return True
            other = source.removeprefix(FACT)
            if source.startswith(FACT) and other not in below:
                row = self._db.execute("SELECT gone FROM fact WHERE id = ?", (other,)).fetchone()
                if row is not None and row[0] == 1:
                    return True
        return False

    def _refresh(self, fact_id: str, *, was_new: bool) -> None:
        """Say again which facts are live, after this one is new, is gone, or is back."""
        db, tick = self._db, self._tick
        scope, key, at_ms, event_id, blind, gone = db.execute(
            "SELECT scope, key, at_ms, event_id, blind, gone FROM fact WHERE id = ?", (fact_id,)
        ).fetchone()
        db.execute(_DEAD, (fact_id,))
        for (other,) in db.execute("SELECT replaced FROM edge WHERE replacer = ?", (fact_id,)).fetchall():
            db.execute(_DEAD, (other,))
            db.execute(f"{_REFRESH}id = :id", {"tick": tick, "id": other})
        values = {"tick": tick, "scope": scope, "key": key, "id": fact_id}
        values |= {"at": at_ms, "event": event_id}
        db.execute(f"{_REFRESH}id = :id", values)
        if blind and was_new and not gone:
            db.execute(
                "UPDATE fact SET live = 0, changed = :tick WHERE scope = :scope AND key = :key AND live = 1"
                " AND (at_ms, event_id) < (:at, :event)",
                values,
            )
        elif blind and not was_new:
            db.execute(
                f"{_REFRESH}scope = :scope AND key = :key AND (at_ms, event_id) < (:at, :event)",
                values,
            )


_SOURCES: Final = "SELECT source FROM source WHERE fact = ?"
_LATEST: Final = "SELECT restored FROM retraction WHERE source = ? ORDER BY at_ms DESC, event_id DESC LIMIT 1"


def labels_of(metadata: Any) -> list[tuple[str, str]]:
    """The entries of metadata by which a fact is found: short texts, numbers and truth values."""
    found = []
    for name, value in list(metadata.items())[:MAX_LABELS]:
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        plain = value is None or isinstance(value, str | int | float | bool)
        if plain and len(text) <= MAX_LABEL and len(name) <= MAX_LABEL:
            found.append((name, text))
    return found


_KEPT: Final = (
    "agent_id",
    "run_id",
    "metadata",
    "replaces",
    "stands_for",
    "sources",
    "said_by",
    "valid_from_ms",
    "valid_until_ms",
    "reason",
    "about",
)


def _more(fact: Fact) -> dict[str, Any]:
    kept = {name: getattr(fact, name) for name in _KEPT}
    return {
        name: value for name, value in kept.items() if value is not None and (value or name == "replaces")
    }


def fact_of(row: tuple[Any, ...]) -> Fact:
    """A fact from its row: the columns of `COLUMNS`."""
    fact_id, scope, key, at_ms, event_id, value, more, expires_ms, deleted = row
    kept = orjson.loads(more)
    for name in ("replaces", "stands_for", "sources", "about"):
        if name in kept:
            kept[name] = tuple(kept[name])
    return Fact(
        id=fact_id,
        scope=scope,
        key=key,
        at_ms=at_ms,
        event_id=event_id,
        value=orjson.loads(value),
        expires_ms=expires_ms,
        deleted=bool(deleted),
        **kept,
    )


COLUMNS: Final = (
    "fact.id, fact.scope, fact.key, fact.at_ms, fact.event_id, fact.value, fact.more,"
    " fact.expires_ms, fact.deleted"
)
