"""Lines that a person types, or that come from a pipe."""

from __future__ import annotations

import asyncio
import os
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Final

MAX_LINE: Final = 200_000
"""Characters of a line; what is longer comes as several."""
_CHUNK: Final = 65_536


class Lines:
    """Reads lines of a file descriptor in a thread, and hands them to the event loop; None is the end.

    The thread reads the descriptor itself: one that waits in a buffered stream would hold up the exit of the
    process.
    """

    def __init__(self, take: Callable[[str | None], None], descriptor: int = 0) -> None:
        self._take = take
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def start(self) -> None:
        """Begin to read; the thread ends with the input, or with the process."""
        threading.Thread(target=self._read, name="noesium-lines", daemon=True).start()

    def close(self) -> None:
        """Hand nothing over any more."""
        self._closed = True

    def _read(self) -> None:
        decoder = getincrementaldecoder("utf-8")("replace")
        rest = ""
        while True:
            try:
                data = os.read(self._descriptor, _CHUNK)
            except OSError:  # the terminal is gone
                data = b""
            rest += decoder.decode(data, final=not data)
            *lines, rest = rest.split("\n")
            while len(rest) > MAX_LINE:
                lines.append(rest[:MAX_LINE])
                rest = rest[MAX_LINE:]
            for line in lines:
                self._hand_over(line.rstrip("\r"))
            if not data:
                if rest:
                    self._hand_over(rest)
                self._hand_over(None)
                return

    def _hand_over(self, line: str | None) -> None:
        if not self._closed:
            try:
                self._loop.call_soon_threadsafe(self._take, line)
            except RuntimeError:  # the loop is closed: nobody listens
                self._closed = True
