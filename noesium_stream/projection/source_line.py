"""Location of an error in the user's code, for messages."""

from __future__ import annotations

import traceback

from noesium_stream.purity.blame import Origin, origin_of, shown


def line_of(error: BaseException) -> str | None:
    """`FILE:LINE` of the innermost line of the user's own code; None if there is none in the traceback.

    A file below the current folder is named relative to it.
    """
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if origin_of(frame.f_code.co_filename) is Origin.USER:
            found = shown(frame.f_code.co_filename, line)
    return found


def with_line(text: str, error: BaseException) -> str:
    """`TEXT (FILE:LINE)`, or only the text if no line is known."""
    where = line_of(error)
    return text if where is None else f"{text} ({where})"
