"""Which words of a passage are quoted: the unit that answers best, and what belongs to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

QUOTE_WORDS: Final = 80
CODE_LINES: Final = 14
CLOSENESS: Final = 1.0
COVERAGE: Final = 1.0
CODE_LOSES: Final = 0.15

_MARKED: Final = re.compile(r"(?:[-*+•]|\(?(?:\d{1,3}|[a-z])[.)])\s")

Unit = Mapping[str, Any]


def best_unit(passage: Mapping[str, Any]) -> int:
    """The place of the unit that answers best."""
    units = passage["units"]
    return max(range(len(units)), key=lambda at: (_worth(units[at]), -at))


def quoted_units(passage: Mapping[str, Any]) -> list[Unit]:
    """The units to quote, in the document's order: at most `QUOTE_WORDS` words, unless one alone has more.

    The best unit comes with what it needs to be understood: its term, its table's head, the sentence that
    announces its list. Then what follows it is added, and then what stands before it.
    """
    units = passage["units"]
    at = best_unit(passage)
    chosen = {at}
    words = _words(units[at])
    for needed in _needs(units, at):
        if words + _words(units[needed]) <= QUOTE_WORDS:
            chosen.add(needed)
            words += _words(units[needed])
    for step in (1, -1):
        other = at + step
        while 0 <= other < len(units):
            if other not in chosen:
                if words + _words(units[other]) > QUOTE_WORDS or not _goes_with(units, at, other):
                    break
                words += _words(units[other])
                chosen.add(other)
            other += step
    return [units[one] for one in sorted(chosen)]


def quote_of(units: Sequence[Unit]) -> str:
    """Units as people read them: paragraphs and items on lines of their own, code and rows as they are."""
    parts: list[str] = []
    before: Unit | None = None
    for unit in units:
        text = unit["text"]
        if unit["kind"] == "code":
            lines = text.split("\n")
            text = "\n".join([*lines[:CODE_LINES], "…"] if len(lines) > CODE_LINES else lines)
        begins = before is None or before["group"] != unit["group"]
        if unit["kind"] == "item" and begins and not _MARKED.match(text):
            text = f"- {text}"
        flows = before is not None and before["group"] == unit["group"] and unit["kind"] in ("prose", "item")
        if flows and before is not None and before["kind"] in ("prose", "item"):
            parts[-1] += f" {text}"
        else:
            parts.append(text)
        before = unit
    return "\n".join(parts)


def _worth(unit: Unit) -> float:
    if unit["kind"] in ("head", "term"):
        return -1.0  # they explain others
    worth = CLOSENESS * unit["closeness"] + COVERAGE * unit["coverage"]
    return float(worth - CODE_LOSES if unit["kind"] == "code" else worth)


def _needs(units: Sequence[Unit], at: int) -> list[int]:
    """The term or head of a unit's group, or the sentence that announces its list."""
    group = units[at]["group"]
    heads = [
        one for one in range(at) if units[one]["group"] == group and units[one]["kind"] in ("term", "head")
    ]
    if heads or units[at]["kind"] != "item":
        return heads[:1]
    others = (one for one in range(at - 1, -1, -1) if units[one]["kind"] != "item")
    return [one for one in [*others][:1] if units[one]["text"].endswith(":")]


def _goes_with(units: Sequence[Unit], at: int, other: int) -> bool:
    """Whether the best unit `at` can be quoted with another: code only if it is code, or announced."""
    if units[other]["kind"] != "code" or units[at]["kind"] == "code":
        return True
    return other > at and bool(units[other - 1]["text"].endswith(":"))


def _words(unit: Unit) -> int:
    return len(unit["text"].split())
