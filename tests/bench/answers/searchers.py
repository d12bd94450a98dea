"""Who answers: the product, and two plain searches over the same passages, with quotes of the same length."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agents.librarian.index import CorpusIndex
from agents.librarian.meaning import vectors_of
from agents.researcher.agent import PASSAGES_PER_QUERY
from agents.researcher.answering import answer_from
from agents.researcher.planning import plan, refined_queries
from agents.researcher.quoting import QUOTE_WORDS
from agents.researcher.weighing import FIRST, weigh

_RANKS: Final = 60
_DEPTH: Final = 100


@dataclass(frozen=True)
class Said:
    """What was said to a question: quotes, the strongest first, and the kind of outcome."""

    quotes: Sequence[str]
    outcome: str = "answer"
    weighed: dict[str, Any] = field(default_factory=dict)


Searcher = Callable[[str], Said]


def product(path: Path) -> Searcher:
    """The researcher's pure parts in the order of its graph, with the librarian's index at `path`."""
    index = CorpusIndex(path)

    def search(question: str) -> Said:
        made = plan(question)
        found = [index.search(query, PASSAGES_PER_QUERY) for query in made["queries"]]
        weighed = weigh(made["queries"], [one["passages"] for one in found])
        if weighed["outcome"] != "answer":
            found += [index.search(query, PASSAGES_PER_QUERY) for query in refined_queries(made)]
            weighed = weigh(made["queries"], [one["passages"] for one in found])
        said = answer_from(made, weighed, {"counts": {}})
        return Said([one["quote"] for one in said["citations"]], said["outcome"], weighed)

    return search


def by_words(path: Path) -> Searcher:
    """SQLite's BM25: the first words of its best passages."""
    texts, order = _passages(path), _bm25(path)
    return lambda question: Said([_cut(texts[one]) for one in order(question)[:FIRST]])


def by_words_and_meaning(path: Path) -> Searcher:
    """BM25 and the embedder, joined by reciprocal ranks."""
    texts, order = _passages(path), _bm25(path)
    ids = list(texts)
    vectors = vectors_of([texts[one] for one in ids])

    def search(question: str) -> Said:
        cosines = vectors @ vectors_of([question])[0]
        nearest = sorted(range(len(ids)), key=lambda at: -float(cosines[at]))[:_DEPTH]
        worth: dict[int, float] = {}
        for ranked in (order(question), [ids[at] for at in nearest]):
            for rank, one in enumerate(ranked):
                worth[one] = worth.get(one, 0.0) + 1 / (_RANKS + rank)
        best = sorted(worth, key=lambda one: -worth[one])[:FIRST]
        return Said([_cut(texts[one]) for one in best])

    return search


def _passages(path: Path) -> dict[int, str]:
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT id, text FROM passages ORDER BY id"))


def _bm25(path: Path) -> Callable[[str], list[int]]:
    def order(question: str) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"[^\W_]+", question))
        statement = "SELECT rowid FROM terms WHERE terms MATCH ? ORDER BY bm25(terms) LIMIT ?"
        with closing(sqlite3.connect(path)) as db:
            return [row[0] for row in db.execute(statement, (words, _DEPTH))]

    return order


def _cut(text: str) -> str:
    return " ".join(text.split()[:QUOTE_WORDS])
