"""What a message asks for: each of its statements, questions and orders, in their order.

Pure functions over texts. A full stop, a comma or `and` divides a message only where what follows stands for
itself; else it belongs to the value before it: `my address is 5 St. John's Rd.`
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from agents.assistant.sentences import (
    MAX_KEY,
    MAX_PARSED,
    Ask,
    Forget,
    Remember,
    UseTool,
    fact_of,
    is_question,
    noted_in,
    request_of,
)
from noesium_stream.memory.extraction.clauses import spans, statements, without_opening
from noesium_stream.memory.extraction.rules import found_in

_KEYS: Final = {"fact.home": "live_in"}
"""Keys of `RuleExtractor` by which the assistant knows something else; of others it has the name."""
_MIN_QUESTION: Final = 3
"""Words of a question without a question mark that stands behind another sentence."""

_RECALL: Final = re.compile(
    r"(?:what|tell me what|list what|everything) (?:do )?you (?:do )?(?:know|remember)"
    r"(?: (?:about|of) me)?(?: so far)?",
    re.I,
)
_ABILITY: Final = re.compile(r"(?:what can you do|what do you do|help)(?: for me)?", re.I)
_REMIND: Final = re.compile(
    r"(?:please |can you |could you |will you )*remind me\b"
    r"(?! (?:what|who|where|when|which|why|how)\b).*",
    re.I | re.S,
)
_FORGET_ALL: Final = re.compile(
    r"(?:please )?forget (?:everything|all|it all|all of it)"
    r"(?: (?:that )?(?:you (?:know|remember)|about me|of me|i (?:have )?told you)){0,2}",
    re.I,
)
_COURTESY: Final = re.compile(
    r"(?:hi|hello|hey|thanks|thank you|good (?:morning|day|afternoon|evening|night)|bye|goodbye"
    r"|please|ok|okay|yes|no|(?:it is |it's )?nice to meet you)(?: there| very much| a lot)?",
    re.I,
)
_PERSONS: Final = (
    (re.compile(r"(?:i am|i'm|i’m)\b", re.I), "You are"),
    (re.compile(r"(?:i have|i've|i’ve)\b", re.I), "You have"),
    (re.compile(r"i was\b", re.I), "You were"),
    (re.compile(r"i\b", re.I), "You"),
    (re.compile(r"my\b", re.I), "Your"),
)


@dataclass(frozen=True, slots=True)
class Recall:
    """All that is remembered is to be listed."""


@dataclass(frozen=True, slots=True)
class Explain:
    """The person wants to know something about the assistant, which `about` names."""

    about: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """A sentence that no form fits and that is no question."""

    text: str


Request = Remember | Forget | UseTool | Ask | Recall | Explain | Unclear


def requests_of(text: str) -> list[Request]:
    """What a message asks for; at least one request."""
    whole = _request(text)
    if len(text) > MAX_PARSED or isinstance(whole, UseTool):
        return [whole]
    return [request for part in _parts(text) for request in _of_part(part)] or [whole]


def _parts(text: str) -> list[str]:
    """The parts of a text that stand for themselves; greetings beside others are left out."""
    parts = [""]
    noted = False
    for start, end in spans(text):
        sentence = text[start:end]
        if _COURTESY.fullmatch(_plain(sentence)):
            parts += [sentence, ""]
            continue
        if _stands_alone(sentence):
            parts.append(sentence)
            noted = noted_in(_plain(sentence)) is not None
        elif noted and _is_noted(sentence):
            parts.append(f"remember that {sentence.lstrip()}")
        else:
            parts[-1] += sentence
    parts = [part for part in parts if _plain(part)]
    return [part for part in parts if not _COURTESY.fullmatch(_plain(part))] or parts[:1]


def _stands_alone(sentence: str) -> bool:
    request = _request(sentence)
    if isinstance(request, Ask):
        return sentence.rstrip().endswith("?") or len(sentence.split()) >= _MIN_QUESTION
    return not isinstance(request, Unclear)


def _of_part(part: str) -> list[Request]:
    """The requests of a part: one, or each of its statements."""
    request, plain = _request(part), _plain(part)
    noted = noted_in(plain)
    if not isinstance(request, Remember):
        return [request]
    if noted is None:
        found = statements(plain, _is_fact)
    else:
        found = statements(noted, lambda clause: _is_fact(clause) or _is_noted(clause))
    if len(found) == 1:
        return [request]
    first = found[0] if noted is None else f"remember that {found[0]}"
    return [_request(first), *map(_request, found[1:])]


def _request(text: str) -> Request:
    """What a text asks for that is not taken apart."""
    plain = _plain(text)
    for form, request in _ASIDES:
        if form.fullmatch(plain.rstrip("? ")):
            return request
    found = request_of(plain if len(text) <= MAX_PARSED else text)
    if not isinstance(found, Ask) or is_question(plain):
        return found
    return _fact(plain) or Unclear(text.strip())


_ASIDES: Final[tuple[tuple[re.Pattern[str], Request], ...]] = (
    (_RECALL, Recall()),
    (_ABILITY, Explain("abilities")),
    (_REMIND, Explain("reminders")),
    (_FORGET_ALL, Explain("forgetting")),
)


def _fact(clause: str) -> Remember | None:
    """The fact in a clause, in a form of the assistant or of `RuleExtractor`."""
    plain = without_opening(clause)
    known = fact_of(plain)
    if known is not None or len(plain) > MAX_PARSED:
        return known
    found = next(found_in(plain, 0), None)
    if found is None:
        return None
    key = _KEYS.get(found.key, found.name if found.kind == "fact" else found.key)
    return Remember(key[:MAX_KEY], found.value, f"{_to_person(plain)}.")


def _is_fact(clause: str) -> bool:
    return _fact(clause) is not None


def _is_noted(sentence: str) -> bool:
    """Whether a sentence says something of a thing: `the key is under the mat`."""
    plain = _plain(sentence)
    request = request_of(f"remember that {plain}")
    is_note = isinstance(request, Remember) and request.key.startswith("note.")
    return plain.lower().startswith("the ") and not is_note


def _to_person(clause: str) -> str:
    """A clause as it is said to the person who has said it: `You moved to Rome`."""
    for form, instead in _PERSONS:
        found = form.match(clause)
        if found is not None:
            return instead + clause[found.end() :]
    return clause


def _plain(text: str) -> str:
    return " ".join(text.split()).rstrip(".!;, ")
