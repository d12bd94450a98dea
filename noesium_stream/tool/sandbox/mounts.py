"""Opens what a sandbox mounts of a workspace, so that no link leads it elsewhere.

A path that is checked and mounted later can be swapped for a link in between. So the mount is made from what
was opened (see `tool/beneath.py`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from noesium_stream.errors import SandboxError
from noesium_stream.tool.beneath import open_beneath
from noesium_stream.tool.sandbox.walls import Walls, is_tree, path_in


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: an open file descriptor (`O_PATH`), and its path in the workspace, `""` for all of it."""

    fd: int
    path: str
    writable: bool


def mounts_of(walls: Walls, opened: ExitStack) -> Iterator[Mount]:
    """Open what the walls let through, outer folders first; `opened` closes it.

    A writable subtree that does not exist is made. What else is missing is left out.

    Raises:
        SandboxError: the workspace is no folder, or a path in it is a link.
    """
    root = open_folder(walls.workspace, "The workspace", opened)
    wanted = {pattern: False for pattern in walls.readable}
    wanted.update(dict.fromkeys(walls.writable, True))
    for pattern in sorted(wanted, key=path_in):
        fd = _opened(root, pattern, wanted[pattern])
        if fd is not None:
            opened.callback(os.close, fd)
            yield Mount(fd, "/".join(path_in(pattern)), wanted[pattern])


def open_folder(path: Path, what: str, opened: ExitStack) -> int:
    """Open a folder that is mounted, or what is mounted lies in; `opened` closes it.

    Raises:
        SandboxError: it is no folder, or cannot be opened; the message begins with `what`.
    """
    try:
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxError(
            f"{what} {path} cannot be opened: {error.strerror}.", hint="Make the folder."
        ) from None
    opened.callback(os.close, folder)
    return folder


def _opened(root: int, pattern: str, writable: bool) -> int | None:
    tree = is_tree(pattern)
    try:
        at = open_beneath(root, path_in(pattern), make=tree and writable)
    except OSError as error:
        if error.errno != errno.ELOOP:
            return None
        raise SandboxError(
            f"{str(error.filename)[:200]!r} of the granted path {pattern[:200]!r} is a link.",
            hint="Grant the path that it leads to, if that is in the workspace.",
        ) from None
    mode = os.fstat(at).st_mode
    if stat.S_ISDIR(mode) if tree else stat.S_ISREG(mode):
        return at
    os.close(at)
    return None
