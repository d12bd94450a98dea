"""A passage's text taken apart into what can be quoted: sentences, list items, table rows, code.

Each unit knows its first and last line within the passage, so that a quote can name its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ITEM_WORDS = 40
"""List items of more words are quoted by the sentence."""

Kind = Literal["prose", "item", "table", "code"]

_ITEM = re.compile(
    r"\s*(?:[-*+•]|\(?\d{1,3}[.)]|[a-z]\))\s+\S|\s*:[\w ]{1,40}:\s|\s*\.\. (?:note|tip|warning)"
)
_FENCE = re.compile(r"\s*(```|~~~)")
_SENTENCE = re.compile(r"(?<=[.!?])[\"'”)\]*_]{0,2}\s+(?=[\"'“(\[*_`]{0,2}[A-Z0-9À-Þ`])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|etc|approx|resp|Dr|Mr|Mrs|Ms|No|Fig|Sec|St)\.|\b[A-Z]\.)$"
)
_QUOTE_MARK = re.compile(r"^ {0,3}(?:> ?)+(?!>>)(?=[^>]|$)")
_RULE = re.compile(r"\s*([^\w\s])\1{3,}\s*$")
_ALIGNED = re.compile(r"\S(?: {3,}| -- | ?\t+)\S")
_TRIPLE = re.compile(r'"""|' + "'''")


@dataclass(frozen=True, slots=True)
class Unit:
    """Something to quote. `group` numbers the paragraph, list, table or code block that it is part of."""

    kind: Kind
    text: str
    first: int
    last: int
    group: int


@dataclass(slots=True)
class _Segment:
    kind: Kind
    lines: list[tuple[int, str]]


def units_of(text: str, path: str) -> list[Unit]:
    """The units of a passage of the file `path`, in order."""
    lines = text.split("\n")
    segments = _python_segments(lines) if path.endswith((".py", ".pyi")) else _segments(lines)
    units: list[Unit] = []
    for group, segment in enumerate(segments):
        if segment.kind == "prose" or (segment.kind == "item" and _is_long(segment)):
            units += _sentences(segment, group)
        elif segment.kind == "table" and _is_grid(segment):
            units += [Unit("table", line.strip(), number, number, group) for number, line in segment.lines]
        else:
            units.append(_whole(segment, group))
    return units


def header_of(units: Sequence[Unit], at: int) -> list[Unit]:
    """The header of the table of row `at`: the row above the rule and the rule, else the first row."""
    table = [unit for unit in units if unit.group == units[at].group]
    ruled = len(table) > 1 and not any(c.isalnum() for c in table[1].text)
    return table[:2] if ruled else table[:1]


def flat(text: str) -> str:
    """`text` on one line, with single spaces."""
    return " ".join(text.split())


def _segments(lines: list[str], offset: int = 0) -> list[_Segment]:
    segments: list[_Segment] = []
    fenced = False
    open_segment: _Segment | None = None
    for number, marked in enumerate(lines, offset):
        line = _QUOTE_MARK.sub("", marked)
        if _FENCE.match(line):
            fenced = not fenced
            if fenced:
                open_segment = _Segment("code", [])
                segments.append(open_segment)
            else:
                open_segment = None
            continue
        if fenced and open_segment is not None:
            open_segment.lines.append((number, line))
            continue
        kind = _kind_of(line, open_segment)
        if kind is None:
            open_segment = None
        elif open_segment is None or kind != open_segment.kind or _begins_anew(line, kind):
            open_segment = _Segment(kind, [(number, line)])
            segments.append(open_segment)
        else:
            open_segment.lines.append((number, line))
    for segment in segments:
        if segment.kind == "prose" and sum(1 for _, line in segment.lines if _ALIGNED.search(line)) > 1:
            segment.kind = "table"
    return _with_code_joined([segment for segment in segments if segment.lines])


def _kind_of(line: str, before: _Segment | None) -> Kind | None:
    """What `line` is part of; None for a blank one. `before` is the segment of the line above, if any."""
    if not line.strip() or _RULE.match(line):
        return None
    if line.lstrip().startswith("|") or line.count(" | ") >= 2:
        return "table"
    if _ITEM.match(line):
        return "item"
    if line.lstrip().startswith((">>>", "$ ")):
        return "code"
    if before is not None:
        return "prose" if before.kind == "table" else before.kind
    return "code" if line.startswith(("    ", "\t")) else "prose"


