"""How well passages answer a question, and whether they do at all.

A passage is worth what its best unit (sentence, item, row, piece of code) is worth: which of the
question's terms it speaks of, each by its rarity, itself or through its heading or its neighbours; and
whether it has the form of an answer to this kind of question. Pure functions of plan, passages and
counts: no clock, no chance, ties broken by path and line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agents.documents.words import stems
from agents.researcher.form import form_of, is_lead, repeats
from agents.researcher.planning import SYNONYM_CREDIT
from agents.researcher.segments import Unit, units_of
from agents.researcher.texts import Text

ANSWER_COVERAGE = 0.58
"""Share of the question's weight that evidence must speak of to count as an answer."""
MODEL_COVERAGE = 0.35
"""The same where a model judges: it knows more synonyms."""
KEPT = 12
UNITS_PER_PASSAGE = 3
SAME_TEXT = 0.75

_HEADING, _TITLE, _PATH = 0.8, 0.55, 0.5
_NEXT, _NEAR = 0.6, 0.4
_QUALIFIED = 1.0


def weigh(
    plan: Mapping[str, Any], passages: Sequence[Mapping[str, Any]], corpus: Mapping[str, Any]
) -> dict[str, Any]:
    """Judge `passages` against `plan`.

    `corpus` has `passages` (how many there are) and `counts` (query word -> passages that have it).

    Returns `{"evidence": [...], "coverage", "missing": [term texts], "thin": bool}`; evidence is the best
    passages, best first, each with `weight`, `coverage` and its best `units`.
    """
    terms = _weighted(plan, corpus)
    total = sum(weight for _, weight in terms) or 1.0
    judged = [_judge(plan, terms, total, passage) for passage in passages]
    judged = [item for item in judged if item["units"]]
    judged.sort(key=lambda item: (-item["weight"], item["path"], item["start_line"] or 0, item["page"] or 0))
    evidence = _distinct(judged)[:KEPT]
    coverage = max((item["coverage"] for item in evidence[:4]), default=0.0)
    spoken = {text for item in evidence[:3] if item["coverage"] >= coverage * 0.8 for text in item["spoken"]}
    missing = [term["text"] for term, _ in terms if term["text"] not in spoken]
    return {
        "evidence": evidence,
        "coverage": round(coverage, 4),
        "missing": missing,
        "thin": coverage < ANSWER_COVERAGE,
    }


def times_seen(term: Mapping[str, Any], counts: Mapping[str, int]) -> int:
    """In how many passages of the corpus a term occurs, itself or as a word that means the same."""
    return max(
        (counts.get(form["text"], 0) for form in term["forms"] if form["credit"] >= SYNONYM_CREDIT), default=0
    )


def _weighted(plan: Mapping[str, Any], corpus: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], float]]:
    """The plan's terms with their weight: more for what is rare in the corpus, most for what is absent."""
    size = max(int(corpus.get("passages", 0)), 1)
    counts = corpus.get("counts", {})
    result = []
    for term in plan["terms"]:
        seen = times_seen(term, counts)
        rarity = math.log(1 + size / (1 + seen)) / math.log(1 + size)
        result.append((term, term["weight"] * (0.3 + 0.7 * min(rarity, 1.0))))
    return result


