"""The order of passages for a query: by its words and by its meaning, in one sum.

The weights were fitted on half of the corpora of `python -m tests.bench answers --fit`, which prints them;
the other half says what they are worth (`noesium guide answers`).

Decision record: features that were tried and left out. For each word of the query the closest word of a
passage, by vectors of words and weighed by rarity (late interaction), puts the answer of 76 instead of 72 of
100 questions into a quote, fitted on two corpora and measured on the third. Yet of the 39 questions in other
words, which it was for, it answers 12 instead of 11. Sharper cosines, pairs of units, nearness of the query's
words and the length of a passage gave no more. As a further order to find candidates by, it finds two more
of 39.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agents.documents.kinds import PRIOR, Kind
from agents.documents.words import stem, stems

RANK: Final = 5
"""How fast the worth of a place in one of the two orders falls."""

WEIGHTS: Final[Mapping[str, float]] = {
    "words_place": 0.4,
    "meaning": 5.5,
    "meaning_place": 1.6,
    "closest_unit": 5.0,
    "coverage": 9.4,
    "heading": 3.5,
}
_KIND: Final = 8.0
"""What a passage of no prose loses, times what its kind counts less (`PRIOR`)."""


@dataclass(frozen=True, slots=True)
class Features:
    """What speaks for a passage, each from 0 to 1.

    Attributes:
        words_place: 1 for the first by BM25, less for the next ones, 0 if it is not among them.
        meaning: cosine of query and passage.
        meaning_place: as `words_place`, by meaning.
        closest_unit: cosine of the query and the unit that is closest to it.
        coverage: share of the query's weight that passage, heading, title and path speak of.
        heading: the same share, of what stands above the passage.
    """

    words_place: float
    meaning: float
    meaning_place: float
    closest_unit: float
    coverage: float
    heading: float


class Query:
    """The words that a query is about, each weighed by how rare it is in the corpus.

    Args:
        seen: in how many passages each word occurs.
        passages: how many passages the corpus has.
    """

    def __init__(self, seen: Mapping[str, int], passages: int) -> None:
        weights = {
            stem(word): math.log(1 + passages / (1 + count)) / math.log(2 + passages)
            for word, count in seen.items()
        }
        total = sum(weights.values()) or 1.0
        self._weights = {part: weight / total for part, weight in weights.items()}
        self._initials = frozenset(part[:1] for part in weights)

    def stems(self, text: str) -> frozenset[str]:
        """The stems of a text, but for those that cannot be the query's."""
        return frozenset(stems(text, self._initials))

    def coverage(self, stems: frozenset[str]) -> float:
        """The share of the query's weight that a text with these stems speaks of."""
        return sum(weight for part, weight in self._weights.items() if part in stems)


def place(rank: int | None) -> float:
    """What a place in an order is worth; `rank` counts from 0, None is no place."""
    return 0.0 if rank is None else RANK / (RANK + rank)


def score(features: Features, kind: Kind, about_code: bool) -> float:
    """The worth of a passage; higher is better, and it compares within one query only.

    Prose counts for more than code, and code for more than tests, unless the query is about code.
    """
    worth = sum(weight * float(getattr(features, name)) for name, weight in WEIGHTS.items())
    return worth if about_code else worth - _KIND * (1 - PRIOR[kind])
