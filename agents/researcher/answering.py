"""From weighed passages to what is said: an answer in quotes, what comes close, or that nothing is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agents.researcher.quoting import quote_of, quoted_units
from agents.researcher.weighing import FIRST

NOTHING: Final = "The documents do not say."
CLOSE: Final = "The documents come close, and may not answer it. The nearest passages:"
TOO_LITTLE: Final = (
    "There is too little to look for in the question. Ask with words that the answer may have."
)
_NEAR: Final = 3
"""So many lines lie between a sentence and what it announces, at most, if it stands directly above."""


def answer_from(
    plan: Mapping[str, Any], weighed: Mapping[str, Any], corpus: Mapping[str, Any]
) -> dict[str, Any]:
    """What the documents say, in their own words.

    Returns `{"answer", "citations", "sources", "outcome", "probability", "found"}`; `outcome` is "answer",
    "close" or "nothing", and `found` says whether it is an answer.
    """
    quotes = _quotes(weighed)
    if weighed["outcome"] == "nothing" or not quotes:
        return nothing_found(plan, weighed, corpus)
    citations = [citation for citation, _ in quotes]
    shown = [_shown(citation) for citation in citations]
    is_answer = weighed["outcome"] == "answer"
    return {
        "answer": "\n\n".join(shown if is_answer else [CLOSE, *shown]),
        "citations": citations,
        "sources": [source_line(citation, passage) for citation, passage in quotes],
        "outcome": weighed["outcome"],
        "probability": weighed["probability"],
        "found": is_answer,
    }


def nothing_found(
    plan: Mapping[str, Any], weighed: Mapping[str, Any], corpus: Mapping[str, Any]
) -> dict[str, Any]:
    """That the documents do not say, and what was looked for."""
    counts = corpus.get("counts", {})
    lines = [NOTHING if plan["words"] else TOO_LITTLE]
    looked = [f"“{word}” ({_how_often(counts[word])})" for word in plan["words"] if word in counts]
    if looked:
        lines.append(f"Looked for {', '.join(looked)}.")
    return {
        "answer": "\n".join(lines),
        "citations": [],
        "sources": [],
        "outcome": "nothing",
        "probability": weighed.get("probability", 0.0),
        "found": False,
    }


def with_unread(outcome: dict[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome, with the pages that could not be read."""
    unread = about.get("unread")
    if not unread:
        return outcome
    notes = "\n".join(f"Not read: {url}: {reason}" for url, reason in unread.items())
    return {**outcome, "answer": f"{outcome['answer']}\n\n{notes}", "unread": dict(unread)}


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


def _quotes(weighed: Mapping[str, Any]) -> list[tuple[dict[str, Any], Mapping[str, Any]]]:
    """Citations with their passages, the strongest first; none says only what one before it says."""
    quotes: list[tuple[dict[str, Any], Mapping[str, Any]]] = []
    for passage in weighed["evidence"]:
        units = quoted_units(passage)
        text = quote_of(units)
        if any(text in other["quote"] for other, _ in quotes):
            continue
        first, last = _lines(passage, units)
        quotes.append((_citation(passage, len(quotes) + 1, first, last, text), passage))
        if len(quotes) == FIRST:
            break
    return quotes


def _lines(passage: Mapping[str, Any], units: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """First and last line of the file that `units` stand on; a term or head above them is left out."""
    if not passage["start_line"]:
        return None, None
    told = [unit for unit in units if unit["kind"] not in ("term", "head")] or units
    # the sentence that announces a list may stand far above
    if len(told) > 1 and told[0]["text"].endswith(":") and told[1]["first"] - told[0]["last"] > _NEAR:
        told = told[1:]
    return min(unit["first"] for unit in told), max(unit["last"] for unit in told)


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


def _shown(citation: Mapping[str, Any]) -> str:
    """A quote as people read it: marked as one, with its number at the end."""
    lines = citation["quote"].split("\n")
    lines[-1] += f" [{citation['n']}]"
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _about(passage: Mapping[str, Any]) -> str:
    parts = [part for part in passage["heading"].split(" > ") if part]
    if parts and parts[0] == passage["title"] and len(parts) > 1:
        parts = parts[1:]
    about = " > ".join(parts[-2:]) or passage["title"]
    return f" ({about})" if about and about != passage["path"] else ""


def _how_often(count: int) -> str:
    return "nowhere" if not count else "in 1 passage" if count == 1 else f"in {count:,} passages"
