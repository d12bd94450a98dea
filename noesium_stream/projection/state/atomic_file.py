"""Atomic creation and replacement of files, safe with several concurrent writers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock

from noesium_stream.private_files import FILE_MODE, write_text

_POLL_S: Final = 0.01


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write to; at the end of the block the file moves to `path` in one step.

    If the block raises, `path` is unchanged. Each writer gets a path of its own; with several writers the
    last file stays.

    Raises:
        OSError: the folder cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as beside:
        unfinished = Path(beside) / path.name
        yield unfinished
        unfinished.replace(path)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lock `path` against other processes in the same block, so that it can be read, checked and replaced.

    Raises:
        OSError: the folder cannot be written.
    """
    with FileLock(f"{path}.lock", mode=FILE_MODE, poll_interval=_POLL_S, fallback_to_soft=False):
        yield


def write_whole(path: Path, text: str) -> None:
    """Write a small file atomically.

    Raises:
        OSError: the file cannot be written.
    """
    with written_whole(path) as unfinished:
        write_text(unfinished, text)
