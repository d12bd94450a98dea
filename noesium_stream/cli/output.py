"""What people see: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click


def wants_color(*, err: bool = False) -> bool:
    """Whether a person at a terminal reads it, and has not said NO_COLOR."""
    stream = sys.stderr if err else sys.stdout
    return not os.environ.get("NO_COLOR") and stream.isatty()


def out(text: str) -> None:
    """A line of result."""
    click.echo(text, color=wants_color())


def out_json(value: Any, *, lines: bool = False) -> None:
    """A result as JSON: indented, or as one line of JSON Lines (flushed, so that a pipe sees it at once)."""
    indent = None if lines else 2
    click.echo(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def note(text: str) -> None:
    """A line for people about what goes on, on standard error."""
    click.echo(text, err=True, color=wants_color(err=True))


def dim(text: str) -> str:
    """Less important."""
    return click.style(text, dim=True)


def bold(text: str) -> str:
    """More important."""
    return click.style(text, bold=True)


def duration(ms: int) -> str:
    """`12 ms`, `2.31 s`, `4 min 5 s`, `3 h 7 min`."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def size(count: int) -> str:
    """`450 B`, `12.3 kB`, `4.0 MB`: decimal units."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    below: Sequence[str] = (),
) -> None:
    """Columns as wide as they must be; those in `right` (by number) are set to the right.

    `below` has for each row what stands indented on a line of its own under it; empty: nothing.
    """
    cells = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for number, row in enumerate(cells):
        parts = [
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(parts).rstrip()
        out(dim(line) if number == 0 else line)
        if 0 < number <= len(below) and below[number - 1]:
            out(f"  {below[number - 1]}")


def shorten(text: str, width: int) -> str:
    """`text` on one line, cut at `width`."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"
