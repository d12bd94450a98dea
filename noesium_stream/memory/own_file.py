"""`OwnFile`: the file of memory of a log in memory, which ends with the log.

Each opened `memory:` log is another log, whatever its URL: its file has a name of its own. The file is
removed with the log, at the latest when the process ends. A process that is killed leaves its files, without
their locks; the next one that remembers in a log in memory removes them.
"""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary, finalize

from noesium_stream.errors import StateBusyError
from noesium_stream.log.port import EventLog
from noesium_stream.private_files import make_folder
from noesium_stream.state_file.claim import discard, locked

_PREFIX: Final = "memory-"
_files: Final[WeakKeyDictionary[EventLog, dict[Path, OwnFile]]] = WeakKeyDictionary()


class OwnFile:
    """A file that nobody else has, and the indexes beside it."""

    def __init__(self, folder: Path) -> None:
        self.path: Final = folder / f"{_PREFIX}{secrets.token_hex(8)}.db"
        self._process = os.getpid()
        self._held: ExitStack | None = None
        self._lock = threading.RLock()

    def hold(self) -> None:
        """Lock the file before it is made, and remove those of processes that have died. Idempotent.

        Raises:
            OSError: the folder cannot be written.
        """
        with self._lock:
            if self._held is None:
                make_folder(self.path.parent)
                _sweep(self.path.parent)
                self._held = locked(self.path)

    def remove(self) -> None:
        """Remove the file, unless it was never made, or was made by the process that forked this one."""
        with self._lock:
            if self._held is not None and self._process == os.getpid():
                _remove(self.path)
                self._held.close()
                self._held = None


def own_file(folder: Path, log: EventLog) -> OwnFile:
    """The file of a log in a folder; the same for all who use the log that was opened."""
    files = _files.setdefault(log, {})
    if folder not in files:
        files[folder] = OwnFile(folder)
        finalize(log, files[folder].remove)
    return files[folder]


def _sweep(folder: Path) -> None:
    """Remove the files whose processes have died; one that cannot be removed is left."""
    stems = {path.name.partition(".")[0] for path in folder.glob(f"{_PREFIX}*.db")}
    for path in (folder / f"{stem}.db" for stem in sorted(stems)):
        with suppress(StateBusyError, OSError), locked(path):
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, its indexes and its lock, which is held."""
    for file in path.parent.glob(f"{path.stem}*.db"):
        discard(file)
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
