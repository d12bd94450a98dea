"""Markdown: heading paths, paragraphs, and code that stays whole.

markdown-it-py says where headings and code lie; the text between them is cut at blank lines, so that every
block has its exact line numbers. Only the block structure is parsed (1 MB takes about 2 s), and a file that
is too long for that is read as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt

from agents.documents.blocks import Block, Document, lines_block
from agents.documents.decoding import decode, split_lines
from agents.documents.inline import plain
from agents.documents.parsers.text import paragraphs

MAX_CHARACTERS = 2_000_000
_MAX_HEADING = 500
_SETTING = re.compile(r"\s|#|-\s|[\]}]|[\"']?[\w.-]+[\"']?\s*:(?:\s|$)")
_LEAD = re.compile(r"\*\*([^*]{3,80}?)(?:[.:?!]\*\*|\*\*[.:?!])(?=\s|$)")
_STRUCTURE = MarkdownIt("commonmark").disable("inline")


@dataclass(frozen=True, slots=True)
class _Mark:
    """Lines `first` to `last` (from 1, inclusive) are a heading of `level`, or code where that is 0."""

    first: int
    last: int
    level: int = 0
    text: str = ""


def parse(data: bytes, path: str) -> Document:
    """Blocks with their heading paths; the title is the first heading."""
    text = decode(data)
    lines = split_lines(text)
    if len(text) > MAX_CHARACTERS:
        return Document(
            path, paragraphs(lines, 1, len(lines), ()), note="too long for Markdown, read as text"
        )
    reader = _Reader(lines)
    reader.read()
    return Document(reader.title or path, reader.blocks, syntax="markdown")


def _marks(lines: list[str], before: int) -> Iterator[_Mark]:
    """Headings and code behind the first `before` lines."""
    tokens = _STRUCTURE.parse("\n".join(lines[before:]))
    for number, token in enumerate(tokens):
        if token.map is None:
            continue
        first, last = before + token.map[0] + 1, before + token.map[1]
        if token.type in ("fence", "code_block"):
            yield _Mark(first, last)
        elif token.type == "heading_open" and token.level == 0:  # not one in a quote or a list
            yield _Mark(first, last, int(token.tag[1]), _heading(tokens[number + 1].content))


def _heading(text: str) -> str:
    """A heading without its Markdown."""
    return plain(text[:_MAX_HEADING], "markdown").replace("`", "")


class _Reader:
    """Walks the lines once; `start` is the first line of the open block, 0 if none is open."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.blocks: list[Block] = []
        self.title = ""
        self.path: list[tuple[int, str]] = []
        self.start = 0

    def read(self) -> None:
        number = self._front_matter()
        marks = {mark.first: mark for mark in _marks(self.lines, number - 1)}
        while number <= len(self.lines):
            mark = marks.get(number)
            if mark is not None:
                self._close(number - 1)
                self._take(mark)
                number = mark.last
            elif not self.lines[number - 1].strip():
                self._close(number - 1)
            elif not self.start:
                self.start = number
            number += 1
        self._close(len(self.lines))

    def _front_matter(self) -> int:
        """The first line after a YAML header (`---` … `---`), which is read for a title only.

        Text between two rules is no such header.
        """
        if not self.lines or self.lines[0].strip() != "---":
            return 1
        for number in range(2, min(len(self.lines), 60) + 1):
            line = self.lines[number - 1]
            if line.startswith("title:"):
                self.title = line[6:].strip().strip("\"'")
            if line.strip() in ("---", "..."):
                return number + 1
            if line.strip() and not _SETTING.match(line):
                return 1
        return 1

    def _take(self, mark: _Mark) -> None:
        if not mark.level:
            self.blocks.append(lines_block(self.lines, mark.first, mark.last, self._headings(), "code"))
            return
        self.title = self.title or mark.text
        while self.path and self.path[-1][0] >= mark.level:
            self.path.pop()
        self.path.append((mark.level, mark.text))

    def _close(self, last: int) -> None:
        if self.start:
            # "**What a step is.** A step ..." is a paragraph with a heading of its own
            lead = _LEAD.match(self.lines[self.start - 1])
            headings = (*self._headings(), _heading(lead.group(1))) if lead else self._headings()
            self.blocks.append(lines_block(self.lines, self.start, last, headings))
        self.start = 0

    def _headings(self) -> tuple[str, ...]:
        return tuple(text for _, text in self.path)
