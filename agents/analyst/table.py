"""Rows as a text table: what a database holds is shown, and cannot draw anything itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agents.analyst.chart import number_of
from noesium_stream.escapes import escaped

MAX_ROWS: Final = 50
MAX_CELL: Final = 60


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The first rows below their columns; numbers stand right. Each row is one line."""
    shown = [[_cell(value) for value in row] for row in rows[:MAX_ROWS]]
    names = [_cell(name) for name in columns]
    widths = [
        max(len(name), *(len(row[at]) for row in shown)) if shown else len(name)
        for at, name in enumerate(names)
    ]
    right = [
        bool(shown) and all(row[at] is None or number_of(row[at]) is not None for row in rows[:MAX_ROWS])
        for at in range(len(names))
    ]
    lines = [_line(names, widths, right), "  ".join("-" * width for width in widths)]
    lines += [_line(row, widths, right) for row in shown]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = (
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(cells, widths, right, strict=True)
    )
    return "  ".join(parts).rstrip()


def _cell(value: Any) -> str:
    text = "" if value is None else escaped(str(value)[: 4 * MAX_CELL])
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"
