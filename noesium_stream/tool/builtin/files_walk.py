"""Walks through the files of a workspace: bounded, in order, as far as a call was granted."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from noesium_stream.errors import ToolInputError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.trust.wildcards import DEEP, covers_parts
from noesium_stream.tool.builtin.files_open import FOLDER, PART_PREFIX, READ, WorkspaceFiles, told
from noesium_stream.tool.content.set_aside import LIMIT_BYTES

MAX_ENTRIES: Final = 50_000
MAX_DEPTH: Final = 32
WALK_S: Final = 10.0
"""Files and folders, folders in folders, and seconds of one walk."""
IGNORED: Final = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
"""Folders that are only looked into if the call names them."""
_ROOM: Final = 2_048
"""Bytes of a result beside its items."""


class Found(NamedTuple):
    """A regular file: an open folder, its name there, its path in the workspace, and its size in bytes."""

    folder: int
    name: str
    path: str
    size: int


@dataclass
class Walk:
    """One walk.

    Attributes:
        files: what the call may read.
        entries: how many files and folders were seen.
        skipped: how many were left out: links, special files, what was not granted or cannot be opened.
        cut: whether a bound ended it early.
    """

    files: WorkspaceFiles
    entries: int = 0
    skipped: int = 0
    cut: bool = False

    def __post_init__(self) -> None:
        self._until = time.monotonic() + WALK_S

    @property
    def is_late(self) -> bool:
        """Whether its time is over; the walk is cut then."""
        self.cut = self.cut or time.monotonic() > self._until
        return self.cut

    def beneath(self, path: str) -> Generator[Found, None, None]:
        """The regular files below a path, or the file that is there; a folder's own files come first.

        Raises:
            ToolInputError, ToolPermissionError: see `WorkspaceFiles.parts`.
            ToolExecutionError: there is nothing that can be opened.
        """
        parts = self.files.parts(READ, path)
        with told(path):
            if parts:
                with self.files.folder(parts[:-1]) as above:
                    status = os.stat(parts[-1], dir_fd=above, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield Found(above, parts[-1], "/".join(parts), status.st_size)
                        return
            with (
                self.files.folder(parts) as folder,
                closing(self._folder(folder, "".join(f"{one}/" for one in parts), 1)) as found,
            ):
                yield from found

    def _folder(self, folder: int, prefix: str, depth: int) -> Generator[Found, None, None]:
        below = []
        for name in self._names(folder):
            path = f"{prefix}{name}"
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                self.skipped += 1
                continue
            if stat.S_ISDIR(status.st_mode):
                below.append(name)
            elif stat.S_ISREG(status.st_mode) and self.files.is_granted(READ, path):
                yield Found(folder, name, path, status.st_size)
            else:
                self.skipped += 1
        for name in below:
            if self.is_late:
                return
            if name not in IGNORED:
                yield from self._below(folder, name, prefix, depth)

    def _below(self, folder: int, name: str, prefix: str, depth: int) -> Generator[Found, None, None]:
        if depth >= MAX_DEPTH:
            self.cut = True
            return
        try:
            opened = os.open(name, FOLDER, dir_fd=folder)
        except OSError:
            self.skipped += 1
            return
        try:
            with closing(self._folder(opened, f"{prefix}{name}/", depth + 1)) as found:
                yield from found
        finally:
            os.close(opened)

    def _names(self, folder: int) -> list[str]:
        """The names in a folder, sorted; of one that has too many, as many as there is room for."""
        left = MAX_ENTRIES - self.entries
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, left + 1)]
        if len(names) > left:
            self.cut = True
            names.pop()
        self.entries += len(names)
        return sorted(name for name in names if not name.startswith(PART_PREFIX))


class Room:
    """The room for items in a result that is not to be set aside."""

    def __init__(self) -> None:
        self._left = LIMIT_BYTES - _ROOM

    def takes(self, item: object) -> bool:
        """Whether there is room for one more item; it is taken then."""
        self._left -= len(canonical_json(item)) + 1
        return self._left >= 0


def pattern_parts(pattern: str) -> tuple[str, ...]:
    """A glob as parts: `*` is any text in a part, `?` one character, `**` any number of parts.

    Raises:
        ToolInputError: `**` is not a whole part, or the pattern leads out.
    """
    parts = tuple(part for part in pattern.split("/") if part not in ("", "."))
    if not parts or ".." in parts or pattern.startswith("/") or any(DEEP in one != DEEP for one in parts):
        raise ToolInputError(
            f"{short(pattern)} is no pattern.", hint="Write a relative one, such as *.md or **/test_*.py."
        )
    return parts


def matches(pattern: tuple[str, ...], path: str, start: str) -> bool:
    """Whether a path matches a glob that is relative to `start`; takes time proportional to their lengths."""
    parts = path.split("/")
    first = sum(part not in ("", ".") for part in start.split("/"))
    return covers_parts(pattern, parts[first:] or parts[-1:])
