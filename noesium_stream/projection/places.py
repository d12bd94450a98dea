"""Where in the user's code an error was raised, for what is said of it."""

from __future__ import annotations

import traceback

from noesium_stream.purity.blame import Origin, origin_of, shown


def line_of(error: BaseException) -> str | None:
    """`FILE:LINE`, the innermost line of the user's own code; None where none is on the way.

    A file below the current folder is named relative to it.
    """
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if origin_of(frame.f_code.co_filename) is Origin.USER:
            found = shown(frame.f_code.co_filename, line)
    return found


def with_line(text: str, error: BaseException) -> str:
    """`TEXT (FILE:LINE)`, or the text alone where no line is known."""
    where = line_of(error)
    return text if where is None else f"{text} ({where})"
