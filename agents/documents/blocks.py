"""What a parser makes of a file: a title and blocks of lines, each with its place and its headings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

BlockKind = Literal["", "prose", "item", "term", "table", "code"]


@dataclass(slots=True)
class Block:
    """Lines that belong together: a paragraph, a list item, a piece of code, a docstring.

    `kind` tells what the lines are: text (prose), an item of a list, a term in the first line and its
    explanation in the others, rows of a table with its head first (cells parted by ` | `), or code. Where it
    is empty the lines are as in the file, with its markup, and tell it themselves (`units_of`).

    Line numbers count from 1. Where `end == start + len(lines) - 1`, line i of the block is line
    `start + i` of the file; otherwise only the range is known. A PDF has pages instead: `start` is 0.
    """

    lines: list[str]
    start: int
    end: int
    headings: tuple[str, ...] = ()
    page: int | None = None
    kind: BlockKind = ""
    alone: bool = False
    """Not to be joined with the blocks after it (a function's signature and docstring)."""
    at: tuple[int, ...] = ()
    """The file's line of each line, where they do not follow each other."""


@dataclass(slots=True)
class Document:
    """A parsed file. `note` says what of it was left out, if anything was."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    note: str = ""

    syntax: str = ""
    """Whose inline markup the lines of blocks without a kind have: "markdown", "rst", "python" or ""."""


class DamagedError(Exception):
    """The file is not what its name says."""


class BinaryError(Exception):
    """The file holds bytes that are no text."""


def lines_block(
    lines: list[str],
    first: int,
    last: int,
    headings: tuple[str, ...],
    kind: BlockKind = "",
    *,
    alone: bool = False,
) -> Block:
    """The block of file lines `first` to `last` (from 1, inclusive), without blank lines at its ends."""
    while first < last and not lines[first - 1].strip():
        first += 1
    while last > first and not lines[last - 1].strip():
        last -= 1
    return Block(
        [line.rstrip() for line in lines[first - 1 : last]], first, last, headings, kind=kind, alone=alone
    )
