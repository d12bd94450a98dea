"""Removal of state files whose topics are gone; a worker or handler does it when it starts.

A state can be folded again from the log, so a needless removal does no harm. But a folder may serve several
logs and several processes of this machine. So a file is removed only if it is known to belong to this log and
no process has it open, not even a stopped one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from noesium_stream.errors import ProjectionError, StateBusyError
from noesium_stream.private_files import write_text
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import SUFFIX
from noesium_stream.state_file.claim import discard, locked

GONE_S: Final = 7 * 86_400.0
"""How long a handler's state of a missing topic is kept after it was written last, in seconds.

The topic may exist and be hidden from this user, and a state cannot be folded again if the topic has a
retention."""

_MARK: Final = ".log"
_LOCK: Final = ".lock"


def log_digest(url: str) -> str:
    """Name a log in a folder by a digest of its URL, which may hold a password."""
    return sha256(url.encode()).hexdigest()[:12]


def mark(folder: Path, url: str) -> None:
    """Note in a folder that its states belong to this log; a folder without the note is not swept."""
    with suppress(OSError):
        if not (folder / _MARK).exists():
            write_text(folder / _MARK, log_digest(url))


def sweep_runs(folder: Path, url: str, alive: Collection[str]) -> int:
    """Remove the states of journals that are gone; return the number of files removed.

    Args:
        folder: folder of an agent type, with a folder for each journal topic (`restore.state_path`).
        url: URL of the log.
        alive: ids of the topics that the log has.
    """
    swept = 0
    for journal in _folders(folder):
        with suppress(OSError):
            if unquote(journal.name) in alive or (journal / _MARK).read_text() != log_digest(url):
                continue
            swept += sum(_removed(path) for path in sorted(journal.glob("*.db")))
            if not any(journal.glob("*.db")):
                for left in (*journal.glob(f"*{_LOCK}"), journal / _MARK):
                    left.unlink()
                journal.rmdir()
    return swept


def sweep_handler(folder: Path, ids: Mapping[str, str], now_ms: int) -> int:
    """Remove a handler's states of topics that are gone or were created anew.

    Return the number of files removed.

    Args:
        folder: folder of one handler and one log.
        ids: ids of the topics that the log has, by name.
        now_ms: current time, milliseconds since the epoch.
    """
    swept = 0
    for path in sorted(folder.glob(f"*/*/*{SUFFIX}")):
        with suppress(OSError, ProjectionError):
            with closing(StateFile.open_to_read(path)) as file:
                identity = file.manifest.identity
            found = ids.get(identity.topic)
            if found is None:
                goes = now_ms / 1000 - path.stat().st_mtime > GONE_S
            else:
                goes = found != identity.topic_id
            if goes:
                swept += _removed(path)
    return swept


def _folders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir())


def _removed(path: Path) -> bool:
    """Remove a file unless a process has it open; return whether it was removed."""
    try:
        lock = locked(path)
    except StateBusyError:
        return False
    with lock:
        discard(path)
    return True
