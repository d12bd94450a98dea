"""The files of a skill folder: listed with their hashes once, and read again only if they are still the same.

No link is followed below the folder itself, no special file is opened, and everything has a bound. A file is
reached by one open folder after the other, so that nobody can put a link in the way meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noesium_stream.errors import ToolExecutionError
from noesium_stream.escapes import escaped
from noesium_stream.tool.beneath import open_beneath
from noesium_stream.tool.skill.problem import SkillProblem

MAX_FILES: Final = 1_000
MAX_FILE_BYTES: Final = 10_000_000
MAX_FOLDER_BYTES: Final = 50_000_000
MAX_FOLDER_DEPTH: Final = 8
IGNORED: Final = frozenset({".git", "__pycache__", ".DS_Store"})
"""Names that are no part of a skill: not hashed, not read, not given to scripts."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file of a skill.

    Attributes:
        path: relative to the folder, POSIX.
        size: bytes.
        sha256: of its bytes, hexadecimal digits.
        executable: whether its owner may execute it.
    """

    path: str
    size: int
    sha256: str
    executable: bool


class _Walk:
    def __init__(self) -> None:
        self.files: list[SkillFile] = []
        self.problems: list[SkillProblem] = []
        self.bytes = 0
        self.entries = 0

    def problem(self, path: str, message: str) -> None:
        self.problems.append(SkillProblem(path or ".", None, message))

    def folder(self, at: int, inside: str, depth: int) -> None:
        for name in sorted(os.listdir(at)):
            path = f"{inside}{name}"
            if name in IGNORED:
                continue
            self.entries += 1
            if self.entries > MAX_FILES or self.bytes > MAX_FOLDER_BYTES:
                return
            if escaped(name) != name:
                self.problem(inside, f"The name {ascii(name)[:200]} has characters that nobody can see.")
                continue
            try:
                self._entry(at, name, path, depth)
            except OSError as error:
                self.problem(path, f"It cannot be read: {error.strerror or error}.")

    def _entry(self, at: int, name: str, path: str, depth: int) -> None:
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            self.problem(path, "It is a link; a skill has to contain its files itself.")
        elif stat.S_ISDIR(mode):
            if depth >= MAX_FOLDER_DEPTH:
                self.problem(path, f"It lies more than {MAX_FOLDER_DEPTH} folders deep.")
                return
            with _opened(name, _FOLDER, at) as below:
                self.folder(below, f"{path}/", depth + 1)
        elif stat.S_ISREG(mode):
            with _opened(name, _FILE, at) as file:
                self._file(file, path)
        else:
            self.problem(path, "It is neither a file nor a folder.")

    def _file(self, file: int, path: str) -> None:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is no file any more")
        data = _bounded(file)
        self.bytes += len(data)
        if len(data) > MAX_FILE_BYTES:
            self.problem(path, f"It has more than {MAX_FILE_BYTES:,} bytes.")
        else:
            executable = bool(status.st_mode & stat.S_IXUSR)
            self.files.append(SkillFile(path, len(data), hashlib.sha256(data).hexdigest(), executable))


def list_files(root: Path) -> tuple[list[SkillFile], list[SkillProblem]]:
    """All files of a skill folder, sorted by path, and what is wrong with them.

    Raises:
        OSError: the folder cannot be read.
    """
    walk = _Walk()
    with _opened(str(root.resolve()), _FOLDER) as at:
        walk.folder(at, "", 1)
    if walk.entries > MAX_FILES:
        walk.problem("", f"The skill has more than {MAX_FILES:,} files and folders.")
    if walk.bytes > MAX_FOLDER_BYTES:
        walk.problem("", f"The skill has more than {MAX_FOLDER_BYTES:,} bytes.")
    return sorted(walk.files, key=lambda file: file.path), walk.problems


def read_file(root: Path, path: str, expected: SkillFile | None = None) -> bytes:
    """The bytes of a file of a skill folder.

    Args:
        root: the folder.
        path: relative to it, one of `list_files`.
        expected: what it was when the skill was loaded; None: whatever it is.

    Raises:
        OSError: it cannot be read, or is no file.
        ToolExecutionError: it is not what it was.
    """
    *folders, name = path.split("/")
    with _opened(str(root.resolve()), _FOLDER) as opened:
        at = open_beneath(opened, folders)
    try:
        with _opened(name, _FILE, at) as file:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError("it is no file")
            data = _bounded(file)
    finally:
        os.close(at)
    if expected is not None and hashlib.sha256(data).hexdigest() != expected.sha256:
        raise ToolExecutionError(
            f"The file {path} of the skill {root.name} has changed since the skill was loaded.",
            hint="Restart the worker, so that the changed skill is registered.",
        )
    return data


@contextmanager
def _opened(name: str, flags: int, at: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, flags, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _bounded(file: int) -> bytes:
    """Read up to one byte more than a file may have."""
    parts, left = [], MAX_FILE_BYTES + 1
    while left and (part := os.read(file, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
