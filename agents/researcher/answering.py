"""From weighed passages to an answer: quotes, each with its citation, or that the documents do not say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agents.documents.words import stems
from agents.researcher.segments import Unit, flat, header_of, units_of
from agents.researcher.weighing import ANSWER_COVERAGE, same, times_seen

NOTHING = "The documents do not say."
MOST_QUOTES = 4
QUOTE_WORDS = 55
CODE_LINES = 14
LIST_ITEMS = 8
NEAR_THE_BEST = 0.8
MOST_CODE_QUOTES = 2
NEAR_FOR_CODE = 0.92
SHORT_WORDS = 14

_LEANS_BACK = re.compile(
    r"(?:it|its|this|that|these|those|they|them|their|he|she|his|her|such|so|but|and|or|then|otherwise|however|"
    r"therefore|thus|hence|also|instead|both|neither|there|here|which|yet|still|in this case|for this)\b",
    re.I,
)


def answer_from(
    plan: Mapping[str, Any], weighed: Mapping[str, Any], corpus: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer in the documents' own words: `{"answer", "citations", "sources", "found"}`."""
    quotes = _quotes(plan, weighed)
    if weighed["coverage"] < ANSWER_COVERAGE or not quotes:
        return nothing_found(plan, weighed, corpus)
    citations = [citation for citation, _ in quotes]
    answer = "\n\n".join(_shown(citation, kind) for citation, kind in quotes)
    return {"answer": answer, "citations": citations, "sources": _sources(quotes), "found": True}


def nothing_found(
    plan: Mapping[str, Any], weighed: Mapping[str, Any], corpus: Mapping[str, Any]
) -> dict[str, Any]:
    """That the documents do not say, what was looked for, and the nearest place."""
    counts = corpus.get("counts", {})
    if not plan["terms"]:
        answer = "There is too little to look for in the question. Ask with words that the answer may have."
        return {"answer": answer, "citations": [], "sources": [], "found": False}
    looked = [f"“{term['text']}” ({_how_often(times_seen(term, counts))})" for term in plan["terms"]]
    lines = [NOTHING]
    if looked:
        lines.append(f"Looked for {', '.join(looked)}.")
    if weighed["evidence"] and weighed["coverage"] >= ANSWER_COVERAGE / 2:
        nearest = weighed["evidence"][0]
        lines.append(f"The nearest place, which does not answer it: {place_of(nearest)}{_about(nearest)}.")
    return {"answer": "\n".join(lines), "citations": [], "sources": [], "found": False}


def place_of(citation: Mapping[str, Any]) -> str:
    """`path:line`, `path:first-last` or `path p. N`."""
    if citation.get("page"):
        return f"{citation['path']} p. {citation['page']}"
    start, end = citation.get("start_line"), citation.get("end_line")
    if not start:
        return str(citation["path"])
    return f"{citation['path']}:{start}" if start == end or not end else f"{citation['path']}:{start}-{end}"


