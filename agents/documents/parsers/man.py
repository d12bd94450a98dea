"""Manual pages in roff with the macros of man(7) or mdoc(7), also compressed: sections, terms and texts.

Only the macros that pages are written in are known; what else roff can do (registers, conditions, files) is
left out, and nothing is executed. No library reads roff: man-db and mandoc are programs.
"""

from __future__ import annotations

import re
from typing import Final

from agents.documents.blocks import Block, BlockKind, DamagedError, Document
from agents.documents.decoding import decode, gunzip, split_lines
from agents.documents.roff import MDOC_NAMES, arguments_of, mdoc_line, plain

_ALTERNATING: Final = frozenset(["BR", "RB", "IR", "RI", "BI", "IB", "SB"])
_FONTS: Final = frozenset(["B", "I", "SM", "R"])
_PARAGRAPHS: Final = frozenset(
    ["PP", "P", "LP", "HP", "Pp", "sp", "br", "RS", "RE", "PD", "UNINDENT", "INDENT", "Bl", "El", "Bd", "Ed"]
)
_CODE: Final = {"nf": "fi", "EX": "EE", "Vb": "Ve", "Bd": "Ed", "TS": "TE"}
_SECTIONS: Final = (".SH", ".Sh", ".SS", ".Ss")
_IGNORED_BLOCKS: Final = frozenset(["de", "ig", "de1", "am", "am1", "dei", "ami"])
_END_OF_IGNORED: Final = re.compile(r"\.[ \t]*\.")
_MOST_TERM: Final = 400
_MACRO: Final = re.compile(r"[.'][ \t]*([A-Za-z0-9.\\\"]+)[ \t]*(.*)")


def parse(data: bytes, path: str) -> Document:
    """Blocks with their section paths; the title is the page's name and what it says of itself.

    Raises:
        DamagedError: it is compressed, and damaged or too large.
    """
    lines = split_lines(decode(gunzip(data) if path.endswith(".gz") else data))
    if not any(line.startswith((".TH", ".Dd", ".SH", ".Sh", ".so ", "'\\\" t")) for line in lines):
        raise DamagedError("it is no manual page, whatever its name says")
    reader = _Reader(lines)
    reader.read()
    return Document(reader.title or path, reader.blocks)


