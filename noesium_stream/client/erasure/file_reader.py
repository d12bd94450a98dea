"""Files read by another process.

A process that closes a file loses all its locks of that file (POSIX, `fcntl`), also those which a connection
of SQLite's to it relies on. So files that may be open here as databases are not opened here.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, Self, cast

_PROGRAM: Final = Path(__file__).with_name("file_reader_process.py")


class FileReader:
    """A process that reads files for this one; used with `with`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._asked = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its process."""
        self._process.kill()
        self._process.communicate()

    def pieces(self, path: Path) -> Iterator[bytes]:
        """The bytes of a file, at most 8 MiB at a time.

        Raises:
            OSError: it cannot be read.
        """
        self._asked.write(os.fsencode(path) + b"\0")
        self._asked.flush()
        while length := int.from_bytes(self._exactly(8), "big", signed=True):
            if length < 0:
                raise OSError(-length, os.strerror(-length), str(path))
            yield self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            raise OSError(errno.EIO, f"the process that reads it ended with {self._process.wait()}", "")
        return data
