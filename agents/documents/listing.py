"""Which files below a folder are documents, and which are left out and why.

Nothing is left out in silence: every file that is not read is named with one `Reason`. Symbolic links
are never followed: a link inside the folder is a duplicate, a link out of it could lead anywhere.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from noesium_stream.errors import ConfigError

MAX_FILE_BYTES = 20 * 1024 * 1024

FORMATS = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdx": "markdown",
    ".txt": "text",
    ".text": "text",
    ".rst": "rst",
    ".rest": "rst",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".py": "python",
    ".pyi": "python",
    ".pdf": "pdf",
    ".adoc": "asciidoc",
    ".asciidoc": "asciidoc",
    **{f".{section}": "man" for section in range(1, 9)},
    **({".docx": "docx"} if find_spec("docx") else {}),
}
"""What is read, by the end of its name."""

_BARE_NAMES_TEXT = (
    "readme license licence copying authors contributors changelog changes news notice install todo"
)
BARE_NAMES = frozenset(_BARE_NAMES_TEXT.split())
"""Files without an ending that are text by custom."""

_SKIPPED_FOLDERS_TEXT = "node_modules __pycache__ build dist venv env site-packages htmlcov bower_components"
SKIPPED_FOLDERS = frozenset(_SKIPPED_FOLDERS_TEXT.split())
"""Folders that hold what tools made or fetched; hidden folders and `*.egg-info` are left out too."""


class Reason(StrEnum):
    """Why a file was not read; the values are what people see."""

    BINARY = "binary"
    TOO_LARGE = "too large"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    TOO_SLOW = "took too long to read"
    LINK = "symbolic link"
    NOT_A_FILE = "not a regular file"
    VANISHED = "went away while it was read"
    EMPTY = "without text"
    OTHER = "another format"


TRANSIENT = frozenset({Reason.UNREADABLE, Reason.VANISHED})
"""Reasons that may be gone at the next look although the file itself is unchanged."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read: `path` is relative to the folder, with `/`."""

    path: str
    format: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not read, and why."""

    path: str
    reason: Reason
    detail: str = ""


@dataclass(slots=True)
class Listing:
    """What a folder holds, in order of the paths."""

    found: list[Found] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


def checked_root(docs: Path) -> Path:
    """The folder as an absolute path.

    Raises:
        ConfigError: it does not exist, is no folder, or may not be read.
    """
    try:
        root = docs.expanduser().resolve()
        mode = root.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"There is no folder {docs}.", hint="Give the folder that holds the documents with --docs DIR."
        ) from None
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"The folder {docs} cannot be read: {_why(error)}.", hint="Give another folder with --docs DIR."
        ) from None
    if not stat.S_ISDIR(mode):
        raise ConfigError(
            f"{docs} is a file, not a folder.",
            hint=f"Give the folder that it is in: --docs {_shown(docs.parent)}",
        )
    if not os.access(root, os.R_OK | os.X_OK):
        raise ConfigError(
            f"The folder {docs} cannot be read: permission denied.",
            hint="Change its permissions, or give another folder with --docs DIR.",
        )
    return root


def corpus_id(root: Path) -> str:
    """The id of the corpus of a folder: readable, and different for every absolute path."""
    path = root.expanduser().resolve()
    slug = re.sub(r"[^a-z0-9]+", "-", path.name.lower()).strip("-")[:32] or "corpus"
    return f"{slug}-{hashlib.sha256(str(path).encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def list_documents(root: Path, *, leave_out: Iterable[Path] = ()) -> Listing:
    """Walk `root` and sort what is there into documents, skipped files and skipped folders.

    `leave_out` are absolute folders that are not looked into (the home of the log and the indexes).
    """
    listing = Listing()
    hidden = {path.resolve() for path in leave_out}
    waiting = [(root, "")]
    while waiting:
        folder, prefix = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            listing.skipped.append(Skipped(_printable(prefix) or ".", Reason.UNREADABLE, _why(error)))
            continue
        for entry in ordered:
            if _is_folder(entry):
                path = f"{prefix}{entry.name}/"
                if _folder_is_left_out(entry, hidden):
                    listing.folders.append(_printable(path))
                else:
                    waiting.append((Path(entry.path), path))
            elif not entry.name.startswith("."):
                _sort_file(entry, prefix + entry.name, listing)
    listing.found.sort(key=lambda found: found.path)
    listing.skipped.sort(key=lambda skipped: skipped.path)
    listing.folders.sort()
    return listing


def format_of(name: str) -> str | None:
    """The format by which a file of this name is read; None if it is not read."""
    stem, suffix = os.path.splitext(name.lower())
    if suffix == ".gz":
        inner = FORMATS.get(os.path.splitext(stem)[1])
        return inner if inner == "man" else None
    if suffix in FORMATS:
        return FORMATS[suffix]
    return "text" if not suffix and stem in BARE_NAMES else None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _folder_is_left_out(entry: os.DirEntry[str], hidden: set[Path]) -> bool:
    name = entry.name
    if name.startswith(".") or name in SKIPPED_FOLDERS or name.endswith(".egg-info"):
        return True
    path = Path(entry.path)
    return path in hidden or (path / "pyvenv.cfg").is_file()


def _sort_file(entry: os.DirEntry[str], path: str, listing: Listing) -> None:
    """Put one directory entry into `listing.found` or `listing.skipped`."""
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError as error:
        listing.skipped.append(Skipped(_printable(path), Reason.UNREADABLE, _why(error)))
        return
    reason = _reason_against(entry.path, path, info)
    if reason is None:
        listing.found.append(Found(path, format_of(path) or "text", info.st_size, info.st_mtime_ns))
    else:
        listing.skipped.append(reason)


def _reason_against(full: str, path: str, info: os.stat_result) -> Skipped | None:
    name = _printable(path)
    if stat.S_ISLNK(info.st_mode):
        return Skipped(name, Reason.LINK)
    if not stat.S_ISREG(info.st_mode):
        return Skipped(name, Reason.NOT_A_FILE)
    if format_of(os.path.basename(path)) is None:
        return Skipped(name, Reason.BINARY if _looks_binary(full) else Reason.OTHER)
    if name != path:
        return Skipped(name, Reason.UNREADABLE, "its name is not valid UTF-8")
    if info.st_size > MAX_FILE_BYTES:
        return Skipped(
            name, Reason.TOO_LARGE, f"{_megabytes(info.st_size)}, the limit is {_megabytes(MAX_FILE_BYTES)}"
        )
    return None


def _looks_binary(full: str) -> bool:
    """Whether a file of unknown format has a NUL byte near its start."""
    try:
        with open(full, "rb") as file:
            return b"\0" in file.read(1024)
    except OSError:
        return False


def _printable(path: str) -> str:
    """`path` with the bytes that are no UTF-8 shown as question marks."""
    return path.encode("utf-8", "replace").decode()


def _megabytes(size: int) -> str:
    return f"{size / (1024 * 1024):,.0f} MB"


def _why(error: BaseException) -> str:
    if isinstance(error, PermissionError):
        return "permission denied"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]


def _shown(path: Path) -> str:
    return str(path) or "."
