"""Documents cut into passages: 80 to 160 words that belong together, each with its place and headings.

Blocks under one heading are joined until a passage is long enough. What a reader needs to understand a piece
stands in the same passage: the term with its explanation, the head with a table's rows, the sentence that
announces a list with its items; where such a block is too long for one passage, it begins each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agents.documents.blocks import Block, Document
from agents.documents.units import Unit, units_of

ENOUGH_WORDS: Final = 80
MOST_WORDS: Final = 160
MOST_CODE_WORDS: Final = 320
MOST_CHARACTERS: Final = 4_000
_MOST_LEAD: Final = 40
_LISTED: Final = frozenset(["item", "term", "head", "row"])
_MOST_LEAD_CHARACTERS: Final = 400
_MOST_PIECE: Final = MOST_CHARACTERS - 3 * (_MOST_LEAD_CHARACTERS + 1) - 1

_CAMEL: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_IDENTIFIER: Final = re.compile(r"\b[A-Za-z]*[a-z][A-Z]\w*\b|\b[A-Z]{2,}[a-z]\w*\b")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document. `heading` is the path of headings above it, joined by ` > `."""

    heading: str
    units: Sequence[Unit]
    page: int | None = None
    alone: bool = False

    @property
    def text(self) -> str:
        """The units, each paragraph, item, row and piece of code on lines of its own."""
        parts: list[str] = []
        before: Unit | None = None
        for unit in self.units:
            flows = before is not None and unit.group == before.group and unit.kind in ("prose", "item")
            if flows and before is not None and before.kind != "term":
                parts[-1] += f" {unit.text}"
            else:
                parts.append(unit.text)
            before = unit
        return "\n".join(parts)

    @property
    def start_line(self) -> int | None:
        """The first line in the file; None in a PDF or DOCX."""
        return min(unit.first for unit in self.units) or None

    @property
    def end_line(self) -> int | None:
        """The last line in the file; None in a PDF or DOCX."""
        return max(unit.last for unit in self.units) or None

    @property
    def code(self) -> bool:
        """Whether most of it is code."""
        return 2 * _size(unit for unit in self.units if unit.kind == "code") > _size(self.units)


def passages_of(document: Document) -> list[Passage]:
    """Cut `document` into passages, in its order."""
    result: list[Passage] = []
    group = 0
    words = characters = 0
    for block in document.blocks:
        units = list(_bearable(units_of(block, document.syntax, group)))
        if not units:
            continue
        group = units[-1].group + 1
        last = result[-1] if result else None
        heading = " > ".join(block.headings)
        more = _size(units), _length(units)
        together = words + more[0]
        if (
            last is not None
            and _are_of_one_part(last, block, heading)
            and _fit(last, words, together, characters + more[1])
        ):
            units = _continued(last.units, units)
            result[-1] = Passage(heading, [*last.units, *units], block.page, block.alone)
            words, characters = words + _size(units), characters + _length(units)
            continue
        announced = _announcement(last, units[0], heading)
        for piece in _pieces(announced, units, MOST_CODE_WORDS if block.alone else MOST_WORDS):
            result.append(Passage(heading, piece, block.page, block.alone))
        words, characters = _size(result[-1].units), _length(result[-1].units)
    return result


def identifier_words(text: str) -> str:
    """The words inside of camel-case names in `text`, so that "event envelope" finds `EventEnvelope`."""
    names = dict.fromkeys(_IDENTIFIER.findall(text))
    return " ".join(" ".join(_CAMEL.findall(name)) for name in names)


def _are_of_one_part(last: Passage, block: Block, heading: str) -> bool:
    return not last.alone and not block.alone and last.heading == heading and last.page == block.page


def _fit(last: Passage, words: int, together: int, characters: int) -> bool:
    """Whether a block goes on with the passage before it, which has so many words."""
    if characters > MOST_CHARACTERS:
        return False
    if last.units[-1].text.endswith(":") and together <= MOST_CODE_WORDS:
        return True
    return words < ENOUGH_WORDS and together <= MOST_WORDS


