"""Words of questions and of names: `order_items`, `OrderItems` and "order items" are the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_SIGN: Final = r"(?:(?<![^\s<>=])[+\-\u2212](?=[0-9]))?"
_WORD: Final = r"[\w@$](?:[\w@$:+/.-]*[\w@$])?"
_TOKEN: Final = re.compile(rf"\"([^\"]*)\"|'([^']*)'|([<>!=]=?|<>)|({_SIGN}{_WORD})|(,)")
_OPENING: Final = " ([{:\"'\u201c\u2018\u201e\u00ab"
_CLOSING: Final = " ?!.;:,)]}\"'\u201d\u2019\u00bb"
_IN_NAMES: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a question.

    Attributes:
        text: the word.
        quoted: it stood in quotes, and is a value or a name, whatever it says.
        begin: where in the question the word before it ends.
        end: where in the question the word behind it begins.
    """

    text: str
    quoted: bool = False
    begin: int = 0
    end: int = 0

    @property
    def word(self) -> str:
        """The word as it is compared; none if it is quoted."""
        return "" if self.quoted else self.text.lower()


def tokens_of(question: str) -> list[Token]:
    """The words of a question, in order; what stands in quotes is one."""
    found = []
    matches = list(_TOKEN.finditer(question))
    begins = [0, *(match.end() for match in matches)]
    ends = [*(match.start() for match in matches[1:]), len(question)]
    for match, begin, end in zip(matches, begins, ends, strict=False):
        double, single, sign, word, comma = match.groups()
        quoted = double if double is not None else single
        text = quoted if quoted is not None else sign or word or comma
        found.append(Token(text, quoted is not None, begin, end))
    return found


def text_of(question: str, tokens: Sequence[Token]) -> str:
    """What a question says in these tokens, with all signs among them, but for punctuation at both ends."""
    if len(tokens) == 1 and tokens[0].quoted:
        return tokens[0].text
    text = " ".join(question[tokens[0].begin : tokens[-1].end].split())
    return text.lstrip(_OPENING).rstrip(_CLOSING)


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case and in the singular."""
    return tuple(singular(part.lower()) for part in _IN_NAMES.findall(name))


def singular(word: str) -> str:
    """The singular of an English noun, by its ending; a rule of thumb, the same for questions and names."""
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes", "zes")):
        return word[:-2]
    if len(word) > 2 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


@dataclass(frozen=True, slots=True)
class Mention(Generic[T]):
    """Where tokens name something: the first token, the one behind the last, and all that has this name."""

    first: int
    end: int
    named: tuple[T, ...]


def mentions(tokens: Sequence[Token], names: Sequence[tuple[tuple[str, ...], T]]) -> list[Mention[T]]:
    """What the tokens name, from left to right; of names that overlap the longest one counts."""
    by_words: dict[tuple[str, ...], list[T]] = {}
    for words, named in names:
        if words:
            by_words.setdefault(words, []).append(named)
    longest = max((len(words) for words in by_words), default=0)
    spoken = [words_of(token.text) for token in tokens]
    found: list[Mention[T]] = []
    at = 0
    while at < len(tokens):
        step = 1
        for end in range(min(len(tokens), at + longest), at, -1):
            words = tuple(word for part in spoken[at:end] for word in part)
            if all(spoken[at:end]) and words in by_words:
                found.append(Mention(at, end, tuple(by_words[words])))
                step = end - at
                break
        at += step
    return found
