"""The place in the user's code where an error arose: for events, which outlive the failing process.

Frames of this package, LangGraph, LangChain's core and asyncio are left out: the way in which a node is
called is the same for all of them and says nothing about the failure.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Final

from noesium_stream.errors import NodeExecutionError

LIMIT: Final = 4_000
"""Number of characters of a traceback to record: its end, where the failure is."""

_MACHINERY: Final = frozenset(
    {"noesium_stream", "langgraph", "langchain_core", "asyncio", "concurrent", "contextlib", "threading"}
)
_LIBRARIES: Final = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib")
)
_CHAIN: Final = 5


def where_of(error: BaseException) -> str | None:
    """`FILE:LINE in FUNCTION` of the innermost frame of the user's code; None if there is none.

    A file below the current folder is named relative to it. If no frame is the user's own, the innermost
    frame of a library counts. A failure that is only recorded returns its recorded place.
    """
    if isinstance(error, NodeExecutionError) and error.recorded is not None:
        return error.where
    frames = list(_frames(error.__traceback__))
    own = [frame for frame in frames if not frame.filename.startswith((*_LIBRARIES, "<"))]
    if not frames:
        return None
    frame = (own or frames)[-1]
    return _text(f"{_relative(frame.filename)}:{frame.lineno} in {frame.name}")


def traceback_of(error: BaseException) -> str | None:
    """The traceback without the machinery's frames, at most `LIMIT` characters; None if nothing is left.

    The cause of the error comes first, as Python prints it.
    """
    if isinstance(error, NodeExecutionError) and error.recorded is not None:
        return None
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in chain and len(chain) < _CHAIN:
        chain.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    parts = []
    for link in reversed(chain):
        frames = list(_frames(link.__traceback__))
        if frames:
            parts.append("".join([*traceback.format_list(frames), *traceback.format_exception_only(link)]))
    if not parts:
        return None
    text = _text("\n".join(parts).rstrip())
    return text if len(text) <= LIMIT else f"…{text[1 - LIMIT :]}"


def _frames(trace: TracebackType | None) -> Iterator[traceback.FrameSummary]:
    for frame, line in traceback.walk_tb(trace):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _MACHINERY:
            code = frame.f_code
            yield traceback.FrameSummary(code.co_filename, line, code.co_name)


def _relative(path: str) -> str:
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:  # the folder is gone
        return path
    return path.removeprefix(here)


def _text(text: str) -> str:
    """The text with characters that UTF-8 cannot encode replaced."""
    return text.encode(errors="backslashreplace").decode()
