"""Output for people: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click


def wants_color(*, err: bool = False) -> bool:
    """Whether to use colours: a terminal reads the output and NO_COLOR is not set."""
    stream = sys.stderr if err else sys.stdout
    return not os.environ.get("NO_COLOR") and stream.isatty()


def out(text: str) -> None:
    """Print a line of a result."""
    click.echo(text, color=wants_color())


def out_json(value: Any, *, lines: bool = False) -> None:
    """Print a result as JSON: indented, or as one line of JSON Lines, flushed at once for pipes."""
    indent = None if lines else 2
    escapes = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    click.echo(json.dumps(value, indent=indent, ensure_ascii=escapes, default=str))


def note(text: str) -> None:
    """Print a progress line for people on standard error."""
    click.echo(text, err=True, color=wants_color(err=True))


def dim(text: str) -> str:
    """Style a less important text."""
    return click.style(text, dim=True)


def bold(text: str) -> str:
    """Style a more important text."""
    return click.style(text, bold=True)


def duration(ms: int) -> str:
    """Format a duration: `12 ms`, `2.31 s`, `4 min 5 s`, `3 h 7 min`."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def shorten(text: str, width: int) -> str:
    """Put `text` on one line and cut it at `width`."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def counts(delta: Any) -> str:
    """Count the items in the result of a step or call: `3 queries, 12 passages`."""
    if not isinstance(delta, dict):
        return ""
    return ", ".join(
        f"{len(value)} {_singular(name) if len(value) == 1 else name}"
        for name, value in delta.items()
        if isinstance(value, list)
    )


def _singular(name: str) -> str:
    if name.endswith("ies"):
        return f"{name[:-3]}y"
    return name.removesuffix("s")
