"""Whether what a model says stands in the passages that it cites: numbers, names, quotes, negations, words.

A cheap test that finds what is made up, not what is drawn from a passage wrongly in other words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from agents.documents.words import STOP_WORDS, fold, stem, stems, words_of

LEAST_SHARED: Final = 0.4
"""The share of a sentence's telling words that its passages must have."""

_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_NUMBER_WORDS_TEXT: Final = """
two 2 three 3 four 4 five 5 six 6 seven 7 eight 8 nine 9 ten 10 eleven 11 twelve 12 thirteen 13 fourteen 14
fifteen 15 sixteen 16 seventeen 17 eighteen 18 nineteen 19 twenty 20 thirty 30 forty 40 fifty 50 sixty 60
seventy 70 eighty 80 ninety 90
"""
_NUMBER_WORDS: Final = dict(
    zip(_NUMBER_WORDS_TEXT.split()[::2], _NUMBER_WORDS_TEXT.split()[1::2], strict=True)
)
_QUOTE: Final = re.compile(r'["“”«»]([^"“”«»]{3,300})["“”«»]|`([^`]{2,200})`')
_NAME: Final = re.compile(
    r"\b(?:[A-Z][a-z]+[A-Z]\w*|[A-Za-z]\w*(?:[._]\w+)+|[A-Z]{2,}\w*)\b|(?<![.!?:] )(?<=[a-z,] )[A-Z][a-z]{2,}"
)
_NOT: Final = re.compile(
    r"\b(?:not|never|no|none|nothing|nobody|cannot|neither|nor|without|unable|[a-z]+n['’]t)\b",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[\"'“(A-Z0-9À-Þ`])|\n+")


def fault_of(sentence: str, passages: Sequence[str], question: str) -> str | None:
    """What a sentence says that its passages do not; None if nothing was found."""
    told = "\n".join(passages)
    known = set(stems(told))
    for quote in _QUOTE.finditer(sentence):
        if _flat(quote[1] or quote[2]) not in _flat(told):
            return f"its passages do not have the quote “{(quote[1] or quote[2])[:60]}”"
    numbers = {number for text in (told, question) for number, _ in _numbers(text)}
    for number, written in _numbers(sentence):
        if number not in numbers:
            return f"its passages do not have the number {written[:40]}"
    spoken = known.union(stems(question))
    for name in _NAME.findall(sentence):
        if not spoken.issuperset(stems(name)):
            return f"its passages do not have the name {name[:60]}"
    words = {stem(word) for word in words_of(sentence) if word not in STOP_WORDS}
    if words and len(words & known) < LEAST_SHARED * len(words):
        return "its passages do not have most of its words"
    if _turned(sentence, words, told):
        return "it turns a “not” of its passages around"
    return None


def sentences_of(text: str) -> list[str]:
    """The sentences and lines of an answer."""
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def _numbers(text: str) -> list[tuple[str, str]]:
    """The numbers of a text, in digits, and as they are written."""
    digits = [(number, number) for number in _NUMBER.findall(text)]
    words = [(_NUMBER_WORDS[word], word) for word in words_of(text) if word in _NUMBER_WORDS]
    return [*digits, *words]


def _turned(sentence: str, words: set[str], told: str) -> bool:
    """Whether the sentence that says nearly the same is negated where this one is not, or the reverse."""
    nearest, shared = "", 0.0
    for other in sentences_of(told):
        theirs = {stem(word) for word in words_of(other) if word not in STOP_WORDS}
        share = len(words & theirs) / max(len(words | theirs), 1)
        if share > shared:
            nearest, shared = other, share
    return shared >= 0.5 and bool(_NOT.search(sentence)) != bool(_NOT.search(nearest))


def _flat(text: str) -> str:
    return " ".join(re.findall(r"\w+", fold(text)))
