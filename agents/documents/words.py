"""Words: how text is cut into them, reduced to stems, and told from mere grammar. English."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise

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
STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())
"""Words that say nothing of what is asked for."""

_WORD = re.compile(r"[^\W_]+")
_NAME = re.compile(r"(?<![\w])[^\W_]+(?![\w])")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_VOWELS = frozenset("aeiou")


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


def stems(text: str) -> list[str]:
    """The stems of all words of `text`, in order; camel-case names give their parts."""
    return [stem(fold(part)) for word in _WORD.findall(text) for part in camel_parts(word)]


def plain_stems(text: str) -> frozenset[str]:
    """The stems of the words of `text` that are not parts of a longer name; camel-case names as one word."""
    return frozenset(stem(fold(word)) for word in _NAME.findall(text))


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """The stem of a lower-case word by Porter's algorithm (1980), as SQLite's `porter` tokenizer has it."""
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    for step in (_plural, _past, _final_y, _long_endings, _middle_endings, _last_endings, _tidy):
        word = step(word)
    return word


def _is_consonant(word: str, at: int) -> bool:
    letter = word[at]
    if letter in _VOWELS:
        return False
    return letter != "y" or at == 0 or not _is_consonant(word, at - 1)


def _measure(word: str) -> int:
    """Porter's m: how often a consonant follows a vowel."""
    marks = [_is_consonant(word, at) for at in range(len(word))]
    return sum(1 for before, after in pairwise(marks) if not before and after)


def _has_vowel(word: str) -> bool:
    return any(not _is_consonant(word, at) for at in range(len(word)))


def _double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _is_consonant(word, len(word) - 1)


def _short_end(word: str) -> bool:
    """Ends consonant, vowel, consonant, the last not w, x or y."""
    size = len(word)
    return (
        size > 2
        and _is_consonant(word, size - 3)
        and not _is_consonant(word, size - 2)
        and _is_consonant(word, size - 1)
        and word[-1] not in "wxy"
    )


def _plural(word: str) -> str:
    if word.endswith("sses") or word.endswith("ies"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        rest = word.removesuffix(ending)
        if rest != word and _has_vowel(rest):
            if rest.endswith(("at", "bl", "iz")):
                return rest + "e"
            if _double(rest) and rest[-1] not in "lsz":
                return rest[:-1]
            return rest + "e" if _measure(rest) == 1 and _short_end(rest) else rest
    return word


def _final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _has_vowel(word[:-1]) else word


_LONG = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("logi", "log"),
    ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"),
    ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"),
    ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_MIDDLE = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_LAST = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize",
    "ion", "al", "er", "ic", "ou",
)  # fmt: skip


def _replace(word: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for ending, new in pairs:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return rest + new if _measure(rest) > 0 else word
    return word


def _long_endings(word: str) -> str:
    return _replace(word, _LONG)


def _middle_endings(word: str) -> str:
    return _replace(word, _MIDDLE)


def _last_endings(word: str) -> str:
    for ending in _LAST:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if _measure(rest) > 1 and (ending != "ion" or rest.endswith(("s", "t"))):
                return rest
            return word
    return word


def _tidy(word: str) -> str:
    if word.endswith("e"):
        size = _measure(word[:-1])
        if size > 1 or (size == 1 and not _short_end(word[:-1])):
            word = word[:-1]
    return word[:-1] if _measure(word) > 1 and _double(word) and word.endswith("l") else word
