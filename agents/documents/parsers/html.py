"""HTML: the visible text with its headings, through the standard library's tolerant parser.

A term and its definition are one block, and a table's rows have its head with them. Broken markup is normal
and never an error; hostile markup is bounded by the process that it is read in.

Decision record: tags that nothing closes. The standard library's parser looks for the end of each of them up
to the end of the text, and goes on with the next one: 100 kB of `<a b='` took 30 s. What stands behind the
last `>` is therefore text from the start, and after `_MOST_UNCLOSED` such tags no end is looked for any more.
That is what the parser says of them anyway, except for a good tag behind so many others, which becomes text.

Decision record: faster parsers (selectolax, lxml) do not say on which line a text is; a citation needs it.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

from agents.documents.blocks import Block, BlockKind, Document
from agents.documents.decoding import decode, split_lines

_CHARSET: Final = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
_SILENT_TEXT = "script style template noscript svg math nav footer button select iframe object"
_SILENT: Final = frozenset(_SILENT_TEXT.split())
_BLOCKS_TEXT = """
p div section article main header aside ul ol dl blockquote figure figcaption details summary address hr
body center caption form fieldset
"""
_BLOCKS: Final = frozenset(_BLOCKS_TEXT.split())
_CELLS: Final = frozenset({"td", "th"})
_HEADING: Final = re.compile(r"h[1-6]")
_SPACE: Final = re.compile(r"\s+")
_SIDE: Final = re.compile(
    r"(?:[\w-]{1,40}-)?(?:nav|navbar|navheader|navfooter|navigation|sidebar|sphinxsidebar|toc|breadcrumbs?|menu|"
    r"footer|headerlink|skip-?link)|related|search|nosearch|table-of-contents",
    re.I,
)
"""A class, an id or a role of a part of a page that is there to move around in it."""
_VOID_TEXT = "area base br col embed hr img input link meta source track wbr"
_VOID: Final = frozenset(_VOID_TEXT.split())
_SIDE_TAGS: Final = frozenset(["div", "ul", "ol", "table", "p", "a", "span", "aside", "section"])
_ENDS_HEADING: Final = _BLOCKS | {"li", "dt", "dd", "table", "tr", "td", "th"}
_MOST_TERM: Final = 400
_MOST_UNCLOSED: Final = 10
_WIDE_CELL: Final = 40
"""A table with a cell of more words than that is there for the page's layout."""


def parse(data: bytes, path: str) -> Document:
    """Blocks with their heading paths; the title is `<title>`, else the first heading."""
    charset = _CHARSET.search(data[:4096])
    reader = _Reader()
    text = decode(data, charset.group(1).decode("ascii") if charset else None)
    reader.feed(_without_open_tags(_without_open_comments("\n".join(split_lines(text)))))
    reader.close()
    reader.finish()
    return Document(reader.title.strip() or reader.first_heading or path, reader.blocks)


