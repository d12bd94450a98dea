"""What the passages that were found are worth as an answer: one order, and one probability.

The order is the librarian's. How probable it is that the first passages answer is a logistic function of two
shares of the question's words: those that the passages speak of, and those that one sentence speaks of. Its
weights were fitted to half of the corpora of `python -m tests.bench answers --fit`, which prints them and the
curve of what may be claimed from which probability on.

Decision: from where on an answer is claimed. At most 10 of 100 claimed answers are to be wrong on documents
that were never seen. A threshold that is just good enough for the questions by which it was chosen is too low
for others. So it is the least step of the curve from which on at most 8 of 100 are wrong on the fitted half.
The other half has no say in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from agents.documents.words import stems, words_of
from agents.researcher.quoting import best_unit

_ASKS_FOR_NUMBER: Final = re.compile(
    r"\bhow (?:many|much|long|often|large|big|old|fast|high|far|deep|wide)\b|\bwhen (?:did|was|were)\b|"
    r"\b(?:what|which) (?:year|date|version|port|percentage|size)\b",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(
    r"\d|\b(?:no|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|"
    r"million|billion|once|twice|half|unlimited|all|every|any|never|always|forever|until)\b",
    re.IGNORECASE,
)

Outcome = Literal["answer", "close", "nothing"]

KEPT: Final = 12
SAME_TEXT: Final = 0.8
FIRST: Final = 4
"""So many of the first passages are looked at for the probability, and quoted."""

ECHO: Final = 4
"""Code that holds a question of at least so many words only asks it."""

BIAS: Final = -4.8
COVERAGE: Final = 3.7
SENTENCE: Final = 3.0
ANSWERS: Final = 0.75
"""From this probability on the documents are said to answer."""
COMES_CLOSE: Final = 0.04
"""From this probability on they are said to come close."""


def weigh(queries: Sequence[str], found: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Judge what was found for the `queries` of a plan and for those that refine them.

    `found` has a list for each query, best first. Of several queries the passages take turns, and the least
    probable answer counts; a query that refines a single one takes its place if it finds better.

    Returns `{"evidence": [passages, best first], "probability", "outcome"}`.
    """
    found = [_without_echoes(passages, queries) for passages in found]
    if len(queries) == 1:
        found = sorted(found, key=probability, reverse=True)[:1]
    asked = list(zip(queries, found, strict=False))
    least = min((probability(passages) for _, passages in asked), default=0.0)
    if any(_lacks_number(query, passages) for query, passages in asked):
        least = min(least, COMES_CLOSE)
    return {
        "evidence": _distinct(_in_turn(found)),
        "probability": round(least, 4),
        "outcome": outcome_of(least),
    }


def probability(passages: Sequence[Mapping[str, Any]]) -> float:
    """How probable it is that an answer to their query is among the first of these passages."""
    if not passages:
        return 0.0
    return 1 / (1 + math.exp(-(BIAS + COVERAGE * coverage(passages) + SENTENCE * sentence(passages))))


def coverage(passages: Sequence[Mapping[str, Any]]) -> float:
    """The share of the query's weight that one of the first passages speaks of, the first one twice."""
    best = max(passage["coverage"] for passage in passages[:FIRST])
    return float((passages[0]["coverage"] + best) / 2)


def sentence(passages: Sequence[Mapping[str, Any]]) -> float:
    """The share of the query's weight that the best unit of the first passage speaks of."""
    return float(passages[0]["units"][best_unit(passages[0])]["coverage"])


def _without_echoes(passages: Sequence[Mapping[str, Any]], queries: Sequence[str]) -> list[Mapping[str, Any]]:
    """The passages without code that holds a whole question: a test or an example that asks it."""
    asked = [" ".join(words) for query in queries if len(words := words_of(query)) >= ECHO]
    kept: list[Mapping[str, Any]] = []
    for passage in passages:
        units = [unit for unit in passage["units"] if unit["kind"] != "code" or not _holds(unit, asked)]
        if len(units) == len(passage["units"]):
            kept.append(passage)
        elif units:
            covered = max(unit["coverage"] for unit in units)
            kept.append({**passage, "units": units, "coverage": min(passage["coverage"], covered)})
    return kept


def _holds(unit: Mapping[str, Any], asked: Sequence[str]) -> bool:
    said = " ".join(words_of(unit["text"])) if asked else ""
    return any(question in said for question in asked)


def _lacks_number(query: str, passages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a query asks how many, how long or when, and the first passages have no number."""
    return bool(_ASKS_FOR_NUMBER.search(query)) and not any(
        _NUMBER.search(passage["text"]) for passage in passages[:2]
    )


def outcome_of(probable: float) -> Outcome:
    """The kind of outcome that a probability stands for."""
    return "answer" if probable >= ANSWERS else "close" if probable >= COMES_CLOSE else "nothing"


def _in_turn(found: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """One passage of each query after the other, each once."""
    known: dict[str, Mapping[str, Any]] = {}
    for rank in range(max(map(len, found), default=0)):
        for passages in found:
            if rank < len(passages):
                known.setdefault(passages[rank]["passage_id"], passages[rank])
    return list(known.values())


def _distinct(passages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without passages that say the same as one before them."""
    kept: list[Mapping[str, Any]] = []
    sets: list[frozenset[str]] = []
    for passage in passages:
        words = frozenset(stems(passage["text"]))
        if not any(_same(words, other) for other in sets):
            kept.append(passage)
            sets.append(words)
        if len(kept) == KEPT:
            break
    return kept


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) > SAME_TEXT * max(len(one), len(other), 1)
