"""What can be quoted of a block: sentences, list items, rows of tables, terms, code, each on its lines.

A unit is plain text: markup is gone, but for backticks around names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from agents.documents.blocks import Block
from agents.documents.inline import plain, plain_lines

ITEM_WORDS: Final = 40
"""List items of more words are quoted by the sentence."""

UnitKind = Literal["prose", "item", "term", "head", "row", "code"]

_ITEM: Final = re.compile(r"\s*(?:[-*+•]|\(?\d{1,3}[.)]|\(?[a-z]\))\s+(?=\S)")
_FIELD: Final = re.compile(r"\s*:[\w ]{1,40}:\s")
_FENCE: Final = re.compile(r"\s*(?:`{3,}[^`]*|~~~\s*\w*\s*)$")
_OPENING: Final = re.compile(r"\s*(?:(?:[-*+]|\d{1,3}[.)]) +){0,9}(`{3,}|~{3,})")
_SENTENCE: Final = re.compile(r"(?<=[.!?])[\"'”)\]*_]{0,2}\s+(?=[\"'“(\[*_`]{0,2}[A-Z0-9À-Þ`])")
_ABBREVIATION: Final = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|etc|approx|resp|Dr|Mr|Mrs|Ms|No|Fig|Sec|St|ca)\.|\b[A-Z]\.)$"
)
_SPAN: Final = re.compile(r"`[^`]{1,2000}`")
_QUOTE_MARK: Final = re.compile(r"^ {0,3}(?!>>>)(?:> ?){1,20}")
_RULE: Final = re.compile(r"\s*([^\w\s])\1{3,}\s*$")
_GRID: Final = re.compile(r"\s*\+(?:[-=]+\+)+\s*$")
_COLUMNS: Final = re.compile(r"\s*={2,}(?: +={2,})+\s*$")
_ALIGNED: Final = re.compile(r"\S(?: {3,}| ?\t+)\S")
_BAR: Final = re.compile(r"(?<!\\)\|")
_TRIPLE: Final = re.compile(r'"""|' + "'''")
_DOCSTRING_END: Final = re.compile(r"""^\s*[rRuU]?(\"{3}|'{3})|(\"{3}|'{3})\s*$""")


@dataclass(frozen=True, slots=True)
class Unit:
    """Something to quote. `group` numbers the paragraph, item, table, term or code that it is part of.

    `first` and `last` are lines of the file, from 1; 0 where there are none (PDF).
    """

    kind: UnitKind
    text: str
    first: int
    last: int
    group: int = 0


@dataclass(slots=True)
class _Segment:
    kind: UnitKind
    lines: list[tuple[int, str]]


def units_of(block: Block, syntax: str, group: int) -> list[Unit]:
    """The units of a block, in order; their groups count from `group`.

    `syntax` is that of the block's document; see `Document`.
    """
    exact = block.page is None and block.end - block.start + 1 == len(block.lines)
    places = block.at or [block.start + at if exact else block.start for at in range(len(block.lines))]
    numbered = list(zip(places, block.lines, strict=True))
    if block.kind == "code":
        segments = [_Segment("code", _unfenced(numbered) if syntax == "markdown" else _filled(numbered))]
    elif block.kind == "table":
        segments = [_Segment("row", numbered)]
    elif block.kind == "term":
        segments = [_Segment("term", numbered[:1]), *_segments(_dedented(numbered[1:]), syntax)]
    elif block.kind in ("prose", "item"):
        segments = [_Segment("item" if block.kind == "item" else "prose", numbered)]
    else:
        segments = _python_segments(numbered) if syntax == "python" else _segments(numbered, syntax)
    units: list[Unit] = []
    for number, segment in enumerate(segments):
        at = group if block.kind == "term" else group + number
        units += _of_segment(segment, syntax, at)
    if not exact and not block.at:
        units = [replace(unit, first=block.start, last=block.end) for unit in units]
    return [unit for unit in units if any(c.isalnum() for c in unit.text)]


