"""Search by words in the index of memory: BM25 with the numbers of the scopes that are searched.

Decision record: FTS5's own `bm25` counts, for each word of a question, all texts of the index that have it.
With 1,000,000 texts and words in half of them that took 40 ms of the processor, whatever the scope. Here FTS5
tells for each word which texts of the scopes have it; these are weighed by how rare the word is among them,
and the `AGAIN` best are then ranked by how often they have the words, and by their length.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Iterable
from heapq import nlargest
from math import log
from typing import Final

AGAIN: Final = 400
MOST: Final = 100_000
"""Texts of a word that are looked at, the newest: more say nothing about one of them."""
MAX_WORDS: Final = 64
"""Words of a question that are looked for."""
WORD: Final = re.compile(r"[^\W_]+")
_K1: Final = 1.2
_B: Final = 0.75


def by_words(db: sqlite3.Connection, text: str, limit: int, marks: Iterable[str]) -> list[int]:
    """The numbers of the texts of these scopes that match a text best, the best first."""
    words = list(dict.fromkeys(map(_plain, WORD.findall(text))))[:MAX_WORDS]
    within = " OR ".join(f'mark : "{mark}"' for mark in marks)
    if not words or not within:
        return []
    query = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"
    having: dict[str, list[int]] = {}
    for word in words:
        rows = db.execute(query, (f'({within}) AND body : "{word}"', MOST))
        having[word] = [row[0] for row in rows]
    count = len(set().union(*having.values()))
    weights = {word: log(1 + (count - len(of) + 0.5) / (len(of) + 0.5)) for word, of in having.items()}
    scores: dict[int, float] = {}
    for word, of_word in having.items():
        for number in of_word:
            scores[number] = scores.get(number, 0.0) + weights[word]
    near = nlargest(max(AGAIN, limit), scores, key=lambda number: (scores[number], number))
    return _ranked(db, near, weights)[:limit]


def _ranked(db: sqlite3.Connection, numbers: list[int], weights: dict[str, float]) -> list[int]:
    found = db.execute(
        "SELECT number, body FROM item WHERE number IN (SELECT value FROM json_each(?))", (str(numbers),)
    )
    texts = {number: Counter(map(_plain, WORD.findall(body))) for number, body in found}
    lengths = {number: counts.total() for number, counts in texts.items()}
    usual = sum(lengths.values()) / len(lengths) if lengths else 1.0

    def score(number: int) -> float:
        length = _K1 * (1 - _B + _B * lengths[number] / max(usual, 1.0))
        times = ((weights[word], texts[number][word]) for word in weights)
        return sum(weight * count * (_K1 + 1) / (count + length) for weight, count in times)

    return sorted(texts, key=lambda number: (-score(number), number))


def _plain(word: str) -> str:
    """A word as the index has it: in lower case, without accents."""
    if word.isascii():
        return word.lower()
    parts = unicodedata.normalize("NFD", word.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))
