"""A process that is told to stop ends in time, also where it waits for what does not come.

Whoever sends SIGTERM (systemd, Kubernetes, Docker) sends SIGKILL some seconds later. A worker whose log is
away cannot hand over what it has, and need not: a process may die at any instant, and all that was ever
acknowledged is on the log. So it says that it leaves as it is, and with an exit code of its own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Final

LEAVE_S: Final = 9.5
"""Longer than effects under way are waited for (`worker.grace`), less than the 10 s that most places give."""


class LastCall:
    """Ends this process when its time is up, on a thread of its own: the event loop may be stuck as well.

    Args:
        last_words: asked when the time is up: what to say on standard error, if anything, and the exit code.
        seconds: from `begin` on.
        leave: ends the process with an exit code, at once.
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
        """The time begins to run."""
        threading.Thread(target=self._watch, name="noesium last call", daemon=True).start()

    def _watch(self) -> None:
        self._never.wait(self._seconds)
        text, code = self._last_words()
        try:
            sys.stdout.flush()
            if text:
                os.write(2, f"{text}\n".encode())
        finally:
            self._leave(code)
