"""Where this Python and its packages are, for programs in a sandbox."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("site-packages", "dist-packages")
_SYSTEM: Final = Path("/usr")


def interpreter_folders() -> tuple[Path, ...]:
    """The folder of this Python with its standard library; none if it is below `/usr`, which all see."""
    return _outside_system([Path(os.path.realpath(sys.base_prefix))])


def python_folders() -> tuple[Path, ...]:
    """The folders of this Python, its virtual environment and the packages that are installed for it.

    For `programs` of a sandbox. Folders of the path that hold other code, such as the current one, are left
    out: they may hold anything.
    """
    packages = [Path(one).absolute() for one in sys.path if os.path.basename(one) in _PACKAGES]
    return _outside_system([*interpreter_folders(), Path(sys.prefix).absolute(), *packages])


def _outside_system(folders: list[Path]) -> tuple[Path, ...]:
    """Those that are no part of `/usr` nor of one before them."""
    found: list[Path] = []
    for folder in folders:
        if folder.is_dir() and not any(folder.is_relative_to(one) for one in (_SYSTEM, *found)):
            found.append(folder)
    return tuple(found)
