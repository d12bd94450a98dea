"""Opens what lies beneath a folder, so that no link leads out of it.

A path that is checked and opened later can be swapped for a link in between. So every part of a path is
opened in the folder before it, without following links, and what was opened is used. Paths have no `..`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

_PART: Final = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW | os.O_CLOEXEC
_UNUSABLE: Final = frozenset({"", ".", ".."})


def open_beneath(root: int, parts: Sequence[str], *, make: bool = False) -> int:
    """Open what is at a path beneath a folder: a file descriptor (`O_PATH`) of the caller's.

    Args:
        root: an open folder.
        parts: of the path; () is the folder itself.
        make: whether folders that are missing are made.

    Raises:
        OSError: it cannot be opened; `ELOOP`, with the part as its file name, if that is a link.
    """
    at = os.dup(root)
    for part in parts:
        try:
            following = _open_part(at, part, make=make)
        finally:
            os.close(at)
        at = following
    return at


def _open_part(folder: int, name: str, *, make: bool) -> int:
    if name in _UNUSABLE or "/" in name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    found = os.open(name, _PART, dir_fd=folder)
    if stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return found
