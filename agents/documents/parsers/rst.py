"""reStructuredText: sections by their underlines, paragraphs, and literal blocks that stay whole.

Decision record: docutils takes 33 s for 1 MB where this takes 0.5 s, and does not know the directives and
roles of Sphinx, in which most reStructuredText is written: it reads their text as errors.
"""

from __future__ import annotations

import re

from agents.documents.blocks import Block, Document, lines_block
from agents.documents.decoding import decode, split_lines

_RULE = re.compile(r"([!-/:-@\[-`{-~])\1+[ \t]*$")
_CODE = re.compile(r"\.\. (code-block|code|sourcecode|literalinclude|doctest|testcode)::")
_NOISE = re.compile(r"\.\. ([\w-]+::|_[^:]+:|\|)")
_SPOKEN = re.compile(
    r"\.\. (note|warning|tip|important|caution|hint|attention|danger|seealso|admonition|"
    r"deprecated|version\w+|function|class|method|data|attribute|exception|describe|option|cmdoption|envvar|decorator|module|"
    r"py:\w+)::"
)
_ROLE = re.compile(
    r":[\w:-]+:`~?([^`<]+?)(?: <[^`]*>)?`|`([^`<]+?)(?: <[^`]*>)?`_{0,2}|\*{1,2}(?=\S)|(?<=\S)\*{1,2}"
)


def parse(data: bytes, path: str) -> Document:
    """Blocks with their section paths; the title is the first section."""
    reader = _Reader(split_lines(decode(data)))
    reader.read()
    return Document(reader.title or path, reader.blocks)


def plain(text: str) -> str:
    """A section title without roles and emphasis."""
    return _ROLE.sub(lambda match: match.group(1) or match.group(2) or "", text).strip()


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.blocks: list[Block] = []
        self.title = ""
        self.styles: list[str] = []
        self.path: list[str] = []

    def read(self) -> None:
        number = 1
        while number <= len(self.lines):
            number = self._take(number) + 1

    def _take(self, number: int) -> int:
        """Read what begins at `number`; return its last line."""
        line = self._line(number)
        if not line.strip():
            return number
        if self._is_rule(number) and self._title_at(number + 1) and self._is_rule(number + 2):
            self._enter(line[0] * 2, self._line(number + 1))
            return number + 2
        if self._title_at(number) and self._is_rule(number + 1, len(line.strip())):
            self._enter(self._line(number + 1)[0], line)
            return number + 1
        if _NOISE.match(line) and not _SPOKEN.match(line):
            return self._directive(number)
        return self._paragraph(number)

    def _paragraph(self, number: int) -> int:
        """A paragraph, with the literal block that `::` at its end announces."""
        last = number
        while self._line(last + 1).strip() and not self._section_at(last + 1):
            last += 1
        end = last
        if self._line(last).rstrip().endswith("::"):
            end = self._indented_end(last + 1, self._indent(number))
        self.blocks.append(lines_block(self.lines, number, end, tuple(self.path), code=end > last))
        return end

    def _directive(self, number: int) -> int:
        """A directive that is not prose: code is kept, pictures, targets and comments are not."""
        end = self._indented_end(number + 1, self._indent(number))
        if _CODE.match(self._line(number)) and end > number:
            self.blocks.append(lines_block(self.lines, number + 1, end, tuple(self.path), code=True))
        return end

    def _indented_end(self, number: int, indent: int) -> int:
        """The last line of the deeper indented part that begins at or after `number`."""
        end = number - 1
        for later in range(number, len(self.lines) + 1):
            if not self._line(later).strip():
                continue
            if self._indent(later) <= indent:
                break
            end = later
        return end

    def _section_at(self, number: int) -> bool:
        return self._title_at(number) and self._is_rule(number + 1, len(self._line(number).strip()))

    def _title_at(self, number: int) -> bool:
        line = self._line(number)
        return bool(line.strip()) and len(line) < 120 and any(c.isalnum() for c in line)

    def _is_rule(self, number: int, at_least: int = 3) -> bool:
        line = self._line(number).rstrip()
        return len(line) >= max(2, at_least) and bool(_RULE.match(line))

    def _enter(self, style: str, text: str) -> None:
        text = plain(text)
        self.title = self.title or text
        if style not in self.styles:
            self.styles.append(style)
        level = self.styles.index(style)
        self.path[level:] = [text]

    def _line(self, number: int) -> str:
        return self.lines[number - 1] if number <= len(self.lines) else ""

    def _indent(self, number: int) -> int:
        line = self._line(number)
        return len(line) - len(line.lstrip())