def _begins_anew(line: str, kind: Kind) -> bool:
    return kind == "item" and bool(_ITEM.match(line))


def _with_code_joined(segments: list[_Segment]) -> list[_Segment]:
    """Code that blank lines cut in pieces is one piece again."""
    result: list[_Segment] = []
    for segment in segments:
        last = result[-1] if result else None
        if last and last.kind == segment.kind == "code" and segment.lines[0][0] - last.lines[-1][0] <= 2:
            last.lines += segment.lines
        else:
            result.append(segment)
    return result


def _python_segments(lines: list[str]) -> list[_Segment]:
    """Docstrings and comments are prose, the rest is code."""
    segments: list[_Segment] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        opening = _TRIPLE.search(line)
        if opening and not line[: opening.start()].strip(" rRuU"):
            end = _docstring_end(lines, at, opening)
            segments += _docstring(lines, at, end)
            at = end + 1
            continue
        if line.strip():
            kind: Kind = "prose" if line.lstrip().startswith("#") else "code"
            content = line.lstrip(" #") if kind == "prose" else line
            previous = segments[-1] if segments else None
            if _RULE.match(line.lstrip(" #")):
                content = ""
            if previous and previous.kind == kind and previous.lines[-1][0] == at - 1 and content:
                previous.lines.append((at, content))
            elif content:
                segments.append(_Segment(kind, [(at, content)]))
        at += 1
    return segments


def _docstring_end(lines: list[str], at: int, opening: re.Match[str]) -> int:
    if opening.group() in lines[at][opening.end() :]:
        return at
    return next(
        (later for later in range(at + 1, len(lines)) if opening.group() in lines[later]), len(lines) - 1
    )


def _docstring(lines: list[str], first: int, last: int) -> list[_Segment]:
    """The segments of a docstring on lines `first` to `last`, without its quotes and indentation."""
    content = [
        re.sub(r"""^\s*[rRuU]?(\"{3}|'{3})|(\"{3}|'{3})\s*$""", "", line) for line in lines[first : last + 1]
    ]
    indents = [len(line) - len(line.lstrip()) for line in content[1:] if line.strip()]
    indent = min(indents, default=0)
    return _segments([content[0].strip(), *(line[indent:] for line in content[1:])], first)


def _sentences(segment: _Segment, group: int) -> list[Unit]:
    """The sentences of a paragraph; each begins and ends on the lines that hold it."""
    text = ""
    starts: list[tuple[int, int]] = []
    for number, line in segment.lines:
        starts.append((len(text), number))
        text += line.strip() + " "
    units: list[Unit] = []
    begin = 0
    for end in [*_boundaries(text), len(text)]:
        sentence = text[begin:end].strip()
        if sentence:
            units.append(
                Unit(segment.kind, sentence, _line_at(starts, begin), _line_at(starts, end - 1), group)
            )
        begin = end
    return units


def _boundaries(text: str) -> list[int]:
    return [
        match.end()
        for match in _SENTENCE.finditer(text)
        if not _ABBREVIATION.search(text[: match.start()][-12:])
    ]


def _line_at(starts: list[tuple[int, int]], position: int) -> int:
    return max((number for start, number in starts if start <= position), default=starts[0][1])


def _is_grid(segment: _Segment) -> bool:
    """Rows of cells, each of which can be quoted by itself."""
    return all("|" in line for _, line in segment.lines)


def _is_long(segment: _Segment) -> bool:
    return sum(len(line.split()) for _, line in segment.lines) > ITEM_WORDS


def _whole(segment: _Segment, group: int) -> Unit:
    lines = segment.lines
    if segment.kind == "item":
        text = flat(" ".join(line for _, line in lines))
    else:
        indent = min((len(line) - len(line.lstrip()) for _, line in lines if line.strip()), default=0)
        filled = dict(lines)
        text = "\n".join(filled.get(n, "")[indent:].rstrip() for n in range(lines[0][0], lines[-1][0] + 1))
    return Unit(segment.kind, text, lines[0][0], lines[-1][0], group)
