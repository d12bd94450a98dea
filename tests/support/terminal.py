"""A program on a terminal: what it shows is read, lines are typed, and it can be killed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.reading import PATIENCE_S


class Terminal:
    """A process whose input and output are a terminal of its own; it is killed at the end of the block."""

    def __init__(self, words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            list(words), cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._ours, 65_536)
            except OSError:  # nobody writes to it any more
                return
            if not chunk:
                return
            self.shown += chunk

    @property
    def text(self) -> str:
        """What it has shown."""
        return self.shown.decode(errors="replace").replace("\r\n", "\n")

    def type(self, line: str) -> None:
        """Type a line and press Enter."""
        os.write(self._ours, f"{line}\n".encode())

    def wait_for(self, happened: str | Callable[[str], bool], times: int = 1) -> str:
        """Wait until it has shown a text so often, or something is true of all that it has shown."""
        wanted = happened if callable(happened) else lambda text: text.count(happened) >= times
        end = time.monotonic() + PATIENCE_S
        while not wanted(self.text):
            if time.monotonic() > end or (self.process.poll() is not None and not self._reader.is_alive()):
                assert wanted(self.text), self.text
            time.sleep(0.005)
        return self.text

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(PATIENCE_S) == -signal.SIGKILL

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for the end of the process; return its exit code."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code
