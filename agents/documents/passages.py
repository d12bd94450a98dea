"""Documents cut into passages: 80 to 160 words that belong together, each with its place and headings.

Blocks under one heading are joined until a passage is long enough. Code, lists and tables stay whole as
long as that is bearable. The lines of a passage are the lines of the file one to one wherever the format
allows, blank ones included, so that a quote can name its exact line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from agents.documents.blocks import Block, Document

ENOUGH_WORDS = 80
MOST_WORDS = 160
MOST_CODE_WORDS = 320
MOST_CHARACTERS = 4_000
_MOST_GAP = 3
_MOST_PIECE = MOST_CHARACTERS - 10

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(\[]?[A-Z0-9À-Þ])")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_IDENTIFIER = re.compile(r"\b[A-Za-z]*[a-z][A-Z]\w*\b|\b[A-Z]{2,}[a-z]\w*\b")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document. `heading` is the path of headings above it, joined by ` > `."""

    heading: str
    text: str
    start_line: int | None
    end_line: int | None
    page: int | None
    code: bool = False
    """Whether most of it is code."""


def passages_of(document: Document) -> list[Passage]:
    """Cut `document` into passages, in its order."""
    result: list[Passage] = []
    open_blocks: list[Block] = []
    words = 0
    for block in _cut_to_size(document.blocks):
        size = _words(block.lines)
        fits = _characters([*open_blocks, block]) <= MOST_CHARACTERS
        if open_blocks and not (fits and _belongs(open_blocks[-1], block, words, size)):
            result.append(_joined(open_blocks))
            open_blocks, words = [], 0
        open_blocks.append(block)
        words += size
    if open_blocks:
        result.append(_joined(open_blocks))
    return [passage for passage in result if any(c.isalnum() for c in passage.text)]


def identifier_words(text: str) -> str:
    """The words inside of camel-case names in `text`, so that "event envelope" finds `EventEnvelope`."""
    names = dict.fromkeys(_IDENTIFIER.findall(text))
    return " ".join(" ".join(_CAMEL.findall(name)) for name in names)


def _belongs(last: Block, block: Block, words: int, size: int) -> bool:
    """Whether `block` goes on with the passage that ends with `last` and has `words` so far."""
    if last.headings != block.headings or last.page != block.page or last.alone or block.alone:
        return False
    if block.page is None and not 0 <= block.start - last.end <= _MOST_GAP + 1:
        return False
    introduces = last.lines[-1].rstrip().endswith(":") if last.lines else False
    if introduces and words + size <= MOST_CODE_WORDS:
        return True
    return words < ENOUGH_WORDS and words + size <= MOST_WORDS


def _joined(blocks: list[Block]) -> Passage:
    lines = list(blocks[0].lines)
    for before, block in pairwise(blocks):
        gap = block.start - before.end - 1 if block.page is None else 1
        lines += [""] * max(gap, 0)
        lines += block.lines
    first = blocks[0]
    heading = " > ".join(first.headings)
    text = "\n".join(lines)
    code = 2 * sum(_words(block.lines) for block in blocks if block.code) > _words(lines)
    if first.page is not None:
        return Passage(heading, text, None, None, first.page, code)
    return Passage(heading, text, first.start, blocks[-1].end, None, code)


def _cut_to_size(blocks: list[Block]) -> Iterator[Block]:
    for block in blocks:
        most = MOST_CODE_WORDS if block.code or block.alone else MOST_WORDS
        if _words(block.lines) <= most and _characters([block]) <= MOST_CHARACTERS:
            yield block
        elif len(block.lines) == 1 or (
            block.page is None and block.end - block.start + 1 != len(block.lines)
        ):
            yield from _cut_text(block)
        else:
            yield from _cut_lines(block, most)


def _cut_lines(block: Block, most: int) -> Iterator[Block]:
    """Cut a long block between lines, at the ends of sentences, items or blank lines if there are any."""
    at = 0
    while at < len(block.lines):
        stop = _stop_line(block.lines, at, most)
        lines = block.lines[at:stop]
        start = block.start + at if block.page is None else block.start
        end = start + len(lines) - 1 if block.page is None else block.end
        piece = Block(lines, start, end, block.headings, block.page, block.code, block.alone)
        if _characters([piece]) > MOST_CHARACTERS or _words(lines) > most:
            yield from _cut_text(piece)
        elif any(line.strip() for line in lines):
            yield piece
        at = stop


def _stop_line(lines: list[str], at: int, most: int) -> int:
    """Where a piece that begins at line `at` ends (exclusive): the last good place before it is too long."""
    words = characters = 0
    good = 0
    for index in range(at, len(lines)):
        words += len(lines[index].split())
        characters += len(lines[index]) + 1
        if index > at and (words > most or characters > MOST_CHARACTERS):
            return good or index
        ends = not lines[index].strip() or lines[index].rstrip().endswith((".", "!", "?", "|", ";"))
        if ends and words >= min(ENOUGH_WORDS, most // 2):
            good = index + 1
    return len(lines)


def _cut_text(block: Block) -> Iterator[Block]:
    """Cut a block whose lines cannot be told apart (one endless line) at the ends of sentences."""
    text = " ".join(line.strip() for line in block.lines)
    piece: list[str] = []
    words = characters = 0
    for sentence in _sentences(text):
        size = len(sentence.split())
        if piece and (words + size > MOST_WORDS or characters + len(sentence) >= MOST_CHARACTERS):
            yield Block([" ".join(piece)], block.start, block.end, block.headings, block.page, block.code)
            piece, words, characters = [], 0, 0
        piece.append(sentence)
        words += size
        characters += len(sentence) + 1
    if piece:
        yield Block([" ".join(piece)], block.start, block.end, block.headings, block.page, block.code)


def _sentences(text: str) -> Iterator[str]:
    """Sentences, those that are too long themselves cut between words."""
    for sentence in _SENTENCE_END.split(text):
        words = sentence.split()
        for at in range(0, len(words), MOST_WORDS):
            part = " ".join(words[at : at + MOST_WORDS])
            for start in range(0, len(part), _MOST_PIECE):
                yield part[start : start + _MOST_PIECE]


def _characters(blocks: list[Block]) -> int:
    return sum(len(line) + 1 for block in blocks for line in block.lines) + _MOST_GAP * len(blocks)


def _words(lines: list[str]) -> int:
    return sum(len(line.split()) for line in lines)
