"""Charts of a table's rows: which one fits, and how it is drawn as SVG. Pure.

All text of a chart is of the database: it is escaped for terminals and for XML, and bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from typing_extensions import TypedDict

from noesium_stream.escapes import escaped

MAX_POINTS: Final = 60
"""Rows that a chart shows; of more none is drawn, because nobody could read it."""

_WIDTH: Final = 720
_LEFT: Final = 200
_RIGHT: Final = 90
_TOP: Final = 44
_BAR: Final = 24
_LINE_HEIGHT: Final = 300
_LABEL: Final = 28
_TITLE: Final = 80
_NUMBER: Final = re.compile(r"-?\d{1,30}(\.\d{1,30})?(e[+-]?\d{1,2})?", re.IGNORECASE)
_DATE: Final = re.compile(r"\d{4}(-\d{2}(-\d{2}([ T].{0,40})?)?)?")
_LARGEST: Final = 1e30
_STYLE: Final = "font-family='sans-serif' font-size='12'"
_COLOUR: Final = "#3b6ea5"


class Chart(TypedDict):
    """A chart. `kind`: `bar` or `line`; as many labels as values."""

    kind: str
    title: str
    labels: list[str]
    values: list[float]


def chart_of(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Chart | None:
    """The chart that fits rows; None: none does.

    One number for each label, so: two columns, the second one of numbers alone. Times in order are a line,
    everything else is bars.
    """
    if len(columns) != 2 or not 2 <= len(rows) <= MAX_POINTS:
        return None
    values = [number_of(row[1]) for row in rows]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(rows):
        return None
    labels = ["(none)" if row[0] is None else str(row[0])[:200] for row in rows]
    dated = all(_DATE.fullmatch(label) for label in labels) and labels == sorted(labels)
    return {"kind": "line" if dated else "bar", "title": title[:200], "labels": labels, "values": numbers}


def number_of(value: Any) -> float | None:
    """A value of a table as a number; None: it is none. Postgres gives its exact decimals as text."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) <= _LARGEST else None
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        found = float(value)
        return found if abs(found) <= _LARGEST else None
    return None


def svg_of(chart: Chart) -> str:
    """The chart as an SVG document, without scripts, links or anything else that loads."""
    labels, values = chart["labels"][:MAX_POINTS], chart["values"][:MAX_POINTS]
    points = list(zip(labels, values, strict=False))
    drawn, height = _line(points) if chart["kind"] == "line" else _bars(points)
    title = f"<text x='12' y='24' {_STYLE} font-weight='bold'>{_text(chart['title'], _TITLE)}</text>"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{height}'"
        f" viewBox='0 0 {_WIDTH} {height}' role='img'>\n"
        f"<rect width='100%' height='100%' fill='white'/>\n{title}\n" + "\n".join(drawn) + "\n</svg>\n"
    )


def _bars(points: Sequence[tuple[str, float]]) -> tuple[list[str], int]:
    low, high = _bounds(points)
    scale = (_WIDTH - _LEFT - _RIGHT) / (high - low)
    zero = _LEFT - low * scale
    drawn = []
    for number, (label, value) in enumerate(points):
        y = _TOP + number * _BAR
        x, width = (zero, value * scale) if value >= 0 else (zero + value * scale, -value * scale)
        drawn.append(
            f"<text x='{_LEFT - 8}' y='{y + 14}' text-anchor='end' {_STYLE}>{_text(label, _LABEL)}</text>"
            f"<rect x='{x:.1f}' y='{y}' width='{width:.1f}' height='{_BAR - 6}' fill='{_COLOUR}'/>"
            f"<text x='{x + width + 6:.1f}' y='{y + 14}' {_STYLE}>{shown(value)}</text>"
        )
    return drawn, _TOP + len(points) * _BAR + 12


def _line(points: Sequence[tuple[str, float]]) -> tuple[list[str], int]:
    low, high = _bounds(points)
    left, right = 90, 40
    step = (_WIDTH - left - right) / max(1, len(points) - 1)

    def y_of(value: float) -> float:
        return _TOP + _LINE_HEIGHT - (value - low) / (high - low) * _LINE_HEIGHT

    places = [(left + number * step, y_of(value)) for number, (_, value) in enumerate(points)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    every = max(1, -(-len(points) // 8))
    below = _TOP + _LINE_HEIGHT + 20
    ticks = [
        f"<text x='{places[number][0]:.1f}' y='{below}' text-anchor='middle' {_STYLE}>"
        f"{_text(label, 12)}</text>"
        for number, (label, _) in enumerate(points)
        if number % every == 0
    ]
    marks = [
        f"<path d='M{left} {y:.1f}H{_WIDTH - right}' stroke='#ddd'/>"
        f"<text x='{left - 8}' y='{y + 4:.1f}' text-anchor='end' {_STYLE}>{shown(value)}</text>"
        for value, y in ((value, y_of(value)) for value in (low, (low + high) / 2, high))
    ]
    line = f"<polyline points='{path}' fill='none' stroke='{_COLOUR}' stroke-width='2'/>"
    return [*marks, line, *ticks], below + 16


def _bounds(points: Sequence[tuple[str, float]]) -> tuple[float, float]:
    """From the least to the largest value, with 0, and never of no width."""
    low = min(0.0, *(value for _, value in points))
    high = max(0.0, *(value for _, value in points))
    return (low, high) if high > low else (low, low + 1.0)


def shown(value: float) -> str:
    """A number for people: at most two places behind the point."""
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def _text(text: str, most: int) -> str:
    plain = escaped(text)
    return escape(plain if len(plain) <= most else f"{plain[: most - 1]}…", quote=True)