def passage_citation(passage: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A citation of a whole passage."""
    return _citation(passage, number, passage["start_line"], passage["end_line"], passage["text"])


def source_line(citation: Mapping[str, Any], passage: Mapping[str, Any]) -> str:
    """One line of the list of sources."""
    return f"[{citation['n']}] {place_of(citation)}{_about(passage)}"


def _quotes(
    plan: Mapping[str, Any], weighed: Mapping[str, Any]
) -> list[tuple[dict[str, Any], tuple[str, Mapping[str, Any]]]]:
    """Citations with the kind of their text and their passage, best first."""
    wanted = sorted(
        (
            (-weight, order, at, coverage)
            for order, passage in enumerate(weighed["evidence"])
            for at, weight, coverage in passage["units"]
        ),
    )
    if not wanted:
        return []
    best = -wanted[0][0]
    quotes: list[tuple[dict[str, Any], tuple[str, Mapping[str, Any]]]] = []
    taken: list[frozenset[str]] = []
    used: dict[int, set[int]] = {}
    codes = 0
    for negative, order, at, coverage in wanted:
        if len(quotes) >= MOST_QUOTES or -negative < best * NEAR_THE_BEST:
            break
        if coverage < ANSWER_COVERAGE * 0.85:
            continue
        passage = weighed["evidence"][order]
        units = units_of(passage["text"], passage["path"])
        if units[at].kind == "code":
            codes += 1
            near = -negative >= best * NEAR_FOR_CODE and plan["kind"] == "how"
            if codes > MOST_CODE_QUOTES or (quotes and not near):
                continue
        chosen = _around(units, at)
        words = frozenset(stems(" ".join(unit.text for unit in chosen)))
        indices = {units.index(unit) for unit in chosen}
        if indices & used.get(order, set()) or any(same(words, other) or words <= other for other in taken):
            continue
        used.setdefault(order, set()).update(indices)
        taken.append(words)
        text, kind = _quoted(chosen)
        first, last = _lines(passage, chosen)
        quotes.append((_citation(passage, len(quotes) + 1, first, last, text), (kind, passage)))
    return quotes


def _around(units: Sequence[Unit], at: int) -> list[Unit]:
    """Unit `at` with what it needs to be understood."""
    unit = units[at]
    if unit.kind == "table":
        return _with_header(units, at)
    if unit.kind == "prose" or _has_siblings(units, at):
        return _around_sentence(units, at)
    announced = units[at - 1].kind == "prose" and units[at - 1].text.endswith(":") if at else False
    first = at
    if unit.kind == "item" and len(unit.text.split()) < 25:
        first = _intro(units, at)
    elif unit.kind == "code" and announced:
        first = at - 1
    return [unit] if first == at else [units[first], unit]


def _has_siblings(units: Sequence[Unit], at: int) -> bool:
    """Whether it is a sentence of a longer list item."""
    beside = [*units[max(at - 1, 0) : at], *units[at + 1 : at + 2]]
    return units[at].kind == "item" and any(other.group == units[at].group for other in beside)


def _with_header(units: Sequence[Unit], at: int) -> list[Unit]:
    """A row with the header of its table: the row above the rule, if there is one, and the rule."""
    header = header_of(units, at)
    return header if units[at] in header else [*header, units[at]]


def _intro(units: Sequence[Unit], at: int) -> int:
    """The sentence that announces the list of item `at`, or the item itself."""
    first = at
    while first > 0 and units[first].kind == "item":
        first -= 1
    return first if units[first].kind == "prose" and units[first].text.endswith(":") else at


def _around_sentence(units: Sequence[Unit], at: int) -> list[Unit]:
    unit = units[at]
    first = last = at
    size = len(unit.text.split())
    # 1. what it leans on, 2. what it announces, 3. the rest of a short paragraph
    while (
        first > 0
        and units[first - 1].group == unit.group
        and _LEANS_BACK.match(units[first].text)
        and size < QUOTE_WORDS
    ):
        first -= 1
        size += len(units[first].text.split())
    if unit.text.rstrip().endswith(":"):
        return [*units[first : at + 1], *_announced(units, at)]
    while last + 1 < len(units) and units[last + 1].group == unit.group:
        size += len(units[last + 1].text.split())
        if size > QUOTE_WORDS:
            break
        last += 1
    if units[last].text.rstrip().endswith(":") and last > at:
        return [*units[first : last + 1], *_announced(units, last)]
    while first > 0 and units[first - 1].group == unit.group:
        size += len(units[first - 1].text.split())
        if size > QUOTE_WORDS:
            break
        first -= 1
    chosen = list(units[first : last + 1])
    if size < SHORT_WORDS:
        # a summary line: the paragraph after it says more
        chosen += _paragraph_after(units, last, QUOTE_WORDS - size)
    return chosen


def _paragraph_after(units: Sequence[Unit], last: int, words: int) -> list[Unit]:
    following: list[Unit] = []
    for unit in units[last + 1 :]:
        words -= len(unit.text.split())
        if unit.kind != "prose" or unit.group != units[last + 1].group or words < 0:
            break
        following.append(unit)
    return following


def _announced(units: Sequence[Unit], at: int) -> list[Unit]:
    """The list, table or code that follows a sentence with a colon at its end."""
    following: list[Unit] = []
    for unit in units[at + 1 : at + 1 + LIST_ITEMS]:
        if unit.kind == "prose" and not (following == [] and unit.group != units[at].group):
            break
        if following and (
            unit.kind != following[0].kind or (unit.kind == "table" and unit.group != following[0].group)
        ):
            break
        following.append(unit)
        if unit.kind in ("code", "prose"):
            break
    return following


def _quoted(units: Sequence[Unit]) -> tuple[str, str]:
    """The text of a quote, and `raw` where its lines matter, else `prose`."""
    raw = False
    parts: list[str] = []
    before: Unit | None = None
    for unit in units:
        if unit.kind in ("prose", "item") and before is not None and before.group == unit.group:
            parts[-1] += " " + unit.text
            continue
        raw = raw or unit.kind in ("code", "table") or before is not None
        before = unit
        lines = unit.text.split("\n")
        if len(lines) > CODE_LINES:
            lines = [*lines[:CODE_LINES], "…"]
        parts += lines
    return "\n".join(parts), "raw" if raw else "prose"


def _lines(passage: Mapping[str, Any], units: Sequence[Unit]) -> tuple[int | None, int | None]:
    """First and last line of the file that `units` stand on, as exactly as the passage tells.

    A row of a table is cited by its own line, though it is quoted with the table's header.
    """
    start, end = passage["start_line"], passage["end_line"]
    if start is None or end is None:
        return None, None
    if passage["text"].count("\n") != end - start:
        return start, end
    first = units[-1].first if units[0].kind == "table" else units[0].first
    return start + first, start + min(units[-1].last, units[-1].first + CODE_LINES)


def _citation(
    passage: Mapping[str, Any], number: int, first: int | None, last: int | None, quote: str
) -> dict[str, Any]:
    return {
        "n": number,
        "path": passage["path"],
        "start_line": first,
        "end_line": last,
        "page": passage["page"],
        "quote": quote,
    }


def _shown(citation: Mapping[str, Any], detail: tuple[str, Mapping[str, Any]]) -> str:
    """A quote as people read it: marked as one, with its number at the end."""
    kind, _ = detail
    quote = citation["quote"] if kind == "raw" else flat(citation["quote"])
    lines = quote.split("\n")
    lines[-1] += f" [{citation['n']}]"
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _sources(quotes: Sequence[tuple[dict[str, Any], tuple[str, Mapping[str, Any]]]]) -> list[str]:
    return [source_line(citation, passage) for citation, (_, passage) in quotes]


def _about(passage: Mapping[str, Any]) -> str:
    parts = [part for part in passage["heading"].split(" > ") if part]
    if parts and parts[0] == passage["title"] and len(parts) > 1:
        parts = parts[1:]
    about = " > ".join(parts[-2:]) or passage["title"]
    return f" ({about})" if about and about != passage["path"] else ""


def _how_often(count: int) -> str:
    return "nowhere" if not count else "in 1 passage" if count == 1 else f"in {count:,} passages"
