"""`WorkspaceFiles`: opens, reads and replaces files of a workspace, as far as one call was granted.

No link is followed, and nothing but regular files is read or replaced (see `tool/beneath.py`). A file is
replaced whole: it has the old bytes or the new ones, whenever the machine fails.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from noesium_stream.errors import ToolExecutionError, ToolInputError, ToolPermissionError
from noesium_stream.escapes import escaped
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.trust.permission import covering, permission_in
from noesium_stream.tool.beneath import open_beneath
from noesium_stream.tool.context import ToolContext

READ: Final = "fs:read"
WRITE: Final = "fs:write"
PART_PREFIX: Final = ".noesium-"
"""Begins the names of files that are not written to their end; `find_files` and `search_files` skip them."""

_ROOT: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FOLDER: Final = _ROOT | os.O_NOFOLLOW
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_S: Final = 5.0
_PAUSE_S: Final = 0.01
_REASONS: Final = {
    errno.ENOENT: "is not there",
    errno.ELOOP: "is a link, or lies behind one; links are not followed",
    errno.ENOTDIR: "is no folder, or lies behind something that is none",
    errno.EISDIR: "is a folder",
    errno.EACCES: "may not be opened by this user",
    errno.EPERM: "may not be opened by this user",
    errno.ENAMETOOLONG: "has a name that is too long",
    errno.ENOSPC: "cannot be written: there is no room",
    errno.EDQUOT: "cannot be written: there is no room",
    errno.EROFS: "cannot be written: it is on a read-only file system",
}


@dataclass(frozen=True, slots=True)
class FileContent:
    """What was read of a file.

    Attributes:
        data: its bytes, or its first ones.
        size: bytes of all of it.
        mode: its permission bits.
        whole: whether `data` is all of it.
    """

    data: bytes
    size: int
    mode: int
    whole: bool

    @property
    def version(self) -> str | None:
        """See `version_of`; None: not all of it was read."""
        return version_of(self.data) if self.whole else None


def version_of(data: bytes) -> str:
    """What tells contents of a file apart: the first 16 hexadecimal digits of their SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