class _Reader(HTMLParser):
    """Collects the open block's text in `parts`; `rows` are those of the open table."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self.title = ""
        self.first_heading = ""
        self.path: list[tuple[int, str]] = []
        self.parts: list[tuple[int, str]] = []
        """The open block's text, each piece with its line."""
        self.words = 0
        self.silent: list[str] = []
        self.in_title = False
        self.pre = 0
        self.heading = 0
        self.kind: BlockKind = "prose"
        self.term = ""
        self.term_at = 0
        self.explained = False
        """Whether the open term has a text already: the next term is another one."""
        self.outer: list[tuple[str, bool]] = []
        """The terms that lists within their definitions interrupt."""
        self.tables: list[_Table] = []
        self.unclosed = 0

    def check_for_whole_start_tag(self, i: int) -> int:
        """The end of the tag at `i`, or -1 if there is none; of some such tags it is not looked for."""
        if self.unclosed >= _MOST_UNCLOSED:
            return -1
        end = super().check_for_whole_start_tag(i)
        self.unclosed += end < 0
        return end

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Skip `<![...>` as browsers do; that of the standard library fails on broken ones."""
        return self.parse_bogus_comment(i, report)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_title = False
        self._leave_unclosed(tag)
        if (
            (self.silent and tag == self.silent[-1] and tag not in _VOID)
            or tag in _SILENT
            or (tag in _SIDE_TAGS and not self.silent and _is_at_the_side(tag, attrs))
        ):
            self.silent.append(tag)
        elif self.silent:
            return
        elif tag == "title":
            self.in_title = True
        elif tag == "br":
            self.parts.append((self.getpos()[0], "\n" if self.pre else " "))
        elif tag == "pre":
            self.flush()
            if self.term and not self.explained:
                self._write_term()
            self.pre += 1
        elif _HEADING.fullmatch(tag):
            self.flush()
            self.heading = int(tag[1])
        elif self.heading and not (tag in _ENDS_HEADING and self.words):
            return
        else:
            if self.heading:
                self._close_heading()
            self._open(tag)

    def _leave_unclosed(self, tag: str) -> None:
        """A paragraph ends where another block begins, navigation where the page's own text begins."""
        if self.silent and self.silent[-1] == "p" and (tag in _ENDS_HEADING or _HEADING.fullmatch(tag)):
            self.silent.pop()
        if tag in ("main", "article") and not {"template", "svg", "noscript"} & set(self.silent[:9]):
            self.silent.clear()

    def _open(self, tag: str) -> None:
        if tag == "table":
            self.flush()
            self.tables.append(_Table())
        elif tag == "tr" and self.tables:
            self._close_row()
        elif tag in _CELLS and self.tables:
            self._close_cell()
            self.tables[-1].in_cell = True
            self.tables[-1].heads = self.tables[-1].heads and tag == "th"
        elif tag == "li":
            self.flush()
            self.kind = "item"
        elif tag in ("dt", "dd"):
            self.flush()
            self.kind = "term" if tag == "dt" else "prose"
        elif tag == "dl":
            self.flush()
            self.outer.append((self.term, self.explained))
            self._leave_term()
        elif tag in _BLOCKS and not self._in_small_cell():
            self.flush()

    def handle_endtag(self, tag: str) -> None:
        if self.silent:
            if tag == self.silent[-1]:
                self.silent.pop()
        elif tag == "title":
            self.in_title = False
        elif tag == "pre" and self.pre:
            self.flush()
            self.pre -= 1
        elif self.heading:
            if _HEADING.fullmatch(tag):
                self._close_heading()
        elif tag in ("td", "th", "tr", "table") and self.tables:
            self._close_part(tag)
        elif tag in ("li", "dt", "dd") or (tag in _BLOCKS and not self._in_small_cell()):
            self._close_block(tag)

    def _close_block(self, tag: str) -> None:
        self.flush()
        if tag in ("dl", "dd"):
            self._leave_term()
        if tag == "dl" and self.outer:
            self.term, self.explained = self.outer.pop()

    def _close_part(self, tag: str) -> None:
        if tag == "tr":
            self._close_row()
        elif tag == "table":
            self._close_table()
        else:
            self._close_cell()

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.title = _SPACE.sub(" ", self.title + data)[:200]
        elif not self.silent and (data.strip() or self.parts or self.pre):
            line = self.getpos()[0]
            # within <pre> an end of line is one, elsewhere it is a space
            for at, piece in enumerate(data.split("\n")):
                if at:
                    self.parts.append((line + at, "\n" if self.pre else " "))
                if piece:
                    self.parts.append((line + at, piece))
            self.words += len(data.split())

    def finish(self) -> None:
        """Close what is open at the end of the file."""
        while self.tables:
            self._close_table()
        if self.heading:
            self._close_heading()
        self.flush()
        self._leave_term()

    def flush(self) -> None:
        """Close the block that is open."""
        parts, words = self.parts, self.words
        self.parts, self.words = [], 0
        self.heading = 0
        kind, self.kind = self.kind, "prose"
        if not words:
            self.kind = kind if kind == "item" else "prose"
            return
        lines, at = _code_lines(parts) if self.pre else _text_lines(parts)
        if kind == "term":
            text = " ".join(lines)
            if len(self.term) > _MOST_TERM:
                self._leave_term()
            self.term = f"{self.term}, {text}" if self.term and not self.explained else text
            self.term_at = at[0]
            self.explained = False
            return
        if self.tables and self.tables[-1].in_cell:
            self.tables[-1].is_layout = True
            self.tables[-1].end_row()
            self._write(self.tables[-1])
        if self.pre:
            kind = "code"
        elif self.term:
            term_at = at[0] if self.explained else self.term_at
            lines, at, kind = [self.term, *lines], [term_at, *at], "term"
            self.explained = True
        self.blocks.append(Block(lines, at[0], at[-1], self._headings(), kind=kind, at=tuple(at)))

    def _leave_term(self) -> None:
        """Nothing more explains the open term."""
        if self.term and not self.explained:
            self._write_term()
        self.term = ""

    def _write_term(self) -> None:
        at = self.term_at
        self.blocks.append(Block([self.term], at, at, self._headings(), kind="term"))
        self.explained = True

    def _headings(self) -> tuple[str, ...]:
        return tuple(part for _, part in self.path)

    def _in_small_cell(self) -> bool:
        """Whether the open text is a table's cell that may yet turn out to be small."""
        return bool(self.tables) and self.tables[-1].in_cell and self.words < _WIDE_CELL

    def _close_cell(self) -> None:
        table = self.tables[-1]
        if not table.in_cell:
            self.flush()
            return
        if self.words > _WIDE_CELL or self.pre or self.kind == "term":
            self.flush()
        else:
            lines, at = _text_lines(self.parts)
            table.take(" ".join(lines), at)
            self.parts, self.words = [], 0
        table.in_cell = False

    def _close_row(self) -> None:
        self._close_cell()
        table = self.tables[-1]
        table.end_row()
        if table.is_layout:
            self._write(table)

    def _close_table(self) -> None:
        self._close_row()
        self._write(self.tables.pop())

    def _write(self, table: _Table) -> None:
        """The rows as one block; of a layout's table each cell is a text by itself."""
        rows, table.rows = table.rows, []
        headings = self._headings()
        if len(rows) == 1 or table.is_layout:
            for row, first, last in rows:
                text = " | ".join(cell for cell in row if cell)
                self.blocks.append(Block([text], first, last, headings, kind="prose"))
        elif rows:
            if not table.first_is_head:
                rows.insert(0, ([], rows[0][1], rows[0][1]))
            lines = [" | ".join(row) for row, _, _ in rows]
            at = tuple(first for _, first, _ in rows)
            self.blocks.append(Block(lines, at[0], rows[-1][2], headings, kind="table", at=at))

    def _close_heading(self) -> None:
        text = " ".join(_text_lines(self.parts)[0]).rstrip("¶#").strip()
        level, self.heading, self.parts, self.words = self.heading, 0, [], 0
        if not text:
            return
        self._leave_term()
        self.first_heading = self.first_heading or text
        while self.path and self.path[-1][0] >= level:
            self.path.pop()
        self.path.append((level, text))


