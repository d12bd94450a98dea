"""Markdown: heading paths, paragraphs, and fenced code that stays whole.

Only the block structure matters here, so it is read line by line: that keeps the exact line numbers and
takes linear time on any input.
"""

from __future__ import annotations

import re

from agents.documents.blocks import Block, Document, lines_block
from agents.documents.decoding import decode, split_lines

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_LIST_ITEM = re.compile(r"[ \t]*([-*+]|\d{1,9}[.)])[ \t]")
_LEAD = re.compile(r"\*\*([^*]{3,80}?)(?:[.:?!]\*\*|\*\*[.:?!])(?=\s|$)")
_MARKUP = re.compile(
    r"!\[[^\]]{0,200}\]\([^)]{0,500}\)|\[([^\]]{0,200})\]\([^)]{0,500}\)|[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}"
)


def parse(data: bytes, path: str) -> Document:
    """Blocks with their heading paths; the title is the first heading."""
    reader = _Reader(split_lines(decode(data)))
    reader.read()
    return Document(reader.title or path, reader.blocks)


def plain(text: str) -> str:
    """A heading without its Markdown."""
    return _MARKUP.sub(lambda match: match.group(1) or "", text).strip().rstrip("#").rstrip()


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
        while number <= len(self.lines):
            line = self.lines[number - 1]
            if fence := _FENCE.match(line):
                number = self._code(number, fence.group(1))
            elif heading := _HEADING.match(line):
                self._close(number - 1)
                self._enter(len(heading.group(1)), heading.group(2))
            elif not line.strip():
                self._close(number - 1)
            elif self._is_underline(number):
                text = " ".join(part.strip() for part in self.lines[self.start - 1 : number - 1])
                self.start = 0
                self._enter(1 if "=" in line else 2, text)
            elif not self.start:
                self.start = number
            number += 1
        self._close(len(self.lines))

    def _is_underline(self, number: int) -> bool:
        """A setext heading: one or two short lines, underlined."""
        if not self.start or number - self.start > 2 or not _UNDERLINE.match(self.lines[number - 1]):
            return False
        above = self.lines[number - 2]
        return not _LIST_ITEM.match(above) and "|" not in above and len(above) < 120

    def _front_matter(self) -> int:
        """The first line after a YAML header (`---` … `---`), which is read for a title only."""
        if not self.lines or self.lines[0].strip() != "---":
            return 1
        for number in range(2, min(len(self.lines), 60) + 1):
            line = self.lines[number - 1]
            if line.startswith("title:"):
                self.title = line[6:].strip().strip("\"'")
            if line.strip() in ("---", "..."):
                return number + 1
        return 1

    def _code(self, number: int, fence: str) -> int:
        """Take the fenced block that opens at `number`; return its last line."""
        self._close(number - 1)
        end = len(self.lines)
        for later in range(number + 1, len(self.lines) + 1):
            line = self.lines[later - 1].strip()
            if line.startswith(fence) and not line.strip(fence[0]):
                end = later
                break
        self.blocks.append(lines_block(self.lines, number, end, self._headings(), code=True))
        return end

    def _close(self, last: int) -> None:
        if self.start:
            # "**What a step is.** A step ..." is a paragraph with a heading of its own
            lead = _LEAD.match(self.lines[self.start - 1])
            headings = (*self._headings(), plain(lead.group(1))) if lead else self._headings()
            self.blocks.append(lines_block(self.lines, self.start, last, headings))
        self.start = 0

    def _enter(self, level: int, text: str) -> None:
        text = plain(text)
        self.title = self.title or text
        while self.path and self.path[-1][0] >= level:
            self.path.pop()
        self.path.append((level, text))

    def _headings(self) -> tuple[str, ...]:
        return tuple(text for _, text in self.path)