class WorkspaceFiles:
    """The files of one call.

    Args:
        context: of the call; its workspace and grants count.
        max_bytes: so much is read of a file.
        hard_links: whether files that have other names are read: such a name may be outside the workspace.
    """

    def __init__(self, context: ToolContext, max_bytes: int, *, hard_links: bool = False) -> None:
        self._workspace = context.working_directory
        self._granted = context.granted_permissions
        self._max_bytes = max_bytes
        self._hard_links = hard_links

    def is_granted(self, kind: str, path: str) -> bool:
        """Whether the call may read or write a path, and the path can be shown as it is."""
        return escaped(path) == path and covering(self._granted, f"{kind}:{path}") is not None

    def parts(self, kind: str, path: str) -> tuple[str, ...]:
        """The parts of a path that the call may read or write.

        Raises:
            ToolInputError: it leads out of the workspace, or has characters that nobody can see.
            ToolPermissionError: the call was not granted it.
        """
        permission = permission_in(f"{kind}:{path}")
        if permission is None or permission.outside or escaped(path) != path:
            raise ToolInputError(
                f"{short(path)} is no path in the workspace.",
                hint="Give a path relative to it, such as reports/june.md, without .. and hidden characters.",
            )
        found = tuple(part for part in path.split("/") if part not in ("", "."))
        if covering(self._granted, f"{kind}:{'/'.join(found)}" if found else kind) is None:
            raise ToolPermissionError(
                f"{short(path)} is not what the call was granted.", hint="See `noesium guide permission`."
            )
        return found

    def read(self, path: str) -> FileContent:
        """Read a file, up to the limit.

        Raises:
            ToolInputError, ToolPermissionError: see `parts`.
            ToolExecutionError: it is no regular file, or cannot be read.
        """
        *folders, name = self.parts(READ, path) or (".",)
        with told(path), self.folder(tuple(folders)) as folder:
            return self.read_in(folder, name)

    @contextmanager
    def folder(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """A folder of the workspace, open; missing ones are made if `make` says so.

        Raises:
            OSError: it cannot be opened; `ELOOP`: a part is a link.
        """
        root = os.open(self._workspace, _ROOT)
        try:
            at = open_beneath(root, parts, make=make)
        finally:
            os.close(root)
        try:
            listed = os.open(".", FOLDER, dir_fd=at)
        finally:
            os.close(at)
        try:
            yield listed
        finally:
            os.close(listed)

    def read_in(self, folder: int, name: str, *, any_name: bool = False) -> FileContent:
        """Read a file of an open folder, up to the limit; `any_name`: whatever other names it has.

        Raises:
            OSError: it cannot be read.
            ToolExecutionError: it is no regular file, or has another name.
        """
        _require_file(os.stat(name, dir_fd=folder, follow_symlinks=False))  # opening others may do something
        file = os.open(name, _FILE, dir_fd=folder)
        try:
            status = os.fstat(file)
            _require_file(status)
            if status.st_nlink > 1 and not (self._hard_links or any_name):
                raise ToolExecutionError(
                    "has a second name, which may be outside the workspace",
                    hint="An operator can allow that: FilesToolkit(hard_links=True).",
                )
            data = _bounded(file, self._max_bytes + 1)
        finally:
            os.close(file)
        whole = len(data) <= self._max_bytes
        return FileContent(
            data[: self._max_bytes], max(status.st_size, len(data)), stat.S_IMODE(status.st_mode), whole
        )

    def update(
        self, path: str, change: Callable[[FileContent | None], bytes | None], *, make: bool = False
    ) -> None:
        """Replace a file by what `change` makes of it, while no other call of this package does the same.

        Args:
            path: of the file.
            change: gets its content, None if it is not there, and returns the new one; None: it stays.
            make: whether folders that are missing are made.

        Raises:
            ToolInputError, ToolPermissionError: see `parts`; or what `change` raises.
            ToolExecutionError: it is no regular file, or cannot be read or written.
        """
        parts = self.parts(WRITE, path)
        if not parts:
            raise ToolInputError(f"{short(path)} is a folder.")
        with told(path), self.folder(parts[:-1], make=make) as folder, _locked(folder):
            try:
                found = self.read_in(folder, parts[-1], any_name=True)
            except FileNotFoundError:
                found = None
            data = change(found)
            if data is not None:
                _replace(folder, parts[-1], data, None if found is None else found.mode & 0o777)


@contextmanager
def told(path: str) -> Iterator[None]:
    """Turn errors about a file into those that name it.

    Raises:
        ToolExecutionError: says what was wrong.
    """
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, f"cannot be opened: {error.strerror or type(error).__name__}")
        raise ToolExecutionError(f"{short(path)} {reason}.") from None
    except ToolExecutionError as error:
        raise ToolExecutionError(f"{short(path)} {error.message}.", hint=error.hint) from None


def _require_file(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise ToolExecutionError("is no regular file")


def _bounded(file: int, limit: int) -> bytes:
    parts, left = [], limit
    while left and (part := os.read(file, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    """Hold the folder's lock, across processes; closing the folder would drop it as well."""
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise ToolExecutionError(
                    f"cannot be changed: its folder was locked for {_LOCK_S:g} s",
                    hint="Another call, or a program, changes files there. Try again.",
                ) from None
            time.sleep(_PAUSE_S)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def _replace(folder: int, name: str, data: bytes, mode: int | None) -> None:
    """Replace a file in a folder: 1. write all of it beside it, 2. sync, 3. rename, 4. sync the folder."""
    part = f"{PART_PREFIX}{secrets.token_hex(8)}.part"
    file = os.open(part, _NEW, 0o666, dir_fd=folder)
    try:
        try:
            with open(file, "wb", closefd=False) as stream:
                stream.write(data)
            if mode is not None:
                os.fchmod(file, mode)
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise
    os.fsync(folder)