class _Table:
    """The rows of an open table."""

    def __init__(self) -> None:
        self.rows: list[tuple[list[str], int, int]] = []
        self.row: list[str] = []
        self.first = 0
        self.last = 0
        self.in_cell = False
        self.is_layout = False
        self.heads = True
        self.first_is_head = False

    def take(self, text: str, at: list[int]) -> None:
        """A cell of the open row, from the lines `at`."""
        if at:
            self.first = self.first if any(self.row) else at[0]
            self.last = max(at[-1], self.first)
        self.row.append(text)

    def end_row(self) -> None:
        """Close the open row."""
        if any(self.row):
            self.first_is_head = self.first_is_head or (not self.rows and self.heads)
            self.rows.append((self.row, self.first, self.last))
        self.row, self.heads = [], True


def _without_open_comments(text: str) -> str:
    """`text` in which comments that nothing closes do not begin: each of them is searched to the end."""
    behind = text.rfind("-->") + 3 if "-->" in text else 0
    return text[:behind] + text[behind:].replace("<!--", "")


def _without_open_tags(text: str) -> str:
    """`text` in which nothing begins behind the last `>`, so that no end of it is searched."""
    behind = text.rfind(">") + 1
    return text[:behind] + text[behind:].replace("<", "&lt;")


def _text_lines(parts: list[tuple[int, str]]) -> tuple[list[str], list[int]]:
    """Text by the lines that it stands on, without spaces around and lines without any."""
    by_line: dict[int, list[str]] = {}
    for line, piece in parts:
        by_line.setdefault(line, []).append(piece)
    flat = {line: _SPACE.sub(" ", "".join(pieces)).strip() for line, pieces in by_line.items()}
    found = {line: text for line, text in flat.items() if text}
    return list(found.values()), list(found)


def _code_lines(parts: list[tuple[int, str]]) -> tuple[list[str], list[int]]:
    """Lines of code with their places, without blank ones at both ends."""
    texts: list[list[str]] = [[]]
    at = [parts[0][0]]
    for line, piece in parts:
        if piece == "\n":
            texts.append([])
            at.append(line)
        else:
            texts[-1].append(piece)
    lines = ["".join(pieces).rstrip() for pieces in texts]
    filled = [number for number, line in enumerate(lines) if line]
    first, last = filled[0], filled[-1] + 1
    return lines[first:last], at[first:last]


def _is_at_the_side(tag: str, attrs: list[tuple[str, str | None]]) -> bool:
    """Whether a part of a page is there to move around in it. The id of a section comes from its heading."""
    names = dict(attrs)
    classes = (names.get("class") or "").split()
    if tag == "section" or "section" in classes:
        return False
    return any(_SIDE.fullmatch(name) for name in (*classes, names.get("id") or "", names.get("role") or ""))
