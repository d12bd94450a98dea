"""Local states that follow from the log: they are removed, and are folded again without what was erased."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from noesium_stream.errors import ErasureError, StateBusyError
from noesium_stream.memory.store import MemoryStore
from noesium_stream.state_file.claim import discard, locked

FOLDERS: Final = ("handlers", "projections", "worker")
"""Folders of the home whose state files are folds of the log."""
MEMORY: Final = "memory"
_SUFFIXES: Final = (".db", ".state")
_BESIDE: Final = ("-wal", "-shm", "-journal")


def state_files(folders: Iterable[Path]) -> list[Path]:
    """The state files in and below folders, by name."""
    return sorted(
        path
        for folder in folders
        if folder.is_dir()
        for path in folder.rglob("*")
        if path.suffix in _SUFFIXES and path.is_file()
    )


def memory_files(home: Path) -> tuple[list[Path], list[Path]]:
    """The files of memory of all logs, and their indexes."""
    found = sorted((home / MEMORY).glob("*.db")) if (home / MEMORY).is_dir() else []
    return [path for path in found if "." not in path.stem], [path for path in found if "." in path.stem]


@contextmanager
def claimed_states(paths: Iterable[Path]) -> Iterator[None]:
    """Hold the locks of state files, so that nobody writes them.

    Raises:
        ErasureError: a process writes one of them.
    """
    with ExitStack() as held:
        for path in paths:
            try:
                held.enter_context(locked(path))
            except StateBusyError as error:
                raise ErasureError(
                    f"{path} is in use: its process has what was read in its memory.",
                    hint="Stop the workers and projections of this machine, and try it again.",
                ) from error
            except OSError as error:
                raise ErasureError(f"{path} cannot be locked: {error.strerror}.") from error
        yield


def clean(states: Iterable[Path], home: Path) -> int:
    """Remove state files, whose locks are held, and empty the files of memory; return how many these are.

    Raises:
        ErasureError: a file cannot be removed.
        ProjectionError: a file of memory cannot be written, or is being read.
    """
    count = 0
    stores, indexes = memory_files(home)
    try:
        for path in states:
            discard(path)
            count += 1
        for path in stores:
            store = MemoryStore(path)
            try:
                store.wipe()
            finally:
                store.close()
            count += 1
        for path in indexes:
            discard(path)
            count += 1
    except OSError as error:
        raise ErasureError(f"A state cannot be removed: {error}.") from error
    return count


def beside(path: Path) -> list[Path]:
    """A file of SQLite, and those beside it."""
    return [path, *(Path(f"{path}{suffix}") for suffix in _BESIDE)]
