"""Plain text: paragraphs between blank lines."""

from __future__ import annotations

from agents.documents.blocks import Block, Document, lines_block
from agents.documents.decoding import decode, split_lines
from agents.documents.parsers import asciidoc


def parse(data: bytes, path: str) -> Document:
    """Paragraphs, each with its lines; the title is the first line that has text.

    A text that has the marks of AsciiDoc is read as such.
    """
    lines = split_lines(decode(data))
    if asciidoc.is_asciidoc(lines[:400]):
        return asciidoc.parse(data, path)
    title = next((line.strip() for line in lines if any(c.isalnum() for c in line)), path)
    return Document(title[:120], paragraphs(lines, 1, len(lines), ()))


def paragraphs(lines: list[str], first: int, last: int, headings: tuple[str, ...]) -> list[Block]:
    """The paragraphs among file lines `first` to `last` (from 1, inclusive)."""
    blocks: list[Block] = []
    start = 0
    for number in range(first, last + 2):
        filled = number <= last and bool(lines[number - 1].strip())
        if filled and not start:
            start = number
        elif not filled and start:
            blocks.append(lines_block(lines, start, number - 1, headings))
            start = 0
    return blocks
