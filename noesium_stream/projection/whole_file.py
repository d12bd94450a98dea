"""Files that appear whole or not at all, also when several processes write the same one at once."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a path to write to; when the block ends, what was written there stands at `path` in one step.

    Nothing is at `path` that was not there before when the block raises. Nobody else is given the same path
    to write to: of several writers the last one's file stays.

    Raises:
        OSError: the folder cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as beside:
        unfinished = Path(beside) / path.name
        yield unfinished
        unfinished.replace(path)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process is in such a block for the same path: it may be read, judged and replaced.

    Raises:
        OSError: the folder cannot be written.
    """
    with open(f"{path}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, text: str) -> None:
    """Write a small file whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with written_whole(path) as unfinished:
        unfinished.write_text(text)