class _Reader:
    """Walks the lines once; a block is open while `parts` has something."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.blocks: list[Block] = []
        self.title = ""
        self.path: list[str] = []
        self.parts: list[tuple[int, str]] = []
        """The open block's texts, each with its line."""
        self.term_at = 0
        self.term: str | None = None
        self.under: str | None = None
        """The term that a further paragraph without one of its own explains."""
        self.again = False
        """Whether the open term has explained a paragraph before."""
        self.indents: list[tuple[str | None, str | None]] = []
        """For each open `.RS`, the term outside of it, and the one that it explains."""
        self.wants_term = False
        self.page = ""

    def read(self) -> None:
        number = 0
        while number < len(self.lines):
            number = self._take(number)
        self._end_section()

    def _take(self, at: int) -> int:
        """Read line `at`, from 0; return the next one to read."""
        line = self.lines[at]
        macro = _MACRO.match(line) if line[:1] in (".", "'") else None
        if macro is None:
            if not line.strip():
                self._close()
            elif not line.startswith((".", "'\\\"")):
                self._text(plain(line), at)
            return at + 1
        name, rest = macro.groups()
        if name in _IGNORED_BLOCKS:
            return self._end_of_ignored(at)
        if name in _CODE and not (name == "Bd" and "-literal" not in rest and "-unfilled" not in rest):
            return self._code(at, name)
        self._macro(name, rest, at)
        return at + 1

    def _macro(self, name: str, rest: str, at: int) -> None:
        arguments = [plain(one) for one in arguments_of(rest)]
        words = " ".join(arguments).strip()
        if name in _ALTERNATING:
            self._text("".join(arguments), at)
        elif name in _FONTS or name in ("UR", "MT", "UE", "ME", "SY"):
            self._text(words, at)
        elif name == "MR" and len(arguments) > 1:
            self._text(f"{arguments[0]}({arguments[1]}){''.join(arguments[2:3])}", at)
        elif name == "OP":
            self._text(f"[{words}]", at)
        elif name in MDOC_NAMES or name[:1] == "%":
            self._mdoc(name, rest, at)
        elif name in ("TH", "Dt"):
            self.title = f"{arguments[0].lower()}({arguments[1]})" if len(arguments) > 1 else words
        else:
            self._structure(name, rest, at)

    def _mdoc(self, name: str, rest: str, at: int) -> None:
        arguments = arguments_of(rest)
        first = plain(arguments[0]) if arguments else ""
        if name == "Nm" and not self.page and any(c.isalnum() for c in first):
            self.page = first
        if name in ("Dl", "D1"):
            self._close()
            words = mdoc_line(arguments[0], arguments[1:], self.page) if first in MDOC_NAMES else plain(rest)
            self.blocks.append(Block([words], at + 1, at + 1, tuple(self.path), kind="code"))
        else:
            self._text(mdoc_line(name, arguments, self.page), at)

    def _structure(self, name: str, rest: str, at: int) -> None:
        """Sections, paragraphs and terms."""
        arguments = [plain(one) for one in arguments_of(rest)]
        if name in ("SH", "Sh", "SS", "Ss"):
            self._end_section()
            self._enter(name, " ".join(arguments).strip(), at)
        elif name in ("TP", "TQ"):
            self._close(keep_term=name == "TQ")
            self.wants_term = True
        elif name == "IP":
            self._close()
            first = arguments[0] if arguments else ""
            if any(c.isalnum() for c in first):
                self._begin_term(first, at)
            elif not first:
                self._go_on_under(self.under, at)
        elif name == "It":
            self._close()
            if arguments:
                words = arguments_of(rest)
                self._begin_term(mdoc_line(words[0], words[1:], self.page), at)
        elif name == "RS":
            self._indent()
        elif name in _PARAGRAPHS:
            self._part(name, at)

    def _indent(self) -> None:
        """What is indented below a short line explains it."""
        words = " ".join(text for _, text in self.parts)
        explains = None
        if (
            self.parts
            and (self.again or not self.term)
            and len(words.split()) <= 12
            and words[-1] not in ".:!?"
        ):
            explains = self.term = words
            self.term_at, self.parts, self.again = self.parts[0][0], [], False
        else:
            self._close()
        self.indents.append((self.under, explains))

    def _part(self, name: str, at: int) -> None:
        """The end of a paragraph."""
        self._close()
        if self.again:
            self.term, self.again = None, False
        self.wants_term = False
        if name == "RE" and self.indents:
            self.under = self.indents.pop()[0]
        elif name in ("PP", "P", "LP", "Pp"):
            self.under = None
        if name in ("PP", "P", "LP", "sp", "RE") and self.indents and not self.term:
            self._go_on_under(self.indents[-1][1], at)

    def _go_on_under(self, term: str | None, at: int) -> None:
        self.term, self.term_at, self.again = term, at + 1, term is not None

    def _text(self, text: str, at: int) -> None:
        text = text.strip()
        if not text:
            return
        if self.wants_term:
            self.wants_term = False
            self._begin_term(text, at)
            return
        self.parts.append((at + 1, text))

    def _begin_term(self, text: str, at: int) -> None:
        if self.term and not self.again and len(self.term) > _MOST_TERM:
            self._write()
            self.term = None
        if self.term and not self.again:
            text = f"{self.term}, {text}"
        else:
            self.term_at = at + 1
        self.term, self.again = text, False
        self.under = text

    def _enter(self, name: str, words: str, at: int) -> None:
        if not words and at + 1 < len(self.lines):
            words = plain(self.lines[at + 1]).strip()
            self.lines[at + 1] = ""
        words = words.capitalize() if words.isupper() and len(words) > 4 else words
        self.path = [words] if name in ("SH", "Sh") else [*self.path[:1], words]

    def _close(self, keep_term: bool = False) -> None:
        if keep_term and self.term and not self.parts:
            return
        if self.term and not self.parts:
            return  # its text is still to come
        if self.parts:
            text = " ".join(part for _, part in self.parts)
            if [part.upper() for part in self.path] == ["NAME"] and " - " in text and ":" not in self.title:
                self.title = f"{self.title}: {text.split(' - ', 1)[1]}"[:160]
            self._write()
        self.parts, self.term = [], None
        self.wants_term = self.again = False

    def _write(self) -> None:
        """A block of the open term and texts."""
        lines, at = [text for _, text in self.parts], [number for number, _ in self.parts]
        if self.term:
            lines, at = [self.term, *lines], [self.term_at, *at]
        kind: BlockKind = "term" if self.term else "prose"
        self.blocks.append(Block(lines, at[0], at[-1], tuple(self.path), kind=kind, at=tuple(at)))

    def _end_section(self) -> None:
        """Close what is open; a term that has no text stands alone."""
        self._close()
        if self.term and not self.again:
            self._write()
        self.parts, self.term, self.under = [], None, None
        self.wants_term = self.again = False
        self.indents = []

    def _code(self, at: int, name: str) -> int:
        if self.term and not self.parts:
            if not self.again:
                self._write()
            self.term = None
        self._close()
        end = at + 1
        while end < len(self.lines) and not _ends(self.lines[end], _CODE[name]):
            end += 1
        inner = list(enumerate(self.lines[at + 1 : end], at + 2))
        if name == "TS":
            shown = _table(inner)
        else:
            shown = [(number, self._shown(line)) for number, line in inner if not _is_request(line)]
        while shown and not shown[0][1].strip():
            del shown[0]
        if shown:
            numbers, lines = zip(*shown, strict=True)
            kind: BlockKind = "table" if name == "TS" else "code"
            path = tuple(self.path)
            self.blocks.append(Block(list(lines), numbers[0], numbers[-1], path, kind=kind, at=numbers))
        at_mark = end < len(self.lines) and not self.lines[end].startswith(_SECTIONS)
        return end + 1 if at_mark else end

    def _shown(self, line: str) -> str:
        macro = _MACRO.match(line) if line[:1] in (".", "'") else None
        if macro is not None and macro[1] in MDOC_NAMES:
            return mdoc_line(macro[1], arguments_of(macro[2]), self.page)
        return _shown(line)

    def _end_of_ignored(self, at: int) -> int:
        """The line behind the definition of a macro; the last line if it does not end."""
        for later in range(at + 1, len(self.lines)):
            if _END_OF_IGNORED.match(self.lines[later]):
                return later + 1
        return len(self.lines)


