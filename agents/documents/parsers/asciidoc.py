"""AsciiDoc: sections, terms with their texts, lists, tables, and code that stays whole.

The block structure that manuals use is known; macros, includes and conditions are left out. The reference
implementations are programs in Ruby and Java.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from agents.documents.blocks import Block, BlockKind, Document
from agents.documents.decoding import decode, split_lines
from agents.documents.inline import substituted

_TITLE: Final = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_UNDERLINE: Final = re.compile(r"([=\-~^+])\1{2,}[ \t]*$")
_LEVELS: Final = {"=": 1, "-": 2, "~": 3, "^": 4, "+": 5}
_FENCE: Final = re.compile(r"(-{4,}|\.{4,}|`{3,}|={4,}|\*{4,}|_{4,}|/{4,}|\+{4,}|--)[ \t]*$")
_TERM: Final = re.compile(r"[ \t]*(\S.*?)(?:::{1,3}|;;)(?:[ \t]+(\S.*))?$")
_ITEM: Final = re.compile(r"[ \t]*(?:[*\-]+|\.{1,5}|\d+\.|[a-z]\.|<\d+>)[ \t]+(\S.*)")
_NOISE: Final = re.compile(
    r"//(?!/)|:!?\w[\w-]*!?:(?:[ \t]|$)|\[[^\]\n]*\][ \t]*$|<<<[ \t]*$|"
    r"(?:ifdef|ifndef|ifeval|endif|include|image|toc)::\S*\["
)
_BLOCK_TITLE: Final = re.compile(r"\.([A-Z\"'`*].*)")
_TABLE: Final = re.compile(r"\|={3,}")
_COLUMNS: Final = re.compile(r"cols=\"?([^\"\]]*)")
_BAR: Final = re.compile(r"(?:(?<=\s)|^)(?:\d+[*+]|\.\d+\+|[<>^]){0,3}[aehlmsvd]?(?<!\\)\||(?<!\\)\|")
_MOST_TERM: Final = 400
_ADMONITION: Final = re.compile(r"(NOTE|TIP|WARNING|IMPORTANT|CAUTION): ")
_ATTRIBUTES: Final = {
    "nbsp": " ", "empty": "", "zwsp": "", "plus": "+", "apostrophe": "'", "caret": "^", "tilde": "~",
    "asterisk": "*", "litdd": "--", "startsb": "[", "endsb": "]", "startcb": "{", "endcb": "}",
    "backtick": "`", "backslash": "\\",
}  # fmt: skip
_EITHER: Final = r"\1\2"
_INLINE: Final = (
    (re.compile(r"linkgit:([\w.-]+)\[(\d)\]"), r"\1(\2)"),
    (re.compile(r"(?:kbd|btn|pass|menu|footnote):\w{0,20}\[([^\]\n]{1,500})\]"), r"\1"),
    (re.compile(r"(?:link|xref|mailto):{1,2}[^\s\[]{1,1000}\[([^\]]{1,500})\]"), r"\1"),
    (re.compile(r"(?:link|xref):{1,2}([^\s\[]{1,1000})\[\]"), r"\1"),
    (re.compile(r"(https?://[^\s\[]{1,1000})\[\]"), r"\1"),
    (re.compile(r"(https?://[^\s\[]{1,1000})\[([^\]]{1,500})\]"), r"\2 (\1)"),
    (re.compile(r"<<[^,<>]{1,300},\s{0,3}([^<>]{1,500})>>"), r"\1"),
    (re.compile(r"<<([^<>]{1,300})>>"), r"\1"),
    (re.compile(r"\(\(\([^()]{0,300}\)\)\)|\[\[[^\[\]]{0,300}\]\]|indexterm:\[[^\]]{0,300}\]"), ""),
    (re.compile(r"\(\(([^()]{1,300})\)\)"), r"\1"),
    (re.compile(r"\{(nbsp|empty|zwsp|plus|apostrophe|caret|tilde|asterisk|litdd|\w{4,5}b|backtick|backslash)\}"),
     lambda match: _ATTRIBUTES.get(match[1], match[0])),
    (re.compile(r"\$\$(.{1,500}?)\$\$|\+\+(?=[^\s+])([^+]{1,500}?)\+\+"), _EITHER),
    (re.compile(r"\*\*(?=\S)([^*]{1,500}?)\*\*|__(?=\S)([^_]{1,500}?)__"), _EITHER),
    (re.compile(r"(?<![\w'`])'(?=[^'\s])([^']{1,300}?)(?<=\S)'(?![\w'`])"), r"\1"),
    (re.compile(r"(?<![\w*])(?:\[[\w.#% -]{1,60}\])?\*(?=[^*\s])([^*]{1,500}?)(?<=\S)\*(?![\w*])"), r"\1"),
    (re.compile(r"(?<!\w)(?:\[[\w.#% -]{1,60}\])?_(?=[^_\s])([^_]{1,500}?)(?<=\S)_(?!\w)"), r"\1"),
    (re.compile(r"(?<![\w+])\+(?=[^+\s])([^+]{1,500}?)(?<=\S)\+(?![\w+])"), r"`\1`"),
    (re.compile(r"(?<![\w#])\[[\w.#% -]{1,60}\]#(?=[^#\s])([^#]{1,500}?)(?<=\S)#(?![\w#])"), r"\1"),
    (re.compile(r"(?<=\s)\+$", re.M), ""),
    (re.compile(r"\\(?=[*_`'{\[<+#-])"), ""),
)  # fmt: skip


def parse(data: bytes, path: str) -> Document:
    """Blocks with their section paths; the title is the first heading."""
    reader = _Reader(split_lines(decode(data)))
    reader.read()
    return Document(reader.title or path, reader.blocks)


def is_asciidoc(lines: list[str]) -> bool:
    """Whether a text file is written in AsciiDoc: it has several marks that other texts have not."""
    marks = 0
    for before, line in pairwise(lines):
        if _UNDERLINE.match(line) and abs(len(line.rstrip()) - len(before.rstrip())) <= 1 and before.strip():
            marks += 1
        elif line.rstrip() == "+" or re.match(r"\[(?:verse|NOTE|TIP|source|quote|\[)", line):
            marks += 2
        elif re.match(r"\S.*[^:]::$", line.rstrip()) or "linkgit:" in line:
            marks += 1
        if marks >= 4:
            return True
    return False


def plain(text: str) -> str:
    """Text without inline markup."""
    return " ".join(_plain_lines(text).split())


def _plain_lines(text: str) -> str:
    parts = re.split(r"(`[^`]{1,1000}`)", text)
    codes = iter(parts[1::2])
    # emphasis and links may have code in them
    held = "\0".join(part.replace("\0", "") for part in parts[::2])
    for pattern, shown in _INLINE:
        held = substituted(pattern, shown, held)
    return re.sub("\0", lambda _: _code_span(next(codes, "")), held)


def _code_span(code: str) -> str:
    """A span of code; `+text+` within it is the text."""
    inner = code[1:-1]
    return f"`{inner[1:-1] if len(inner) > 2 and inner[0] == inner[-1] == '+' else inner}`" if code else ""


class _Reader:
    """Walks the lines once. `term` is the one that the open paragraph explains."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.blocks: list[Block] = []
        self.title = ""
        self.path: list[tuple[int, str]] = []
        self.term = ""
        self.term_at = 0
        self.explained = True
        self.attached = False

    def read(self) -> None:
        number = 1
        while number <= len(self.lines):
            number = self._take(number) + 1
        self._write_term()

    def _take(self, number: int) -> int:
        """Read what begins at `number`; return its last line."""
        line = self._line(number)
        if not line.strip():
            return number
        if line.strip() == "+":
            self.attached = True
            return number
        if title := _TITLE.fullmatch(line.rstrip()):
            self._enter(len(title[1]), title[2])
            return number
        if self._is_title(number):
            self._enter(_LEVELS[self._line(number + 1)[0]], line)
            return number + 1
        if _TABLE.fullmatch(line.rstrip()):
            return self._table(number)
        if (fence := _FENCE.fullmatch(line.rstrip())) and fence[1][0] in "-.`+/" and fence[1] != "--":
            return self._fenced(number, fence[1])
        if title := _BLOCK_TITLE.fullmatch(line.rstrip()):
            self.blocks.append(Block([plain(title[1])], number, number, self._headings(), kind="prose"))
            return number
        if _FENCE.fullmatch(line.rstrip()) or _NOISE.match(line):
            return number
        if term := self._term_at(number):
            return self._open_term(term, number)
        return self._text(number)

    def _open_term(self, term: re.Match[str], number: int) -> int:
        words = plain(term[1])
        if len(self.term) > _MOST_TERM:
            self._write_term()
        self.term = f"{self.term}, {words}" if self.term and not self.explained else words
        self.term_at = self.term_at if self.term != words else number
        self.explained = False
        if term[2]:
            last = number
            while self._goes_on(last + 1, in_item=True):
                last += 1
            self._add([term[2], *(self._line(at) for at in range(number + 1, last + 1))], number, last)
            return last
        return number

    def _write_term(self) -> None:
        """A term that has no text stands alone."""
        if self.term and not self.explained:
            at = self.term_at
            self.blocks.append(Block([self.term], at, at, self._headings(), kind="term"))
        self.explained = True

    def _text(self, number: int) -> int:
        """A paragraph, an item or indented code."""
        line = self._line(number)
        item = _ITEM.fullmatch(line.rstrip())
        last = number
        while self._goes_on(last + 1, bool(item)):
            last += 1
        lines = [self._line(at) for at in range(number, last + 1)]
        under = self.term and (self.attached or not self.explained or line[:1] in " \t")
        if item:
            self._add([item[1], *lines[1:]], number, last, item=True)
        elif line[:1] in " \t" and not under:
            self.blocks.append(Block(lines, number, last, self._headings(), kind="code"))
        else:
            if not under:
                self.term = ""
            self._add(lines, number, last)
        self.attached = False
        return last

    def _add(self, lines: list[str], first: int, last: int, *, item: bool = False) -> None:
        lines = [_ADMONITION.sub(lambda match: f"{match[1].capitalize()}: ", line) for line in lines]
        shown = [line.strip() for line in _plain_lines("\n".join(lines)).split("\n")]
        at = tuple(range(first, last + 1))
        if self.term:
            term_at = first if self.explained else self.term_at
            shown, at, first = [self.term, *shown], (term_at, *at), term_at
        kind: BlockKind = "term" if self.term else "item" if item else "prose"
        self.blocks.append(Block(shown, first, last, self._headings(), kind=kind, at=at))
        self.explained = True

    def _goes_on(self, number: int, in_item: bool) -> bool:
        line = self._line(number)
        stripped = line.rstrip()
        return bool(stripped) and not (
            stripped == "+"
            or _TABLE.fullmatch(stripped)
            or _FENCE.fullmatch(stripped)
            or _ITEM.fullmatch(stripped)
            or _NOISE.match(line)
            or self._is_title(number)
            or (self._term_at(number) and in_item)
            or _TITLE.fullmatch(stripped)
        )

    def _fenced(self, number: int, fence: str) -> int:
        self.attached = False
        self._write_term()
        end = number + 1
        while end <= len(self.lines) and self._line(end).rstrip() != fence:
            end += 1
        lines = self.lines[number : end - 1]
        if fence[0] != "/" and any(line.strip() for line in lines):
            self.blocks.append(Block(lines, number + 1, end - 1, self._headings(), kind="code"))
        return end

    def _table(self, number: int) -> int:
        self._write_term()
        end = number + 1
        cells: list[tuple[int, str]] = []
        attributes = _COLUMNS.search(self._line(number - 1)) if number > 1 else None
        columns = _columns(attributes[1]) if attributes else 0
        while end <= len(self.lines) and not _TABLE.fullmatch(self._line(end).rstrip()):
            line = self._line(end).strip()
            found = _BAR.split(line)
            if len(found) == 1 or found[0].strip():
                before, found = found[0], found[1:]
                if cells:
                    cells[-1] = (cells[-1][0], f"{cells[-1][1]} {before}".strip())
                elif before.strip():
                    cells.append((end, before.strip()))
            else:
                found = found[1:]
            cells += [(end, cell.strip()) for cell in found]
            columns = columns or len(cells)
            end += 1
        rows = [cells[at : at + columns] for at in range(0, len(cells), max(columns, 1))]
        if rows:
            at = tuple(row[0][0] for row in rows)
            lines = [" | ".join(plain(cell.replace("\\|", "|")) for _, cell in row) for row in rows]
            self.blocks.append(Block(lines, at[0], at[-1], self._headings(), kind="table", at=at))
        return end

    def _term_at(self, number: int) -> re.Match[str] | None:
        line = self._line(number).rstrip()
        return _TERM.fullmatch(line) if "::" in line or line.endswith(";;") else None

    def _is_title(self, number: int) -> bool:
        line, under = self._line(number).rstrip(), self._line(number + 1).rstrip()
        return (
            bool(_UNDERLINE.fullmatch(under))
            and any(c.isalnum() for c in line)
            and not line[:1].isspace()
            and not _NOISE.match(line)
            and abs(len(line) - len(under)) <= 2
        )

    def _enter(self, level: int, text: str) -> None:
        self._write_term()
        text = plain(text.strip())
        self.title = self.title or text
        self.term, self.explained = "", True
        while self.path and self.path[-1][0] >= level:
            self.path.pop()
        words = text.capitalize() if text.isupper() and len(text) > 4 else text
        self.path.append((level, words))

    def _headings(self) -> tuple[str, ...]:
        return tuple(text for _, text in self.path)

    def _line(self, number: int) -> str:
        return self.lines[number - 1] if number <= len(self.lines) else ""


def _columns(described: str) -> int:
    """How many columns `cols="1,2"` or `cols="3*"` describes."""
    times = re.fullmatch(r"\s*(\d{1,2})\*.*", described)
    return int(times[1]) if times else len(re.split("[,;]", described))