def _of_segment(segment: _Segment, syntax: str, group: int) -> list[Unit]:
    if segment.kind == "row":
        rows = [
            Unit("row", _cells(line, syntax), number, number, group)
            for number, line in segment.lines
            if any(c.isalnum() for c in line)
        ]
        has_head = len(rows) > 1 and bool(segment.lines[0][1].strip())
        return [replace(rows[0], kind="head"), *rows[1:]] if has_head else rows
    if segment.kind == "code":
        return [_code(segment, group)] if segment.lines else []
    if segment.kind == "term":
        number, line = segment.lines[0]
        return [Unit("term", plain(line.strip(), syntax), number, number, group)]
    if segment.kind == "item" and not _is_long(segment):
        text = plain(" ".join(line.strip() for _, line in segment.lines), syntax)
        return [Unit("item", text, segment.lines[0][0], segment.lines[-1][0], group)]
    return _sentences(segment, syntax, group)


def _cells(line: str, syntax: str) -> str:
    cells = _BAR.split(line.strip().removeprefix("|").removesuffix("|"))
    return " | ".join(plain(cell.replace("\\|", "|"), syntax) for cell in cells)


def _segments(lines: Sequence[tuple[int, str]], syntax: str) -> list[_Segment]:
    segments: list[_Segment] = []
    fenced = False
    open_segment: _Segment | None = None
    for number, marked in _with_cells(lines):
        line = marked if syntax == "rst" else _QUOTE_MARK.sub("", marked)
        if syntax in ("", "python") and _FENCE.match(line):
            fenced = not fenced
            open_segment = _Segment("code", []) if fenced else None
            if open_segment is not None:
                segments.append(open_segment)
            continue
        if fenced and open_segment is not None:
            open_segment.lines.append((number, line))
            continue
        kind = _kind_of(line, open_segment, syntax)
        if kind is None:
            open_segment = None
        elif open_segment is None or kind != open_segment.kind or _begins_item(line):
            open_segment = _Segment(kind, [(number, line)])
            segments.append(open_segment)
        else:
            open_segment.lines.append((number, line))
    for segment in segments:
        if segment.kind == "prose" and sum(1 for _, line in segment.lines if _ALIGNED.search(line)) > 1:
            segment.kind = "code"
    return _with_code_joined([segment for segment in segments if segment.lines])


