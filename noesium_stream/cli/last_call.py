"""Time limit for stopping: a process ends in time even if it waits for a log that does not answer.

A supervisor that sends SIGTERM (systemd, Kubernetes, Docker) sends SIGKILL some seconds later. A worker whose
log is unavailable cannot hand its partitions over, and need not: a process may die at any instant, and all
acknowledged records are on the log. So it says that it ends without handing over, and uses a special exit
code.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from noesium_stream.escapes import escaped

LEAVE_S: Final = 9.5
"""Time limit in seconds: longer than the wait for effects (`ownership.grace`), less than the usual 10 s."""


class LastCall:
    """Ends this process after a time limit, from a thread of its own: the event loop may be stuck as well.

    Args:
        last_words: called when the time is up; returns a line for standard error, if any, and the exit code.
        seconds: time limit, from `begin` on.
        leave: ends the process at once with an exit code.
    """

    def __init__(
        self,
        last_words: Callable[[], tuple[str, int]],
        seconds: float = LEAVE_S,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._last_words = last_words
        self._seconds = seconds
        self._leave = leave
        self._never = threading.Event()

    def begin(self) -> None:
        """Start the clock."""
        threading.Thread(target=self._watch, name="noesium last call", daemon=True).start()

    def _watch(self) -> None:
        self._never.wait(self._seconds)
        text, code = self._last_words()
        try:
            sys.stdout.flush()
            if text:
                os.write(2, f"{escaped(text)}\n".encode())
        finally:
            self._leave(code)
