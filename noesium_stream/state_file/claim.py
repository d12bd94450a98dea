"""The lock of a state file, and the choice of a file while a previous owner may still hold its own.

A suspended process (SIGSTOP, a closed laptop) keeps the lock of its state file and does not learn that its
partition has moved to another process on the machine. The new owner must not wait: it takes a second file
beside the first, and folds what that file lacks from the log. The other file is left alone. After its lock is
released, the next process that opens the partition's state removes it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from noesium_stream.errors import StateBusyError
from noesium_stream.private_files import FILE_MODE

MOST: Final = 16
"""Maximum number of files of one partition on one machine, and so of suspended previous owners."""


def discard(path: Path) -> None:
    """Remove a state file and SQLite's files beside it; its lock file stays."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def locked(path: Path) -> ExitStack:
    """Lock a state file for writing until the returned stack is closed or the process ends.

    Raises:
        StateBusyError: another process writes it.
        OSError: the folder cannot be written.
    """
    # Never a soft lock: the kernel releases its own when the process dies. Any thread may close the file.
    lock = FileLock(f"{path}.lock", timeout=0, mode=FILE_MODE, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise StateBusyError(
            f"{path} is being written by another process.",
            hint="Stop the other one, or let both follow here: they share the partitions. Followers with "
            "folders of their own (--state DIR) share them too, and each folder then has only a part.",
        ) from error
    held = ExitStack()
    held.callback(lock.release)
    return held


def places(path: Path) -> list[Path]:
    """The paths where the state of a partition may be stored: `0.db`, `0~2.db`, `0~3.db`, …"""
    folder, stem, suffix = path.parent, path.stem, path.suffix
    return [path, *(folder / f"{stem}~{n}{suffix}" for n in range(2, MOST + 1))]


def claimed(path: Path) -> tuple[Path, ExitStack]:
    """The file to write and its lock: the most recently written one that no process holds.

    The other files that no process holds are removed.

    Raises:
        StateBusyError: other processes are writing all possible files.
        OSError: the folder cannot be written.
    """
    chosen: tuple[Path, ExitStack] | None = None
    for place in places(path):
        if chosen is not None and not os.path.exists(place):
            continue
        try:
            lock = locked(place)
        except StateBusyError:
            continue
        if chosen is None:
            chosen = place, lock
            continue
        older = (place, lock)
        if _written(place) >= _written(chosen[0]):  # at equal (coarse) times the later name was claimed later
            chosen, older = older, chosen
        discard(older[0])  # while it is locked
        older[1].close()
    if chosen is None:
        raise StateBusyError(
            f"{path} and {MOST - 1} files beside it are being written by other processes.",
            hint="Processes that had the partition stand still: look for them (`ps`, state T) and end them.",
        )
    return chosen


def _written(path: Path) -> int:
    """Time of the last write in nanoseconds; 0 if there is no file."""
    times = [0]
    for suffix in ("", "-wal"):
        try:
            times.append(os.stat(f"{path}{suffix}").st_mtime_ns)
        except FileNotFoundError:
            continue
    return max(times)