def _with_cells(lines: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    """Lines in which the rows of a table of reStructuredText's simple form have their cells parted by `|`."""
    marks = [at for at, (_, line) in enumerate(lines) if _COLUMNS.match(line)]
    if len(marks) < 2:
        return lines
    starts = [match.start() for match in re.finditer("=+", lines[marks[0]][1])]
    rows: list[tuple[int, list[str]]] = []
    for number, line in lines[marks[0] : marks[-1] + 1]:
        if not line.strip(" =-"):
            continue
        cells = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        if rows and not cells[0] and not line[: starts[0]].strip():
            both = zip(rows[-1][1], cells, strict=True)
            rows[-1] = (rows[-1][0], [f"{above} {below}".strip() for above, below in both])
        else:
            rows.append((number, cells))
    shown = [(number, f"| {' | '.join(cells)} |") for number, cells in rows]
    return [*lines[: marks[0]], *shown, *lines[marks[-1] + 1 :]]


def _kind_of(line: str, before: _Segment | None, syntax: str) -> UnitKind | None:
    """What `line` is part of; None for a blank one. `before` is the segment of the line above, if any."""
    if not line.strip() or _RULE.match(line):
        return None
    if line.lstrip().startswith("|") or line.count(" | ") >= 2 or _GRID.match(line):
        return "row"
    if _begins_item(line):
        return "item"
    if line.lstrip().startswith((">>>", "$ ")):
        return "code"
    if before is not None:
        return "prose" if before.kind == "row" else before.kind
    # Markdown and reStructuredText have other marks of code, and indent texts in lists
    return "code" if line.startswith(("    ", "\t")) and syntax in ("", "python") else "prose"


def _begins_item(line: str) -> bool:
    return bool(_ITEM.match(line) or _FIELD.match(line))


def _with_code_joined(segments: list[_Segment]) -> list[_Segment]:
    """Code that blank lines cut in pieces is one piece again."""
    result: list[_Segment] = []
    for segment in segments:
        last = result[-1] if result else None
        if last and last.kind == segment.kind == "code" and segment.lines[0][0] - last.lines[-1][0] <= 2:
            last.lines += [(at, "") for at in range(last.lines[-1][0] + 1, segment.lines[0][0])]
            last.lines += segment.lines
        else:
            result.append(segment)
    return result


def _python_segments(lines: Sequence[tuple[int, str]]) -> list[_Segment]:
    """Docstrings and comments are prose, the rest is code."""
    segments: list[_Segment] = []
    at = 0
    while at < len(lines):
        number, line = lines[at]
        opening = _TRIPLE.search(line)
        if opening and not line[: opening.start()].strip(" \trRuU"):
            end = _docstring_end(lines, at, opening)
            segments += _docstring(lines[at : end + 1])
            at = end + 1
            continue
        if line.strip():
            kind: UnitKind = "prose" if line.lstrip().startswith("#") else "code"
            content = line.lstrip(" #") if kind == "prose" else line
            previous = segments[-1] if segments else None
            if _RULE.match(line.lstrip(" #")):
                content = ""
            if previous and previous.kind == kind and previous.lines[-1][0] == number - 1 and content:
                previous.lines.append((number, content))
            elif content:
                segments.append(_Segment(kind, [(number, content)]))
        at += 1
    return segments


def _docstring_end(lines: Sequence[tuple[int, str]], at: int, opening: re.Match[str]) -> int:
    if opening.group() in lines[at][1][opening.end() :]:
        return at
    return next(
        (later for later in range(at + 1, len(lines)) if opening.group() in lines[later][1]), len(lines) - 1
    )


def _docstring(lines: Sequence[tuple[int, str]]) -> list[_Segment]:
    """The segments of a docstring, without its quotes and indentation."""
    content = [(number, _DOCSTRING_END.sub("", line)) for number, line in lines]
    first, line = content[0]
    return _segments([(first, line.strip()), *_dedented(content[1:])], "python")


def _dedented(lines: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    indent = min((len(line) - len(line.lstrip()) for _, line in lines if line.strip()), default=0)
    return [(number, line[indent:]) for number, line in lines]


def _sentences(segment: _Segment, syntax: str, group: int) -> list[Unit]:
    """The sentences of a paragraph; each begins and ends on the lines that hold it."""
    text = plain_lines("\n".join(line.strip() for _, line in segment.lines), syntax)
    numbers = [number for number, _ in segment.lines]
    ends = [at for at, c in enumerate(text) if c == "\n"]
    kind: UnitKind = "item" if segment.kind == "item" else "prose"
    units: list[Unit] = []
    begin = 0
    for end in [*_boundaries(text), len(text)]:
        part = text[begin:end]
        sentence = " ".join(part.split())
        if sentence:
            first = begin + len(part) - len(part.lstrip())
            last = begin + len(part.rstrip())
            lines = [numbers[min(bisect_right(ends, at), len(numbers) - 1)] for at in (first, last - 1)]
            units.append(Unit(kind, sentence, lines[0], lines[1], group))
        begin = end
    return units


def _boundaries(text: str) -> list[int]:
    """Where sentences end, outside of spans of code."""
    found: list[int] = []
    spans = _SPAN.finditer(text)
    span = next(spans, None)
    for match in _SENTENCE.finditer(text):
        while span is not None and span.end() <= match.start():
            span = next(spans, None)
        within = span is not None and span.start() < match.start()
        if not within and not _ABBREVIATION.search(text[max(0, match.start() - 12) : match.start()]):
            found.append(match.end())
    return found


def _is_long(segment: _Segment) -> bool:
    return sum(len(line.split()) for _, line in segment.lines) > ITEM_WORDS


def _unfenced(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    if all(line.lstrip().startswith(">") for _, line in lines):
        lines = [(number, _QUOTE_MARK.sub("", line)) for number, line in lines]
    if lines and (opening := _OPENING.match(lines[0][1])):
        closed = len(lines) > 1 and lines[-1][1].strip().startswith(opening[1])
        lines = lines[1:-1] if closed else lines[1:]
    return _filled(lines)


def _filled(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Lines without the blank ones at both ends."""
    filled = [at for at, (_, line) in enumerate(lines) if line.strip()]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _code(segment: _Segment, group: int) -> Unit:
    lines = segment.lines
    indent = min((len(line) - len(line.lstrip()) for _, line in lines if line.strip()), default=0)
    text = "\n".join(line[indent:].rstrip() for _, line in lines)
    return Unit("code", text, lines[0][0], lines[-1][0], group)
