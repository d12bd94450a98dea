"""Files of a folder that this process has open; those that others have left behind are closed at any time."""

from __future__ import annotations

import os
from pathlib import Path


def open_beneath(folder: Path) -> list[str]:
    """What is open of this folder and all beneath it, once for each descriptor, sorted."""
    return sorted(path for path in map(_path, os.listdir("/proc/self/fd")) if path.startswith(str(folder)))


def _path(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:  # closed meanwhile; that of the list itself, too
        return ""
