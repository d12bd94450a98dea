"""Sentences and clauses of what a person says. Pure.

`RuleExtractor` and `agents.assistant` read the same sentences: this is their common part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

MAX_SENTENCES: Final = 200
"""Sentences of one text that are told apart; what follows them belongs to none."""
MAX_CLAUSES: Final = 20
"""Clauses of one sentence that are told apart by what they state."""

_SENTENCE: Final = re.compile(r"[^.!?;\n]+(?:\.(?=\w)[^.!?;\n]+)*[.!?;\n]?")
_AND: Final = re.compile(r"[, ](?:and|but|also) (?=(?:i|i'm|i’m|my) )", re.I)
_AND_OR_COMMA: Final = re.compile(r"(?:,? (?:and|but|also)|,) (?=(?:i|i'm|i’m|i've|i’ve|my) )", re.I)
_OPENING: Final = re.compile(
    r"^(?:(?:and|but|also|well|yes|no|ok|okay|hi|hello|actually|please)[, ] ?){0,3}", re.I
)


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each sentence of a text begins and ends, the sign that ends it included."""
    for number, match in enumerate(_SENTENCE.finditer(text)):
        if number >= MAX_SENTENCES:
            return
        yield match.span()


def clauses(sentence: str) -> list[str]:
    """The clauses of a sentence: each but the first begins with `I` or `my`, after `and`, `but` or `also`."""
    return _AND.split(sentence)


def statements(sentence: str, is_statement: Callable[[str], bool]) -> list[str]:
    """The statements of a sentence; one clause alone if it has not several.

    A comma, too, stands between two statements, and no clause is cut off that is no statement itself or
    follows none: `I like my dog and my cat` is one.
    """
    found: list[str] = []
    begin = 0
    marks = list(_AND_OR_COMMA.finditer(sentence))[: MAX_CLAUSES - 1]
    ends = [*(mark.start() for mark in marks[1:]), len(sentence)]
    for mark, end in zip(marks, ends, strict=False):
        if is_statement(sentence[begin : mark.start()]) and is_statement(sentence[mark.end() : end]):
            found.append(sentence[begin : mark.start()])
            begin = mark.end()
    return [*found, sentence[begin:]]


def without_opening(clause: str) -> str:
    """A clause without words such as `well` and `hello` at its beginning, and without the signs around it."""
    return _OPENING.sub("", clause.strip(" .,!;"))
