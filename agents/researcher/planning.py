"""From a question to queries: without a model, the same for ever.

A plan is plain data, since it is part of a run's state: `{"question", "words", "queries"}`. A question of
nothing but small words has no queries: there is too little to look for.
"""

from __future__ import annotations

import re
from typing import Any, Final

from agents.documents.words import STOP_WORDS, camel_parts, fold, telling

MOST_QUERIES: Final = 3

_PARTS: Final = re.compile(
    r"(?<=[?;])\s+|,?\s+and\s+(?=(?:how|why|when|where|who|which|what)\b)", re.IGNORECASE
)
_JOINT: Final = re.compile(r"[._:/-]+")


def plan(question: str) -> dict[str, Any]:
    """What `question` is about, and a query for each question that it consists of."""
    parts = [part.strip() for part in _PARTS.split(question) if len(_words(part)) > 1]
    queries = parts[:MOST_QUERIES] if len(parts) > 1 else [question.strip()]
    words = _words(question)
    return {"question": question, "words": words, "queries": queries if words else []}


def refined_queries(made: dict[str, Any]) -> list[str]:
    """The queries with their names taken apart, `lru_cache` as "lru cache"; none without such names."""
    found = []
    for query in made["queries"]:
        words = [" ".join(_parts(word)) for word in telling(query)]
        if any(" " in word for word in words):
            found.append(" ".join(words))
    return found


def _words(question: str) -> list[str]:
    """The words that say something, and small ones where they are quoted: what is `if`?"""
    quoted = re.findall(r'["“”`]([^"“”`]{1,100})["“”`]', question)
    words = telling(question)
    if all(map(_says_nothing, words)):
        return [word for word in quoted if any(c.isalnum() for c in word)]
    return words


def _says_nothing(word: str) -> bool:
    """Whether a word is a small one, or a letter; acronyms are words: IT, US."""
    if len(word) == 1:
        return word.islower() or fold(word) in STOP_WORDS
    return fold(word) in STOP_WORDS and not word.isupper()


def _parts(word: str) -> list[str]:
    return [part for piece in _JOINT.split(word) for part in camel_parts(piece) if part]
