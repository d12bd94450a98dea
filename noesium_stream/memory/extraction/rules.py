"""`RuleExtractor`: sentences of a fixed form, found without a model. Pure.

It finds little, and nothing that was not said: a sentence has to begin with one of its forms, questions are
passed over, and only what the user has said counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from noesium_stream.memory.extraction.clauses import clauses, spans, without_opening
from noesium_stream.memory.extraction.turn import MAX_VALUE, Extracted, Kind, Turn

MAX_SENTENCE: Final = 400
"""Characters of a sentence that is looked at."""

_SPACE: Final = re.compile(r"\s+")
_WORD: Final = re.compile(r"[a-z0-9]+")
_I_AM: Final = "(?:i am|i'm|i’m)"
_FIXED: Final[Sequence[tuple[str, Kind, str]]] = (
    (r"my name is ([^,]+)(?:,.*)?", "fact", "name"),
    (r"call me ([^,]+)(?:,.*)?", "fact", "name"),
    (r"i live in (.+)", "fact", "home"),
    (r"i(?: have|'ve|’ve)? moved to (.+)", "fact", "home"),
    (r"i work (?:at|for) (.+)", "fact", "employer"),
    (r"i work as an? (.+)", "fact", "occupation"),
    (r"my birthday is (?:on )?(.+)", "fact", "birthday"),
    (r"i was born (?:on|in) (.+)", "fact", "birthday"),
    (rf"{_I_AM} (?:a )?(vegan|vegetarian|pescatarian)", "fact", "diet"),
    (r"my time ?zone is (.+)", "fact", "time-zone"),
    (r"my e-?mail(?: address)? is (.+)", "fact", "email"),
)
_NAMED: Final[Sequence[tuple[str, Kind, str, str]]] = (
    (rf"{_I_AM} allergic to (?P<name>.+)", "fact", "allergy", "allergic"),
    (r"i (?:really )?(?:like|love|enjoy) (?P<name>.+)", "preference", "", "likes"),
    (r"i (?:really )?(?:do not|don't|don’t) (?:like|enjoy) (?P<name>.+)", "preference", "", "dislikes"),
    (r"i (?:really )?(?:hate|dislike) (?P<name>.+)", "preference", "", "dislikes"),
    (r"i prefer (?P<name>.+)", "preference", "", "prefers"),
)
_FAVOURITE: Final = re.compile(r"my favou?rite (?P<name>[^,]{1,60}?) is (?P<value>.+)", re.I)
_REMEMBER: Final = re.compile(r"(?:remember|note)(?: that|:) (.+)", re.I)
_EVENT: Final = re.compile(
    r"i(?: have|'ve|’ve)? (bought|sold|visited|met|started|finished|quit|ordered|booked|cancelled|lost) (.+)",
    re.I,
)
_FIXED_FORMS: Final = [(re.compile(form, re.I), kind, name) for form, kind, name in _FIXED]
_NAMED_FORMS: Final = [(re.compile(form, re.I), kind, name, value) for form, kind, name, value in _NAMED]


class RuleExtractor:
    """Finds sentences such as `my name is …`, `I live in …`, `I like …`, `I bought …`, `remember that …`."""

    name = "rules-1"

    async def extract(self, turns: Sequence[Turn], known: Sequence[str], first: int) -> Sequence[Extracted]:
        """See `MemoryExtractor.extract`; what is known does not matter."""
        return [
            found
            for at, turn in enumerate(turns[first:], first)
            if turn.role == "user"
            for sentence in sentences(turn.text)
            for found in found_in(sentence, at)
        ]


def sentences(text: str) -> Iterator[str]:
    """The clauses of a text's sentences that are no questions, without what opens and ends them."""
    for begin, end in spans(text):
        sentence = text[begin:end]
        if len(sentence) > MAX_SENTENCE or sentence.endswith("?"):
            continue
        for clause in clauses(_SPACE.sub(" ", sentence)):
            yield without_opening(clause)


def found_in(sentence: str, turn: int) -> Iterator[Extracted]:
    """What one sentence says, if it has one of the forms."""
    for form, kind, name in _FIXED_FORMS:
        if match := form.fullmatch(sentence):
            yield Extracted(kind, name, match.group(1)[:MAX_VALUE], (turn,))
            return
    for form, kind, name, value in _NAMED_FORMS:
        if (match := form.fullmatch(sentence)) and (about := _slug(match["name"])):
            yield Extracted(kind, f"{name}.{about}" if name else about, f"{value} {match['name']}", (turn,))
            return
    if (match := _FAVOURITE.fullmatch(sentence)) and (about := _slug(match["name"])):
        yield Extracted("preference", f"favourite.{about}", match["value"], (turn,))
    elif match := _REMEMBER.fullmatch(sentence):
        digest = sha256(match.group(1).lower().encode()).hexdigest()[:12]
        yield Extracted("fact", f"note.{digest}", match.group(1), (turn,))
    elif (match := _EVENT.fullmatch(sentence)) and (about := _slug(match.group(2))):
        yield Extracted("event", f"{match.group(1).lower()}.{about}", sentence, (turn,))


def _slug(text: str) -> str:
    """The words of a text as a name; none: it has no letters that a name can have."""
    return "-".join(_WORD.findall(text.lower()))[:60].strip("-")
