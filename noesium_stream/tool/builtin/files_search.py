"""Search in files by a regular expression of RE2, which takes time proportional to the text at most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from typing_extensions import TypedDict

from noesium_stream.errors import ToolExecutionError, ToolInputError
from noesium_stream.tool.builtin.files_open import FileContent, WorkspaceFiles
from noesium_stream.tool.builtin.files_walk import Found, Room, Walk
from noesium_stream.tool.extra import import_extra

MAX_PATTERN: Final = 500
MAX_SEARCHED: Final = 200_000_000
"""Bytes of all files that one search reads."""
_MOST_STEPS: Final = 2_000
"""Instructions of a compiled expression: as many may be looked at for each byte."""
_MEMORY: Final = 2**20
_PIECE: Final = 64 * 1024
"""Bytes that are searched at once; there is a look at the clock between two pieces."""
_AROUND: Final = 200
"""Bytes that are shown before and behind a match's beginning."""
_HINT: Final = "Write it for RE2: without look-around and without references to groups."


class Match(TypedDict):
    """A line that matches."""

    path: str
    line: int
    column: int
    text: str


class Expression:
    """A regular expression of RE2, for lines of UTF-8; `^` and `$` are the ends of a line.

    Raises:
        ToolInputError: it is not valid, or too large.
        ConfigError: the extra `files` is not installed.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        re2 = require_re2()
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MEMORY
        options.case_sensitive = not ignore_case
        options.never_nl = True
        try:
            self._compiled = re2.compile(f"(?m){pattern}".encode(), options)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace") if error.args else "it cannot be read"
            raise ToolInputError(f"The expression cannot be used: {reason[:200]!r}.", hint=_HINT) from None
        if self._compiled.programsize > _MOST_STEPS:
            raise ToolInputError(
                "The expression is too large: it repeats too much.", hint="Make its repetitions smaller."
            )

    def lines(self, data: bytes) -> Iterator[tuple[int, int, str] | None]:
        """The lines that match: number and column in characters, from 1, and the text around the match.

        A line longer than 64 KB counts as several texts, and one match of a line is given. None comes between
        two pieces of the text: the time to stop.
        """
        line, start = 1, 0
        while start < len(data):
            end = _end_of_piece(data, start)
            piece = data[start:end]
            for at in self._matches(piece):
                begin = piece.rfind(b"\n", 0, at) + 1
                until = piece.find(b"\n", at)
                whole = piece[begin : until if until >= 0 else len(piece)]
                column = len(whole[: at - begin].decode(errors="replace")) + 1
                yield line + piece.count(b"\n", 0, at), column, _shown(whole, at - begin)
            line += piece.count(b"\n")
            start = end
            yield None

    def _matches(self, piece: bytes) -> Iterator[int]:
        at = 0
        while at < len(piece) and (match := self._compiled.search(piece, at)) is not None:
            found = int(match.start())
            if found == len(piece) and piece.endswith(b"\n"):
                return  # behind the last line
            yield found
            following = piece.find(b"\n", found)
            if following < 0:
                return
            at = following + 1


def search(
    expression: Expression, files: WorkspaceFiles, walk: Walk, found: Iterable[Found], most: int
) -> tuple[list[Match], int]:
    """Search files, and return the first matches and how many files were searched.

    A bound that ends it early is noted in `walk`, and so is each file that is no text or cannot be read.
    """
    lines: list[Match] = []
    room, searched, read = Room(), 0, 0
    for one in found:
        content = _content(files, one)
        if content is None:
            walk.skipped += 1
            continue
        searched += 1
        read += len(content.data)
        for match in expression.lines(content.data):
            if match is None:
                if walk.is_late:
                    return lines, searched
                continue
            shown: Match = {"path": one.path, "line": match[0], "column": match[1], "text": match[2]}
            if len(lines) == most or not room.takes(shown):
                walk.cut = True
                return lines, searched
            lines.append(shown)
        if read > MAX_SEARCHED or walk.is_late:
            walk.cut = True
            break
    return lines, searched


def _content(files: WorkspaceFiles, found: Found) -> FileContent | None:
    """The content of a text file; None: it is none, is larger than the limit, or cannot be read."""
    try:
        content = files.read_in(found.folder, found.name)
    except (OSError, ToolExecutionError):
        return None
    return None if not content.whole or b"\0" in content.data else content


def require_re2() -> Any:
    """The module `re2`.

    Raises:
        ConfigError: the extra `files` is not installed.
    """
    return import_extra("re2", "files", "The toolkit files")


def _end_of_piece(data: bytes, start: int) -> int:
    if len(data) - start <= _PIECE:
        return len(data)
    end = data.rfind(b"\n", start, start + _PIECE)
    return start + _PIECE if end < 0 else end + 1


def _shown(whole: bytes, at: int) -> str:
    text = whole[max(at - _AROUND, 0) : at + _AROUND].decode(errors="ignore").rstrip("\r")
    return f"{'…' if at > _AROUND else ''}{text}{'…' if at + _AROUND < len(whole) else ''}"
