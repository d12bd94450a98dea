"""What a sentence asks for, without a model: to remember, to forget, to use a tool, or to answer.

Pure functions over texts. A sentence that none of the forms fits is a question.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

MAX_KEY: Final = 80
"""Characters of a key that is made of words."""
MAX_PARSED: Final = 2_000
"""Characters of a sentence that is taken apart; a longer one is a note, or a question."""

_REMEMBER: Final = re.compile(r"(?:please )?(?:remember|note|keep in mind)\b(?: that\b|:)? (.+)", re.I | re.S)
_FORGET: Final = re.compile(r"(?:please )?forget\b(?: that| about| everything about)? (.+)", re.I | re.S)
_NAME: Final = re.compile(r"(?:hi|hello|hey)?,? ?(?:my name is|call me|i am called|i'm called) (.+)", re.I)
_MINE: Final = re.compile(r"my (.{1,80}?) (is|are) (.+)", re.I | re.S)
_DOES: Final = re.compile(r"i (live in|work at|work for|work as|come from) (.+)", re.I | re.S)
_LIKES: Final = re.compile(r"i (like|love|hate|prefer|need|want|own|have) (.+)", re.I | re.S)
_IS: Final = re.compile(r"(?:the )?(.{1,80}?) (is|are) (.+)", re.I | re.S)
_WRITE: Final = re.compile(
    r"(?:please )?(?:write|save|put) (.+) (?:into|in|to) ([\w./-]{1,200})", re.I | re.S
)
_READ: Final = re.compile(r"(?:please )?(?:read|open) ([\w./-]{1,200})", re.I)
_LIST: Final = re.compile(r"(?:please )?(?:list|show)(?: me)?(?: the| my)? files", re.I)
_WORD: Final = re.compile(r"\w+")
_ASKS: Final = re.compile(
    r"(?:what|who|whom|whose|where|when|which|why|how|do|does|did|is|are|was|were|can|could|tell)\b", re.I
)
_STOP: Final = frozenset(
    {
        "a", "about", "am", "an", "and", "any", "are", "as", "at", "be", "been", "by", "can",
        "could", "did", "do", "does", "for", "from", "had", "has", "have", "her", "him", "his",
        "how", "i", "in", "is", "it", "its", "know", "me", "mine", "my", "of", "on", "or", "please",
        "said", "say", "she", "so", "tell", "that", "the", "their", "them", "there", "they", "this",
        "to", "told", "us", "was", "we", "were", "what", "when", "where", "which", "who", "whom",
        "whose", "why", "will", "with", "would", "you", "your", "yours",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Remember:
    """A fact to remember.

    Attributes:
        key: names what the fact is about: another value takes its place.
        value: the value.
        told: the fact as a sentence to the person.
    """

    key: str
    value: str
    told: str


@dataclass(frozen=True, slots=True)
class Forget:
    """What is to be forgotten, in the person's words."""

    what: str


@dataclass(frozen=True, slots=True)
class UseTool:
    """A tool to be called."""

    name: str
    arguments: dict[str, str]


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; `key` is what it is about, if its form says so."""

    text: str
    key: str | None = None


def request_of(text: str) -> Remember | Forget | UseTool | Ask:
    """What a message asks for."""
    said = " ".join(text.split()) if len(text) <= MAX_PARSED else text.strip()
    plain = said.rstrip(".! ")
    if len(said) > MAX_PARSED:
        return Remember(_note_key(said), said, said) if _REMEMBER.match(said) else Ask(said)
    tool = _tool_in(plain)
    if tool is not None:
        return tool
    found = _FORGET.fullmatch(plain)
    if found is not None:
        return Forget(found[1].rstrip("?"))
    rest = noted_in(plain)
    if rest is not None:
        return fact_of(rest) or _of_subject(rest) or Remember(_note_key(rest), rest, f"{_capital(rest)}.")
    if is_question(plain):
        return Ask(said, _asked_key(plain.rstrip("? ")))
    return fact_of(plain) or Ask(said)


def is_question(plain: str) -> bool:
    """Whether a sentence ends or begins as a question."""
    return plain.endswith("?") or _ASKS.match(plain) is not None


def noted_in(plain: str) -> str | None:
    """What is to be remembered by a sentence that says so; None: it does not."""
    found = _REMEMBER.fullmatch(plain)
    return None if found is None else found[1].strip()


def fact_of(sentence: str) -> Remember | None:
    """The fact in a sentence about the person who says it; None: there is none."""
    found = _NAME.fullmatch(sentence)
    if found is not None:
        return Remember("name", found[1], f"Your name is {found[1]}.")
    found = _MINE.fullmatch(sentence)
    if found is not None:
        return Remember(slug(found[1]), found[3], f"Your {found[1]} {found[2].lower()} {found[3]}.")
    found = _DOES.fullmatch(sentence)
    if found is not None:
        return Remember(slug(found[1]), found[2], f"You {found[1].lower()} {found[2]}.")
    found = _LIKES.fullmatch(sentence)
    if found is not None:
        key = f"{found[1].lower()}.{slug(found[2])}"
        return Remember(key[:MAX_KEY], found[2], f"You {found[1].lower()} {found[2]}.")
    return None


def _of_subject(sentence: str) -> Remember | None:
    found = _IS.fullmatch(sentence)
    if found is None:
        return None
    return Remember(slug(found[1]), found[3], f"{_capital(sentence)}.")


def slug(text: str) -> str:
    """A key made of words: `favourite_colour`; of a text without words, of its hash."""
    words = [word for word in _WORD.findall(text.lower()) if word not in ("the", "a", "an")]
    return "_".join(words)[:MAX_KEY] or _note_key(text)


def _note_key(text: str) -> str:
    same = " ".join(_WORD.findall(text.lower()))
    return f"note.{hashlib.sha256((same or text).encode(errors='replace')).hexdigest()[:12]}"


_WHAT_IS_MINE: Final = re.compile(
    r"(?:do you know |can you tell me |tell me )?(?:what|who|where|when)(?:'s| is| are) my (.+)", re.I
)
_WHO_AM_I: Final = re.compile(r"(?:do you know )?who am i|(?:do you know )?who i am", re.I)


def _asked_key(question: str) -> str | None:
    found = _WHAT_IS_MINE.fullmatch(question)
    if found is not None:
        return slug(found[1])
    return "name" if _WHO_AM_I.fullmatch(question) else None


def content_words(text: str) -> frozenset[str]:
    """The words of a text that say what it is about, without their endings."""
    return frozenset(_stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP)


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if len(word) > len(ending) + 2 and word.endswith(ending):
            return word[: -len(ending)]
    return word


def share(question: frozenset[str], text: str) -> float:
    """How much of a question's words a text has: 0 to 1; of a question without such words 0."""
    return len(question & content_words(text)) / len(question) if question else 0.0


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'" else text


def _tool_in(sentence: str) -> UseTool | None:
    found = _WRITE.fullmatch(sentence)
    if found is not None:
        return UseTool("write_file", {"path": found[2], "text": f"{_unquoted(found[1])}\n"})
    found = _READ.fullmatch(sentence)
    if found is not None:
        return UseTool("read_file", {"path": found[1]})
    return UseTool("find_files", {"pattern": "**"}) if _LIST.fullmatch(sentence) else None
