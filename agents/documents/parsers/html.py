"""HTML: the visible text with its headings, through the standard library's tolerant parser.

Broken markup is normal and never an error; hostile markup is bounded by the process that it is read in.

Decision record: faster parsers (selectolax, lxml) do not say on which line a text is; a citation needs it.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from agents.documents.blocks import Block, Document
from agents.documents.decoding import decode

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
_SILENT_TEXT = "script style template noscript svg math nav footer form button select iframe object"
_SILENT = frozenset(_SILENT_TEXT.split())
_BLOCKS_TEXT = """
p div section article main header aside ul ol dl li dt dd table thead tbody tr blockquote figure
figcaption details summary address hr body td th
"""
_BLOCKS = frozenset(_BLOCKS_TEXT.split())
_CELLS = frozenset({"td", "th"})
_SPACE = re.compile(r"\s+")


def parse(data: bytes, path: str) -> Document:
    """Blocks with their heading paths; the title is `<title>`, else the first heading."""
    charset = _CHARSET.search(data[:4096])
    reader = _Reader()
    reader.feed(decode(data, charset.group(1).decode("ascii") if charset else None))
    reader.close()
    reader.flush()
    return Document(reader.title.strip() or reader.first_heading or path, reader.blocks)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self.title = ""
        self.first_heading = ""
        self.path: list[tuple[int, str]] = []
        self.parts: list[str] = []
        self.start = 0
        self.end = 0
        self.silent: list[str] = []
        self.in_title = False
        self.pre = 0
        self.heading = 0
        self.prefix = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self.silent.append(tag)
        elif tag == "title" and not self.silent:
            self.in_title = True
        elif tag == "br":
            self.parts.append("\n")
        elif tag == "pre":
            self.flush()
            self.pre += 1
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self.flush()
            self.heading = int(tag[1])
        elif tag in _CELLS:
            if self.parts:
                self.parts.append(" | ")
        elif tag in _BLOCKS and not self.heading:
            self.flush()
            self.prefix = "- " if tag == "li" else ""

    def handle_endtag(self, tag: str) -> None:
        if tag in self.silent:
            del self.silent[self.silent.index(tag) :]
        elif tag == "title":
            self.in_title = False
        elif tag == "pre" and self.pre:
            self.flush()
            self.pre -= 1
        elif self.heading and tag == f"h{self.heading}":
            self._close_heading()
        elif tag in _BLOCKS and tag not in _CELLS and not self.heading:
            self.flush()

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.title = _SPACE.sub(" ", self.title + data)[:200]
        elif not self.silent and (data.strip() or self.parts):
            line = self.getpos()[0]
            if not self.parts:
                self.start = line + len(data[: len(data) - len(data.lstrip())].splitlines()[1:])
            if data.strip():
                self.end = line + data.rstrip().count("\n")
            # outside of <pre> only <br> ends a line
            self.parts.append(data if self.pre else _SPACE.sub(" ", data))

    def flush(self) -> None:
        """Close the block that is open."""
        text = "".join(self.parts)
        self.parts = []
        if self.heading:
            self.heading = 0
        if not text.strip():
            return
        headings = tuple(part for _, part in self.path)
        if self.pre:
            lines = ["```", *text.strip("\n").split("\n"), "```"]
        else:
            lines = [_SPACE.sub(" ", line).strip(" |") for line in text.split("\n")]
            lines[0] = self.prefix + lines[0]
            self.prefix = ""
        self.blocks.append(Block(lines, self.start, max(self.start, self.end), headings, code=bool(self.pre)))

    def _close_heading(self) -> None:
        text = _SPACE.sub(" ", "".join(self.parts)).strip().rstrip("¶#").strip()
        level, self.heading, self.parts = self.heading, 0, []
        if not text:
            return
        self.first_heading = self.first_heading or text
        while self.path and self.path[-1][0] >= level:
            self.path.pop()
        self.path.append((level, text))
