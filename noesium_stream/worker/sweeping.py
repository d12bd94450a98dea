"""States of topics that are gone: nobody would open their files again, so who starts removes them.

A state can be told again from the log, so no harm is done by a removal that need not have been; but a folder
may serve several logs, and several processes of this machine. So removed is only what this log is known to
have had, and what no process has open, be it one that stands still.
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
from noesium_stream.projection.folder import SUFFIX
from noesium_stream.projection.state_file import StateFile, discard, locked

GONE_S: Final = 7 * 86_400.0
"""A topic that is not there may be one that this user may not see any more: a handler's state of it, which
cannot be folded again where the topic has a retention, is kept for as long since it was written."""

_MARK: Final = ".log"
_LOCK: Final = ".lock"


def log_digest(url: str) -> str:
    """A log's name in folders; its URL may hold a password."""
    return sha256(url.encode()).hexdigest()[:12]


def mark(folder: Path, url: str) -> None:
    """Note that a folder has states of a topic of this log; where nothing can be written, it is not swept."""
    with suppress(OSError):
        if not (folder / _MARK).exists():
            (folder / _MARK).write_text(log_digest(url))


def sweep_runs(folder: Path, url: str, alive: Collection[str]) -> int:
    """Remove the states of journals that are gone; return how many files there were.

    Args:
        folder: of an agent type, with a folder for each journal topic (`restore.state_path`).
        url: of the log.
        alive: ids of the topics that it has.
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
    """Remove a handler's states of topics that were made anew, or are gone; return how many files there were.

    Args:
        folder: of one handler and one log.
        ids: of the topics that the log has, by name.
        now_ms: the time, milliseconds since the epoch.
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
    """Whether nobody has the file: then it is gone."""
    try:
        lock = locked(path)
    except StateBusyError:
        return False
    with lock:
        discard(path)
    return True
