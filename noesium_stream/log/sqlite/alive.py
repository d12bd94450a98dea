"""Locks by which members of groups on one machine see that another one has ended.

Each member holds a lock on one byte of the file `PATH-alive`, far beyond its end, from before it joins until
it has left. The system lets go of the lock when the process ends, however it ends, and tells those who watch
the file (`wake`): the others need not wait for the end of the lease. A process that is stopped keeps its
lock, and its lease ends. A child that was forked without another program keeps it, too, until it ends or the
lease does.

The locks are those of open file descriptions (`F_OFD_SETLK`, Linux): unlike POSIX's they belong to one member
of a process, and are not lost when another descriptor of the file is closed. Without them, on other systems
and on file systems that refuse them, nobody is taken for dead before the lease has ended. All processes of a
log see the same file on the same kernel, so that they agree on that: SQLite's write-ahead log needs no less.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import LogFullError, LogUnavailableError

fcntl: Any = None
if sys.platform == "linux" and struct.calcsize("P") == 8:
    import fcntl as _fcntl

    fcntl = _fcntl

_FLOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid (0 for these locks)."""

_REFUSED: Final = frozenset({errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""How a file system says that it has no such locks."""


def file_of_life(path: Path) -> Path:
    """The file in which the members of a log's groups hold their locks."""
    return path.with_name(f"{path.name}-alive")


class LifeLock:
    """One member's lock, and its look at those of others.

    Args:
        path: of the log.
        group: the group's name.
        member: the member's.
    """

    def __init__(self, path: Path, group: str, member: str) -> None:
        self._path = file_of_life(path)
        self._group = group
        self._member = member
        self._file: int | None = None
        self._known = fcntl is not None

    def hold(self) -> None:
        """Hold the lock; harmless when it is held. A file that was removed is made again.

        Raises:
            LogUnavailableError, LogFullError: the file cannot be opened.
        """
        if not self._known or self._is_there():
            return
        try:
            made = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            kind = LogFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else LogUnavailableError
            raise kind(
                f"{self._path} cannot be opened: {error.strerror}.",
                hint="By it the processes of this log tell each other that they live; it has to be writable.",
            ) from error
        try:
            fcntl.fcntl(made, fcntl.F_OFD_SETLK, _lock_of(self._group, self._member))
        except OSError as error:
            os.close(made)
            if error.errno in _REFUSED:
                self._known = False
            elif error.errno not in (errno.EAGAIN, errno.EACCES):  # another member of this name holds it
                raise LogUnavailableError(f"{self._path} cannot be locked: {error.strerror}.") from error
            return
        self.let_go()
        self._file = made

    def let_go(self) -> None:
        """Let go of the lock; harmless when it is not held."""
        held, self._file = self._file, None
        if held is not None:
            os.close(held)

    def has_died(self, member: str) -> bool:
        """Whether another member of the group, which has joined, has ended, as far as is known."""
        return self._file is not None and _is_free(self._file, self._group, member)

    def _is_there(self) -> bool:
        if self._file is None:
            return False
        held = os.fstat(self._file)
        try:
            named = os.stat(self._path)
        except OSError:
            return False
        return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)


def dead_members(path: Path, group: str, members: Iterable[str]) -> set[str]:
    """Those of the members that have joined who have ended; none where that is not known."""
    if fcntl is None:
        return set()
    try:
        file = os.open(file_of_life(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        return {member for member in members if _is_free(file, group, member)}
    finally:
        os.close(file)


def _is_free(file: int, group: str, member: str) -> bool:
    try:
        asked = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _lock_of(group, member))
    except OSError:  # the file system has no such locks
        return False
    return bool(_FLOCK.unpack(asked)[0] == fcntl.F_UNLCK)


def _lock_of(group: str, member: str) -> bytes:
    """A member's lock: on the byte whose number is a hash (62 bits) of its name."""
    name = f"{group}\0{member}".encode()
    number = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> 2
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
