"""Whether a unit has the form of an answer to a kind of question, whatever it is about.

What counts: cues (a duration has a number), definitions, rows and assignments whose key is what was asked
for, headings that ask the same; and what the text is made of, since questions in words want prose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agents.documents.kinds import is_side, is_source
from agents.documents.words import stems
from agents.researcher.planning import SYNONYM_CREDIT
from agents.researcher.segments import Unit, flat
from agents.researcher.texts import Text

_NUMBER = (
    r"(?:\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|hundred|thousand|"
    r"million|once|twice|half|dozen|single|no limit|unlimited|none|zero)\b)"
)
_UNITS_OF_TIME = (
    r"(?:ms|s|min|h|seconds?|minutes?|hours?|days?|weeks?|months?|years?|milliseconds?|microseconds?)\b"
)
_CUES = {
    "duration": re.compile(
        _NUMBER + r"[^.]{0,20}?" + _UNITS_OF_TIME + r"|\bfor (?:good|ever)\b|\bforever\b", re.I
    ),
    "count": re.compile(_NUMBER, re.I),
    "why": re.compile(
        r"\b(because|so that|since|in order to|otherwise|therefore|reasons?|to avoid|to keep|to prevent|"
        r"hence|thus|why|avoids?|prevents?|without (?:this|it)|due to)\b|: ",
        re.I,
    ),
    "when": re.compile(
        r"\b(when|after|before|until|if|once|as soon as|every|on|at|while|whenever|by)\b|\b\d{4}\b", re.I
    ),
    "where": re.compile(r"\b(in|at|under|below|into|from|inside)\b|\w/\w|~", re.I),
    "who": re.compile(
        r"(?<=\s)[A-Z][a-z]+|\b(who|by|owner|responsible|team|author|manager|person|people|anyone)\b"
    ),
    "how": re.compile(
        r"`[^`]+`|^\s*(?:use|run|call|set|add|open|press|click|type|create|make|give|pass|choose|start|install|"
        r"write|turn|remove|hold|put|see|enter|go|select|return)\b|"
        r"\bby \w+ing\b|\$ |\b(?:first|then|with|through)\b",
        re.I | re.M,
    ),
}
_STRICT = frozenset({"duration", "count"})
"""Kinds whose answer cannot do without its cue."""
_DEFINES = (
    r"(?:\s*\([^)]{0,60}\))?[`*_\"]{0,3}\s+(?:is|are|means|refers? to|describes?|denotes?|was)\b|"
    r"[`*_\"]{0,3}\s*(?:—|–|:|=|\||--)\s"
)


def form_of(
    plan: Mapping[str, Any],
    terms: Sequence[tuple[Mapping[str, Any], float]],
    unit: Unit,
    text: Text,
    passage: Mapping[str, Any],
    at: int,
    lead: str,
) -> float:
    """Whether a unit looks like an answer to this kind of question: about -0.6 to +0.5.

    `lead` is the sentence in bold at the beginning of its paragraph, if there is one.
    """
    kind = plan["kind"]
    form = _cue(kind, unit)
    if kind in ("what", "other", "who"):
        form += _definition(terms, unit, passage, at)
    form += _row_key(terms, unit) - _stuff(plan, unit, passage["path"])
    if len(text) < 6:
        form -= 0.15 if len(text) < 4 else 0.06
    if unit.text.rstrip().endswith("?"):
        form -= 0.3
    elif unit.text.rstrip().endswith((".", ":", "!")):
        form += 0.03
    if len(text) > 40:
        form -= min((len(text) - 40) * 0.002, 0.25)
    heading = passage["heading"].split(" > ")[-1] if at < 3 else ""
    form += max(_asked_in_heading(kind, terms, above) for above in (heading, lead))
    return form + _together(terms, text) + (0.08 if _has_phrase(plan, unit) else 0.0)


def _asked_in_heading(kind: str, terms: Sequence[tuple[Mapping[str, Any], float]], heading: str) -> float:
    """A bonus for what begins under a heading that asks the same question, or names all of it."""
    text = Text(heading)
    spoken = sum(text.credit(term) * weight for term, weight in terms)
    total = sum(weight for _, weight in terms) or 1.0
    if spoken < 0.5 * total:
        return 0.0
    asks = kind in heading.lower().strip("*").split() or heading.rstrip(" *.").endswith("?")
    return 0.3 * spoken / total if asks else 0.15 * (spoken >= 0.9 * total)


_IN_CODE, _IN_COMMENT, _AT_SIDE = 0.2, 0.14, 0.25
_LEAD = re.compile(r"\*\*[^*]+\*\*[.:?!]?$")
_ASSIGNMENT = re.compile(r"\s*(?:self\.)?([A-Za-z_]\w*)\s*(?::[^=\n]+)?=\s*\S")


def is_lead(unit: Unit) -> bool:
    """Whether the unit is a sentence in bold, as a paragraph begins that has no heading."""
    return unit.kind == "prose" and _LEAD.match(unit.text.strip()) is not None


def repeats(plan: Mapping[str, Any], unit: Unit) -> bool:
    """Whether the unit is code that holds the question itself: a command or an example, no answer."""
    asked = stems(plan["question"])
    return (
        unit.kind == "code" and len(asked) > 2 and f" {' '.join(asked)} " in f" {' '.join(stems(unit.text))} "
    )


def _stuff(plan: Mapping[str, Any], unit: Unit, path: str) -> float:
    """What speaks against a unit for what it is made of: code, comments, tests, in rising order."""
    against = 0.0
    if unit.kind == "code":
        against += 0.02 if plan["kind"] == "how" else 0.15
    if is_side(path):
        against += 0.15
    if plan["about_code"]:
        return against
    if is_side(path):
        return against + _AT_SIDE - 0.15 + (_IN_COMMENT if is_source(path) else 0.0)
    if is_source(path):
        return against + (_IN_CODE if unit.kind == "code" else _IN_COMMENT)
    return against


def _row_key(terms: Sequence[tuple[Mapping[str, Any], float]], unit: Unit) -> float:
    """A bonus for a row of a table, or an assignment, whose key is what is asked for."""
    if unit.kind == "table":
        key = unit.text.strip().strip("|").split("|")[0]
    elif unit.kind == "code" and (assigned := _ASSIGNMENT.match(unit.text)):
        key = assigned.group(1)
    else:
        return 0.0
    known = {
        form["stems"][0]
        for term, _ in terms
        for form in term["forms"]
        if len(form["stems"]) == 1 and form["credit"] >= SYNONYM_CREDIT
    }
    words = set(stems(key))
    return 0.22 if words and words <= known else 0.0


def _cue(kind: str, unit: Unit) -> float:
    cue = _CUES.get(kind)
    if cue is None:
        return 0.0
    return 0.1 if cue.search(unit.text) else (-0.2 if kind in _STRICT else 0.0)


def _definition(
    terms: Sequence[tuple[Mapping[str, Any], float]], unit: Unit, passage: Mapping[str, Any], at: int
) -> float:
    """A bonus where the unit says what the question's main thing is."""
    if not terms:
        return 0.0
    main = max(terms, key=lambda item: item[1])[0]
    name = re.escape(main["text"])
    if re.match(
        r"(?:[-*+|]\s+)?(?:an?|the)?\s*[`*_\"]{0,3}(?:\w+\s){0,2}?" + name + "s?(?:" + _DEFINES + ")",
        unit.text,
        re.I,
    ):
        return 0.22
    if re.search(r"(?<![\w*_])[*_]{1,2}" + name + r"s?[*_]{1,2}(?![\w*_])", unit.text, re.I):
        return 0.15  # "an *inbox*, where anyone writes"
    if re.match(r"(?:an?|the)\s+[`*_\"]{0,3}" + name + r"[`*_\"]{0,3}\s+\w+s\b", unit.text, re.I):
        return 0.2  # "A semaphore manages ..."
    heading = passage["heading"].split(" > ")[-1]
    last = Text(heading)
    named = last.has(main["forms"][0]["stems"]) or main["text"].endswith("." + heading)
    if unit.kind != "code" and at < 3 and named and len(last) <= 4:
        # the summary of `functools.lru_cache` beats those who merely use it
        return 0.35 if main["text"].endswith("." + heading) else 0.15
    return 0.0


def _together(terms: Sequence[tuple[Mapping[str, Any], float]], text: Text) -> float:
    """A bonus for terms that stand close to each other."""
    places = sorted(place for term, _ in terms if (place := text.place(term["forms"][0]["stems"])) >= 0)
    if len(places) < 2:
        return 0.0
    return 0.08 * min(1.0, 2 * len(places) / (places[-1] - places[0] + 1))


def _has_phrase(plan: Mapping[str, Any], unit: Unit) -> bool:
    text = flat(unit.text).lower()
    return any(phrase.lower() in text for phrase in plan["phrases"])