def _judge(
    plan: Mapping[str, Any],
    terms: Sequence[tuple[Mapping[str, Any], float]],
    total: float,
    passage: Mapping[str, Any],
) -> dict[str, Any]:
    def share(credits: Sequence[float]) -> float:
        return sum(credit * weight for credit, (_, weight) in zip(credits, terms, strict=True)) / total

    units = units_of(passage["text"], passage["path"])
    texts = [Text(unit.text) for unit in units]
    headers = _headers(units)
    context = _context(terms, passage)
    about = share(context)
    own = [[text.credit(term) for term, _ in terms] for text in texts]
    scored = []
    spoken: set[str] = set()
    for at, unit in enumerate(units):
        direct = share(own[at])
        # the header of a table says something of each row, and nothing by itself
        if headers[at] == at or at in headers or repeats(plan, unit):
            continue
        under = at - headers[at] < 3 and headers[at] >= 0 and share(own[headers[at]]) > 0.5
        if direct < 0.12 and not (under and unit.kind == "prose") and not (at < 3 and about > 0.5):
            continue
        credits = [_credit(own, at, column, context[column], units, headers) for column in range(len(terms))]
        coverage = share(credits)
        lead = units[headers[at]].text if headers[at] >= 0 and unit.kind == "prose" else ""
        weight = coverage + 0.12 * direct + form_of(plan, terms, unit, texts[at], passage, at, lead)
        scored.append((weight, coverage, at))
        if coverage >= ANSWER_COVERAGE * 0.8:
            spoken |= {
                term["text"] for credit, (term, _) in zip(credits, terms, strict=True) if credit >= 0.35
            }
    scored.sort(key=lambda item: (-item[0], item[2]))
    best = scored[:UNITS_PER_PASSAGE]
    return {
        **passage,
        "weight": round(scored[0][0], 6) if scored else 0.0,
        "coverage": round(max((coverage for _, coverage, _ in scored), default=0.0), 6),
        "units": [[at, round(weight, 6), round(coverage, 6)] for weight, coverage, at in best],
        "spoken": sorted(spoken),
    }


def _context(terms: Sequence[tuple[Mapping[str, Any], float]], passage: Mapping[str, Any]) -> list[float]:
    """Each term's credit for what stands above the passage: headings, title, path."""
    headings = passage["heading"].split(" > ")
    around = [
        (Text(headings[-1]), _HEADING),
        (Text(" ".join([passage["title"], *headings[:-1]])), _TITLE),
        (Text(passage["path"]), _PATH),
    ]
    qualified = Text(_qualified(passage))
    context = [max(text.credit(term) * share for text, share in around) for term, _ in terms]
    for column, (term, _) in enumerate(terms):
        # `functools.lru_cache` is the section `lru_cache` of functools.py
        if "." in term["text"] and qualified.ends_with(term["forms"][0]["stems"]):
            context[column] = _QUALIFIED
    return context


def _headers(units: Sequence[Unit]) -> list[int]:
    """For each row of a table the position of its header; its own for header and rule; -1 elsewhere.

    The header of a sentence is the one in bold that its paragraph begins with.
    """
    result = [-1] * len(units)
    for at, unit in enumerate(units):
        if unit.kind == "prose" and at and units[at - 1].group == unit.group:
            # "**Who may.** Everyone." is a paragraph with a heading of its own
            result[at] = result[at - 1] if result[at - 1] >= 0 else at - 1 if is_lead(units[at - 1]) else -1
        if unit.kind != "table":
            continue
        first = not at or units[at - 1].group != unit.group
        if not any(c.isalnum() for c in unit.text):
            result[at] = at
            if not first and result[at - 1] < 0:
                result[at - 1] = at - 1
        elif not first:
            result[at] = result[at - 1] if result[at - 1] != at - 1 else max(at - 2, 0)
    return result


def _qualified(passage: Mapping[str, Any]) -> str:
    path = re.sub(r"\.\w+$", "", passage["path"]).removesuffix("__init__")
    return f"{path} {passage['heading']}"


def _credit(
    own: list[list[float]], at: int, column: int, context: float, units: list[Unit], headers: list[int]
) -> float:
    """A term's credit for unit `at`: its own, its headings', or that of units near it."""
    best = max(own[at][column], context)
    if headers[at] >= 0:
        best = max(best, own[headers[at]][column] * _HEADING)
    if best >= _NEXT:
        return best
    for other, credits in enumerate(own):
        if credits[column]:
            same_group = units[other].group == units[at].group
            if same_group and units[at].kind == "table":
                continue  # other rows speak of other things
            close = abs(other - at) == 1 or same_group
            best = max(best, credits[column] * (_NEXT if close else _NEAR))
    return best


def _distinct(judged: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without passages that say nearly the same as a better one."""
    kept: list[dict[str, Any]] = []
    sets: list[frozenset[str]] = []
    for item in judged[: KEPT * 4]:
        words = frozenset(stems(item["text"]))
        if not any(same(words, other) for other in sets):
            kept.append(item)
            sets.append(words)
    return kept


def same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two sets of stems are those of nearly the same text."""
    if not one or not other:
        return False
    return len(one & other) / min(len(one), len(other)) > SAME_TEXT and min(len(one), len(other)) > 0.6 * max(
        len(one), len(other)
    )
