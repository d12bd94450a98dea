"""A search of the index of one corpus: candidates by words and by meaning, ordered once, by one score."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from agents.documents.kinds import PRIOR, Kind, asks_for_code
from agents.documents.words import names_of, telling, words_of
from agents.librarian.meaning import Vectors, products, unpacked, vectors_of
from agents.librarian.ranking import Features, Query, place

MOST_TERMS: Final = 32
POOL: Final = 60
"""So many passages by words and as many by meaning are looked at more closely."""

# path, title, heading, text, words: a heading says what a passage is about
_WEIGHTS: Final = "0.5, 1.0, 2.0, 1.0, 0.5"
# equals in the order of their places, so that an answer depends on the documents alone
_BY_WORDS: Final = f"""
SELECT terms.rowid FROM terms CROSS JOIN passages ON passages.id = terms.rowid
CROSS JOIN files ON files.id = passages.file_id
WHERE terms MATCH ?
ORDER BY round(bm25(terms, {_WEIGHTS}) * {{worth}}, 6), files.path, ordinal LIMIT ?
"""
_WHENS: Final = " ".join(f"WHEN '{kind}' THEN {prior}" for kind, prior in PRIOR.items())
_WORTH: Final = f"CASE kind {_WHENS} END"
_VECTORS: Final = """
SELECT passages.id, vector, kind FROM passages JOIN files ON files.id = passages.file_id
ORDER BY path, ordinal
"""
_READ: Final = """
SELECT passages.id, path, title, heading, text, start_line, end_line, page, ordinal, units, kind
FROM passages JOIN files ON files.id = passages.file_id WHERE passages.id IN ({}) ORDER BY passages.id
"""
_PHRASE: Final = re.compile(r'"([^"]{1,200})"')

Score = Callable[[Features, Kind, bool], float]
"""The worth of a passage by its features and kind, and whether the query is about code."""


class Row(NamedTuple):
    """A passage as it is stored."""

    id: int
    path: str
    title: str
    heading: str
    text: str
    start_line: int | None
    end_line: int | None
    page: int | None
    ordinal: int
    units: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class _Candidates:
    """What is looked at more closely: the places by words and by meaning, from 0, and all cosines."""

    by_words: Mapping[int, int]
    by_meaning: Mapping[int, int]
    cosines: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class _Scored:
    """A candidate with its score and, for each of its units, the cosine with the query."""

    row: Row
    passage_id: str
    score: float
    coverage: float
    closeness: Sequence[float]


def found_in(db: sqlite3.Connection, query: str, limit: int, score: Score) -> dict[str, Any]:
    """The output of `corpus.search`, but for the corpus: the best passages by `score`, best first."""
    pieces = query_pieces(query)
    documents = db.execute("SELECT count(*) FROM files WHERE reason IS NULL").fetchone()[0]
    skipped = db.execute("SELECT count(*) FROM files WHERE reason IS NOT NULL").fetchone()[0]
    vectors: list[tuple[int, bytes, Kind]] = db.execute(_VECTORS).fetchall()
    return {
        "documents": documents,
        "passage_count": len(vectors),
        "skipped": skipped,
        "counts": _counts(db, pieces),
        "passages": _best(db, query, pieces, vectors, limit, score) if pieces else [],
    }


def query_pieces(query: str) -> list[str]:
    """The words that `query` is about and its "phrases", each once, without what FTS5 cannot find anyway."""
    query = query.replace("\0", " ")
    phrases = [phrase for phrase in _PHRASE.findall(query) if any(c.isalnum() for c in phrase)]
    return list(dict.fromkeys([*phrases, *telling(_PHRASE.sub(" ", query))] or telling(query)))[:MOST_TERMS]


def _best(
    db: sqlite3.Connection,
    query: str,
    pieces: Sequence[str],
    vectors: Sequence[tuple[int, bytes, Kind]],
    limit: int,
    score: Score,
) -> list[dict[str, Any]]:
    asked, about_code = vectors_of([query])[0], asks_for_code(query)
    candidates = _candidates(db, pieces, vectors, asked, about_code)
    ids = sorted({*candidates.by_words, *candidates.by_meaning})
    rows = [Row(*row) for row in db.execute(_READ.format(", ".join("?" * len(ids))), ids)]
    words = dict.fromkeys(word for piece in pieces for word in (*words_of(piece), *names_of(piece)))
    weighed = Query(_counts(db, list(words)), len(vectors))
    scored = []
    for row, closeness in zip(rows, _unit_scores(rows, asked), strict=True):
        features = _features(row, closeness, candidates, weighed)
        worth = round(score(features, row.kind, about_code), 5)
        scored.append(_Scored(row, _digest(row), worth, features.coverage, closeness))
    scored.sort(key=lambda one: (-one.score, one.row.path, one.row.start_line or 0, one.passage_id))
    return [_as_passage(one, weighed) for one in scored[:limit]]


def _candidates(
    db: sqlite3.Connection,
    pieces: Sequence[str],
    vectors: Sequence[tuple[int, bytes, Kind]],
    asked: Vectors,
    about_code: bool,
) -> _Candidates:
    statement = _BY_WORDS.format(worth="1.0" if about_code else _WORTH)
    said = db.execute(statement, (" OR ".join(map(_quoted, pieces)), POOL)).fetchall()
    meanings = products(unpacked([row[1] for row in vectors]), asked)
    priors = [1.0 if about_code else PRIOR[kind] for _, _, kind in vectors]
    worths = [one * prior for one, prior in zip(meanings, priors, strict=True)]
    nearest = sorted(range(len(vectors)), key=lambda at: (-round(worths[at], 5), at))[:POOL]
    return _Candidates(
        by_words={row[0]: rank for rank, row in enumerate(said)},
        by_meaning={vectors[at][0]: rank for rank, at in enumerate(nearest)},
        cosines=dict(zip((row[0] for row in vectors), meanings, strict=True)),
    )


def _features(row: Row, closeness: Sequence[float], candidates: _Candidates, query: Query) -> Features:
    above = _stems_above(row, query)
    return Features(
        words_place=place(candidates.by_words.get(row.id)),
        meaning=candidates.cosines[row.id],
        meaning_place=place(candidates.by_meaning.get(row.id)),
        closest_unit=max(closeness, default=0.0),
        coverage=query.coverage(above.union(query.stems(row.text))),
        heading=query.coverage(above),
    )


def _counts(db: sqlite3.Connection, pieces: Sequence[str]) -> dict[str, int]:
    """In how many passages each piece occurs."""
    statement = "SELECT count(*) FROM terms WHERE terms MATCH ?"
    return {piece: int(db.execute(statement, (_quoted(piece),)).fetchone()[0]) for piece in pieces}


def _quoted(piece: str) -> str:
    return f'"{piece}"'


def _unit_scores(rows: Sequence[Row], asked: Vectors) -> list[list[float]]:
    """For each passage the cosines of its units with the query."""
    units = [_units(row) for row in rows]
    flat = [
        f"{row.heading.rpartition(' > ')[2]} {unit[1]}"
        for row, of in zip(rows, units, strict=True)
        for unit in of
    ]
    cosines = [round(one, 4) for one in products(vectors_of(flat), asked)]
    result, at = [], 0
    for of in units:
        result.append(cosines[at : at + len(of)])
        at += len(of)
    return result


def _units(row: Row) -> list[list[Any]]:
    found: list[list[Any]] = orjson.loads(row.units)
    return found


def _digest(row: Row) -> str:
    return hashlib.sha256(f"{row.path}\n{row.ordinal}\n{row.text}".encode()).hexdigest()[:16]


def _stems_above(row: Row, query: Query) -> frozenset[str]:
    return query.stems(f"{row.heading} {row.title} {row.path}")


def _as_passage(found: _Scored, query: Query) -> dict[str, Any]:
    row = found.row
    return {
        "passage_id": found.passage_id,
        "path": row.path,
        "title": row.title,
        "heading": row.heading,
        "start_line": row.start_line,
        "end_line": row.end_line,
        "page": row.page,
        "text": row.text,
        "score": found.score,
        "coverage": round(found.coverage, 4),
        "units": _judged(row, found.closeness, query),
    }


def _judged(row: Row, closeness: Sequence[float], query: Query) -> list[dict[str, Any]]:
    """The units of a passage; each speaks also of what its headings and its term or table's head say."""
    above = _stems_above(row, query)
    leads: dict[int, frozenset[str]] = {}
    found = []
    for (kind, text, first, last, group), close in zip(_units(row), closeness, strict=True):
        said = query.stems(text).union(leads.get(group, above))
        if kind in ("term", "head"):
            leads[group] = said.union(above)
        found.append(
            {
                "kind": kind,
                "text": text,
                "first": first,
                "last": last,
                "group": group,
                "coverage": round(query.coverage(said.union(above)), 4),
                "closeness": close,
            }
        )
    return found
