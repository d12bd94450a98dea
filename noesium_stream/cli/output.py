"""Output for people: results on standard output, everything else on standard error.

All that the command line prints goes through these functions. They escape what a terminal would obey (see
`escapes`), so that text of a record, a file or a URL can be handed to them as it is.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any, Final

import click

from noesium_stream import escapes
from noesium_stream.redaction import redacted

_BOLD: Final = 1
_DIM: Final = 2
_RED: Final = 31


def wants_color(*, err: bool = False) -> bool:
    """Whether to use colours: a terminal reads the output and NO_COLOR is not set."""
    stream = sys.stderr if err else sys.stdout
    return not os.environ.get("NO_COLOR") and stream.isatty()


def out(text: str) -> None:
    """Print a line of a result; a line break in it is shown as an escape."""
    color = wants_color()
    click.echo(escapes.line(text, color=color), color=color)


def out_lines(text: str) -> None:
    """Print a result that has several lines."""
    color = wants_color()
    click.echo(escapes.lines(text, color=color), color=color)


def out_json(value: Any, *, lines: bool = False) -> None:
    """Print a result as JSON: indented, or as one line of JSON Lines, flushed at once for pipes."""
    click.echo(json_text(value, indent=None if lines else 2))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Format a value as JSON that a terminal only shows."""
    ascii_only = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=str)
    return escapes.escaped_json(text)


class PartialLine:
    """A line of a stream that is printed part by part."""

    def __init__(self, *, err: bool) -> None:
        self._err = err
        self._is_open = False

    def add(self, text: str) -> None:
        """Print the next part, which may end the line and begin others; progress is indented."""
        indent = "    " if self._err else ""
        shown = escapes.lines(redacted(text) if self._err else text, color=False, indent=indent)
        begins = "" if self._is_open or shown.startswith("\n") else indent
        click.echo(begins + shown, nl=False, err=self._err, color=False)
        self._is_open = not shown.endswith("\n")

    def end(self) -> None:
        """End the line, if there is one."""
        if self._is_open:
            self.add("\n")

    def make_room(self) -> None:
        """End the line if a line on standard error would continue it."""
        if self._err or sys.stdout.isatty():
            self.end()


progress_part: Final = PartialLine(err=True)
result_part: Final = PartialLine(err=False)


def note(text: str) -> None:
    """Print a progress line for people on standard error; more lines in it are indented, secrets hidden."""
    for part in (progress_part, result_part):
        part.make_room()
    color = wants_color(err=True)
    click.echo(escapes.lines(redacted(text), color=color, indent="  "), err=True, color=color)


def say_error(message: str, hint: str | None = None) -> None:
    """Print `error: MESSAGE` and the indented hint on standard error."""
    note(f"{escapes.styled('error:', _RED)} {message}")
    for one in (hint or "").splitlines():
        note(f"  {one}")


class LogFormatter(logging.Formatter):
    """Formats log records for standard error, escaped as everything else."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return escapes.lines(redacted(super().format(record)), color=False, indent="  ")


def dim(text: str) -> str:
    """Style a less important text."""
    return escapes.styled(text, _DIM)


def bold(text: str) -> str:
    """Style a more important text."""
    return escapes.styled(text, _BOLD)


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
