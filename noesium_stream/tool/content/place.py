"""Where contents are stored: a folder, or an object store by URL."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from noesium_stream.errors import ToolExecutionError, brief
from noesium_stream.private_files import FILE_MODE, make_folder

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class ContentPlace(Protocol):
    """Bytes by names of hexadecimal digits."""

    def read(self, name: str, limit: int) -> bytes | None:
        """The first `limit` bytes under a name; None: there is nothing.

        Raises:
            ToolExecutionError: the place cannot be read.
        """
        ...

    def write(self, name: str, data: bytes) -> None:
        """Store bytes under a name, all or nothing.

        Raises:
            ToolExecutionError: the place cannot be written.
        """
        ...


class FolderPlace:
    """Contents in a folder that only its owner may read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, limit: int) -> bytes | None:
        """See `ContentPlace.read`."""
        try:
            number = os.open(self._path(name), _READ)
            with open(number, "rb") as file:
                return file.read(limit)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(str(self._folder), "read", error) from error

    def write(self, name: str, data: bytes) -> None:
        """See `ContentPlace.write`."""
        path = self._path(name)
        part = path.with_name(f"{name}.{secrets.token_hex(8)}.part")
        try:
            make_folder(path.parent)
            try:
                with open(os.open(part, _NEW, FILE_MODE), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(part, path)
            except BaseException:
                with suppress(OSError):
                    part.unlink()
                raise
        except OSError as error:
            raise _failed(str(self._folder), "written", error) from error

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name


def _failed(where: str, done: str, error: OSError) -> ToolExecutionError:
    hint = "Look whether the folder is there, and whose it is."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Make room."
    return ToolExecutionError(f"The content store {where} cannot be {done}: {brief(error, 200)}.", hint=hint)
