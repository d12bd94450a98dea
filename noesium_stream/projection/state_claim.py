"""Which file a new owner writes, where one that has lost the partition may still have the file open.

A process that stands still (SIGSTOP, a laptop's lid) keeps the lock of its state file, and does not hear that
the partition has gone to another one of this machine. That one must not wait for it: it takes a file of its
own beside, and what that lacks is folded from the log. The other's file is left to it, and removed by
whoever opens the partition's state after it has let go.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Final

from noesium_stream.errors import StateBusyError
from noesium_stream.projection.state_file import discard, locked

MOST: Final = 16
"""Files of one partition on one machine: as many owners before may stand still."""


def places(path: Path) -> list[Path]:
    """Where the state of one partition may lie: `0.db`, `0~2.db`, `0~3.db`, …"""
    folder, stem, suffix = path.parent, path.stem, path.suffix
    return [path, *(folder / f"{stem}~{n}{suffix}" for n in range(2, MOST + 1))]


def claimed(path: Path) -> tuple[Path, IO[bytes]]:
    """The file to write, and its lock: of those that nobody has, the one that was written last.

    The others that nobody has are removed.

    Raises:
        StateBusyError: all that there may be are being written.
        OSError: the folder cannot be written.
    """
    chosen: tuple[Path, IO[bytes]] | None = None
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
        if _written(place) >= _written(chosen[0]):  # times are coarse; the later file was claimed later
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
    """When it was written last, in nanoseconds; 0 where there is none."""
    times = [0]
    for suffix in ("", "-wal"):
        try:
            times.append(os.stat(f"{path}{suffix}").st_mtime_ns)
        except FileNotFoundError:
            continue
    return max(times)
