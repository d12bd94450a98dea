"""Words: how text is cut into them, reduced to stems, and told from mere grammar. English."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

import snowballstemmer  # type: ignore[import-untyped]

_STOP_WORDS_TEXT = """
a about above after again against all also am an and any are aren as at be because been before being
below between both but by can cannot could couldn did didn do does doesn doing don done down during
each either else ever every few for from further get gets getting give given gives go goes going got
had hadn has hasn have haven having he her here hers herself him himself his how however i if in into
is isn it its itself just kind let like ll lot made make makes making many may me might mine more
most much must mustn my myself need needs no nor not now of off often on once one only onto or other
others ought our ours out over own per please rather re really same say says shall shan she should
shouldn since so some something such sure take takes tell than that the their theirs them themselves
then there these they thing things this those though through to too toward towards under until up
upon us use used uses using ve very via want wants was wasn way ways we were weren what whatever when
where whether which while who whom whose why will with within without won would wouldn yes you your
yours yourself actually exactly happen happens happened able mean means meant explain describe
documents docs documentation document according know anything anybody anyone someone long
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS_TEXT.split())
"""Words that say nothing of what is asked for."""

_WORD: Final = re.compile(r"[^\W_]+")
_QUERY_WORD: Final = re.compile(r"[^\W_]+(?:[._:/-]+[^\W_]+)*")
_CAMEL: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_STEMMER: Final = snowballstemmer.stemmer("english")


def fold(text: str) -> str:
    """`text` without accents and in lower case, as the index sees it."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


def camel_parts(word: str) -> list[str]:
    """`EventEnvelope` as `Event`, `Envelope`; a plain word as itself."""
    if word.islower() or word.isdigit() or not word.isascii():
        return [word]
    parts = _CAMEL.findall(word)
    return parts if len(parts) > 1 and "".join(parts) == word else [word]


def words_of(text: str) -> list[str]:
    """All words of `text` in lower case, in order; camel-case names give their parts, too."""
    found: list[str] = []
    for word in _WORD.findall(text):
        parts = camel_parts(word)
        found += [fold(word), *map(fold, parts)] if len(parts) > 1 else [fold(word)]
    return found


def names_of(text: str) -> list[str]:
    """The words of `text` that consist of several, in lower case: `partition_of`, `os.path`, `read-only`."""
    return [fold(word) for word in _QUERY_WORD.findall(text) if not word.isalnum()]


def stems(text: str, initials: frozenset[str] | None = None) -> list[str]:
    """The stems of all words of `text`, in order, and then its names as they are.

    With `initials` of those that begin with one of these letters, which a stem has in common with its word:
    who looks for some stems need not make all.
    """
    words = words_of(text)
    if initials is not None:
        words = [word for word in words if word[:1] in initials]
    return [*map(stem, words), *names_of(text)]


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a lower-case word by the Snowball project's English stemmer."""
    return str(_STEMMER.stemWord(word)) if word.isascii() else word


def telling(text: str) -> list[str]:
    """The words of `text` that say what it is about, each once, as they are written; all, if none does.

    An acronym is a word of its own: IT, US, WHO.
    """
    words = list(dict.fromkeys(_QUERY_WORD.findall(text)))
    kept = [word for word in words if fold(word) not in STOP_WORDS or (word.isupper() and len(word) > 1)]
    return kept or words