def _ends(line: str, mark: str) -> bool:
    """Whether a line ends code: by its own mark, or since a section begins."""
    macro = _MACRO.match(line) if line[:1] in (".", "'") else None
    return macro is not None and (macro[1] == mark or f".{macro[1]}" in _SECTIONS)


def _is_request(line: str) -> bool:
    if line[:1] not in (".", "'") or not line.strip("."):
        return bool(line) and not line.strip(".")
    macro = _MACRO.match(line)
    if macro is None:
        return line.startswith((".\\", "'\\"))
    return macro[1] not in _ALTERNATING | _FONTS | MDOC_NAMES | {"SY", "OP", "TP", "IP", "MR", "UR"}


def _shown(line: str) -> str:
    macro = _MACRO.match(line) if line[:1] in (".", "'") else None
    if macro is None:
        return plain(line)
    arguments = [plain(one) for one in arguments_of(macro[2])]
    if macro[1] == "IP":
        return arguments[0] if arguments else ""
    if macro[1] == "OP":
        return f"[{' '.join(arguments)}]"
    return ("" if macro[1] in _ALTERNATING else " ").join(arguments)


def _table(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The rows of a table of tbl(1), cells parted by ` | `."""
    separator = "\t"
    rows: list[tuple[int, list[str]]] = []
    in_format = any(line.rstrip().endswith(".") for _, line in lines)
    open_cell: list[str] | None = None
    for number, line in lines:
        if in_format:
            if found := re.search(r"tab ?\((.)\)", line):
                separator = found[1]
            in_format = not line.rstrip().endswith(".")
        elif open_cell is not None and not line.startswith("T}"):
            if not _is_request(line):
                open_cell.append(_shown(line).strip())
        elif line.startswith(".T&"):
            in_format = True
        elif open_cell is not None or not (line.strip() in ("_", "=", "") or _is_request(line)):
            cells = [plain(cell).strip() for cell in _shown_cells(line).split(separator)]
            if open_cell is not None:
                rows[-1][1][-1] = " ".join(open_cell)
                cells = cells[1:]
            else:
                rows.append((number, []))
            open_cell = [] if cells and cells[-1] == "T{" else None
            rows[-1][1].extend("" if cell == "T{" else cell for cell in cells if cell not in ("\\^", "_"))
    if open_cell:
        rows[-1][1][-1] = " ".join(open_cell)
    shown = [(number, " | ".join(cells)) for number, cells in rows]
    return [(number, row) for number, row in shown if any(c.isalnum() for c in row)]


def _shown_cells(line: str) -> str:
    return line if line[:1] not in (".", "'") else _shown(line)
