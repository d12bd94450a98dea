"""Files and folders that only their owner may read: logs, states, exports, and files of the broker.

Only what is made new gets these modes (600 and 700). A file or folder that exists keeps its own: somebody may
share it with a group on purpose. SQLite gives its `-wal` and `-shm` files the mode of the main file.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, each with mode 700. Idempotent.

    Raises:
        OSError: it cannot be made, or is a file.
    """
    missing = []
    above = path
    while not above.exists() and above.parent != above:
        missing.append(above)
        above = above.parent
    for folder in reversed(missing or [path]):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file with mode 600, for a library that opens it by name; an existing one is left alone.

    A failure is not reported: the library fails at the same place, and its error says more.

    No descriptor of the file is opened where the system allows that. To close one would drop all locks that
    this process holds on the file, and another thread may just have locked it (see `log.sqlite.file`).
    """
    try:
        os.mknod(path, FILE_MODE | stat.S_IFREG)
    except FileExistsError:
        return
    except (AttributeError, OSError):  # Windows has none, macOS reserves it for root, some mounts refuse it
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))


def permission_advice(file: str | Path) -> str:
    """What to do about a file that this user may not use: it names what bars the way, and whose that is."""
    path = Path(os.path.abspath(file))
    barred = next((folder for folder in reversed(path.parents) if not os.access(folder, os.X_OK)), path)
    try:
        owner = f", which belongs to {barred.owner()}"
    except (KeyError, OSError, NotImplementedError):  # its user has no name, it is gone, or this is Windows
        owner = ""
    return f"Let this user use {barred}{owner}: change its permissions (chmod, chown), or be another user."


def private(path: str, flags: int) -> int:
    """Opener for `open`: a file that it creates has mode 600."""
    return os.open(path, flags, FILE_MODE)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, with mode 600 if it is new.

    Raises:
        OSError: the file cannot be written.
    """
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