def _continued(before: Sequence[Unit], units: list[Unit]) -> list[Unit]:
    """A further paragraph under the same term, without the term once more."""
    terms = [unit for unit in before if unit.kind == "term"]
    if not terms or units[0].kind != "term" or terms[-1].text != units[0].text:
        return units
    return [replace(unit, group=terms[-1].group) for unit in units[1:]]


def _announcement(last: Passage | None, first: Unit, heading: str) -> list[Unit]:
    """The sentence that announces the list that an item is part of, if it stands in the passage before."""
    if last is None or first.kind not in _LISTED or last.heading != heading or last.alone:
        return []
    explained = {unit.group for unit in last.units if unit.kind == "term"}
    for unit in reversed(last.units):
        if unit.group not in explained and _announces(unit):
            return [unit]
        if unit.group not in explained and unit.kind not in _LISTED:
            break
    return []


def _announces(unit: Unit) -> bool:
    return unit.kind == "prose" and unit.text.endswith(":") and _is_short(unit)


def _is_short(unit: Unit) -> bool:
    return _size([unit]) <= _MOST_LEAD and len(unit.text) <= _MOST_LEAD_CHARACTERS


def _pieces(announced: list[Unit], units: Sequence[Unit], most: int) -> Iterator[list[Unit]]:
    """Units in pieces of bearable size, each with what it needs before it."""
    piece: list[Unit] = list(announced)
    lead = list(announced)
    fresh = False
    for unit in units:
        allowed = MOST_CODE_WORDS if unit.kind == "code" else most
        too_long = (
            _size(piece) + _size([unit]) > allowed or _length(piece) + len(unit.text) >= MOST_CHARACTERS
        )
        if unit.kind == "prose":
            lead = [one for one in lead if one.kind != "prose"]
        if fresh and too_long:
            yield piece
            piece = [one for one in lead if one.kind == "prose" or one.group == unit.group]
        piece.append(unit)
        fresh = True
        if _announces(unit):
            lead = [*(one for one in lead if one.group == unit.group), unit]
        elif unit.kind in ("term", "head") and _is_short(unit):
            lead = [*(one for one in lead if one.kind == "prose" or one.group == unit.group), unit]
    if fresh:
        yield piece


def _bearable(units: Iterable[Unit]) -> Iterator[Unit]:
    """Units, those that are too long themselves cut between lines or words."""
    for unit in units:
        most = MOST_CODE_WORDS if unit.kind == "code" else MOST_WORDS
        if _size([unit]) <= most and len(unit.text) <= _MOST_PIECE:
            yield unit
        elif unit.kind == "code":
            yield from _cut_code(unit)
        else:
            yield from _cut_words(unit, MOST_WORDS)


def _cut_code(unit: Unit) -> Iterator[Unit]:
    """Cut code between lines."""
    lines = unit.text.split("\n")
    exact = unit.last - unit.first + 1 == len(lines)
    at = 0
    while at < len(lines):
        stop, words, characters = at, 0, 0
        while stop < len(lines) and (
            stop == at
            or (
                words < MOST_WORDS
                and words + len(lines[stop].split()) <= MOST_CODE_WORDS
                and characters + len(lines[stop]) < _MOST_PIECE
            )
        ):
            words += len(lines[stop].split())
            characters += len(lines[stop]) + 1
            stop += 1
        first, last = (unit.first + at, unit.first + stop - 1) if exact else (unit.first, unit.last)
        piece = replace(unit, text="\n".join(lines[at:stop]), first=first, last=last)
        yield from _cut_words(piece, MOST_CODE_WORDS)
        at = stop


def _cut_words(unit: Unit, most: int) -> Iterator[Unit]:
    """Cut a text between words, and an endless word anywhere."""
    if _size([unit]) <= most and len(unit.text) <= _MOST_PIECE:
        yield unit
        return
    words = unit.text.split()
    for at in range(0, len(words), most):
        part = " ".join(words[at : at + most])
        for start in range(0, len(part), _MOST_PIECE):
            yield replace(unit, text=part[start : start + _MOST_PIECE])


def _size(units: Iterable[Unit]) -> int:
    return sum(len(unit.text.split()) for unit in units)


def _length(units: Iterable[Unit]) -> int:
    return sum(len(unit.text) + 1 for unit in units)
